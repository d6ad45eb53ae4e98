//! OpenAPI: what objects look like and which requests exist, for `kubectl explain`, `apply` and client generators.
//!
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>. Documents are made
//! when asked for and not kept (but see [`share`]): clients keep them by the hash in their address, and who has a document
//! already is told so by its tag, for which it need not be made.

mod custom;
mod merge;
mod operations;
mod pages;
mod parameters;
mod prose;
mod published;
mod query;
mod schema;
mod share;
mod tags;
mod v2;
mod v2_parts;
mod v2_protobuf;
mod v2_protobuf_paths;
mod v3;
mod values;

pub use merge::merge_v2;
pub use published::{Documents, Published};
pub use schema::OF_VALUES;
pub use share::Shares;
pub use tags::Tags;
pub use v2_parts::{Parts, Sent};

use crate::discovery::Document;
use coracle_api::ApiError;
use share::Form;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    V2(Form),
    Index,
    /// By its name in the index.
    Document(String),
}

/// A document that is there to be made.
pub struct Page {
    offer: Arc<Documents>,
    what: What,
    pub content_type: &'static str,
    /// Strong and quoted.
    pub etag: String,
}

/// A document that was made.
pub enum Made {
    Whole(Document),
    /// A long one, to be sent as it is made. The document is without its body.
    Parts(Parts, Document),
}

impl Made {
    /// The document as one text, however long it is.
    pub fn whole(self) -> Document {
        match self {
            Self::Whole(document) => document,
            Self::Parts(parts, document) => {
                Document { body: parts.sent(false).flatten().collect::<Vec<u8>>().into(), ..document }
            }
        }
    }
}

impl Page {
    /// Takes milliseconds for a v3 document and tens of them for v2, so call it where blocking is allowed.
    pub fn make(&self) -> Made {
        let body = match &self.what {
            What::V2(form) => {
                let document = Document::unmade(self.content_type, &self.etag);
                return Made::Parts(Parts::of(&self.offer, *form), document);
            }
            What::Index => v3::index(&self.offer).to_string().into_bytes(),
            What::Document(name) => v3::document(name, &self.offer).to_string().into_bytes(),
        };
        let etag = self.etag.clone();
        Made::Whole(Document { content_type: self.content_type, body: body.into(), etag })
    }
}

/// What a GET of `/openapi/v2`, `/openapi/v3` and of the documents that the latter names is answered with; `None` for
/// every other path and for groups and versions that this server does not serve.
///
/// JSON, and v2 as protobuf, which kubectl asks for; other forms are 406.
pub fn find(path: &str, accept: &str, offer: &Arc<Documents>) -> Option<Result<Page, ApiError>> {
    let path = path.trim_end_matches('/');
    let tags = Tags::of(offer);
    let protobuf = path == "/openapi/v2" && !accepts_json(accept) && v2_protobuf::accepted(accept);
    let (what, tag) = match path {
        "/openapi/v2" if protobuf => (What::V2(Form::Protobuf), format!("{}P", tags.v2)),
        "/openapi/v2" => (What::V2(Form::Json), tags.v2.clone()),
        "/openapi/v3" => (What::Index, tags.index.clone()),
        _ => {
            let name = path.strip_prefix("/openapi/v3/")?;
            (What::Document(name.to_owned()), tags.document(name)?.to_owned())
        }
    };
    if !protobuf && !accepts_json(accept) {
        return Some(Err(ApiError::not_acceptable(&["application/json"])));
    }
    let content_type = if protobuf { v2_protobuf::CONTENT_TYPE } else { "application/json" };
    Some(Ok(Page { offer: offer.clone(), what, content_type, etag: format!("\"{tag}\"") }))
}

/// How long a client may keep a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Ask again with its tag.
    Ask,
    /// The address holds the hash of this document, so it will never be another.
    ForEver,
    /// The address holds the hash of an older one; the newer is here.
    Elsewhere(String),
}

/// `hash` is the parameter of that name, by which the index of v3 points at documents.
pub fn keep(path: &str, hash: Option<&str>, etag: &str) -> Keep {
    let wanted = etag.trim_matches('"');
    match hash.filter(|hash| path.starts_with("/openapi/v3/") && !hash.is_empty()) {
        None => Keep::Ask,
        Some(hash) if hash == wanted => Keep::ForEver,
        Some(_) => Keep::Elsewhere(format!("{path}?hash={wanted}")),
    }
}

fn accepts_json(accept: &str) -> bool {
    let mut ranges = accept.split(',').map(|r| r.split(';').next().unwrap_or_default().trim());
    ranges.any(|r| matches!(r, "" | "*/*" | "application/*" | "application/json"))
}

#[cfg(test)]
mod counts_tests;
#[cfg(test)]
mod facts_tests;
#[cfg(test)]
mod tests;
