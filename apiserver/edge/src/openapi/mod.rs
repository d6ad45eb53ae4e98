//! OpenAPI: what objects look like and which requests exist, for `kubectl explain`, `apply` and client generators.
//!
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>. Documents are made
//! when asked for and not kept (but see [`share`]): clients keep them by the hash in their address, and who has a document
//! already is told so by its tag, for which it need not be made.

mod custom;
mod document_cache;
mod etags;
mod gnostic;
mod merge;
mod operations;
mod pages;
mod parameters;
mod prose;
mod query;
mod schema;
mod share;
mod v2;
mod v2_parts;
mod v2_protobuf;
mod v2_protobuf_paths;
mod v3;
mod v3_protobuf;
mod values;

pub use document_cache::{DocumentCache, Documents};
pub use etags::ETags;
pub use merge::merge_v2;
pub use schema::OF_VALUES;
pub use share::Shares;
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
    Document(String, Form),
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
            What::Document(name, Form::Json) => v3::document(name, &self.offer).to_string().into_bytes(),
            What::Document(name, Form::Protobuf) => v3_protobuf::encode(&v3::document(name, &self.offer)),
        };
        let etag = self.etag.clone();
        Made::Whole(Document { content_type: self.content_type, body: body.into(), etag })
    }
}

/// What a GET of `/openapi/v2`, `/openapi/v3` and of the documents that the latter names is answered with; `None` for
/// every other path and for groups and versions that this server does not serve.
///
/// JSON, and documents as protobuf: kubectl asks for v2 so, client-go can ask for those of v3. Other forms are 406.
pub fn find(path: &str, accept: &str, offer: &Arc<Documents>) -> Option<Result<Page, ApiError>> {
    let path = path.trim_end_matches('/');
    let tags = ETags::of(offer);
    let json = accepts_json(accept);
    let (what, tag, protobuf) = match path {
        "/openapi/v2" if !json && gnostic::accepted(accept, gnostic::Version::V2) => {
            (What::V2(Form::Protobuf), format!("{}P", tags.v2), Some(v2_protobuf::CONTENT_TYPE))
        }
        "/openapi/v2" => (What::V2(Form::Json), tags.v2.clone(), None),
        "/openapi/v3" => (What::Index, tags.index.clone(), None),
        _ => {
            let name = path.strip_prefix("/openapi/v3/")?;
            let protobuf = !json && gnostic::accepted(accept, gnostic::Version::V3);
            let form = if protobuf { Form::Protobuf } else { Form::Json };
            // Both forms have the tag that the index names.
            let tag = tags.document(name)?.to_owned();
            (What::Document(name.to_owned(), form), tag, protobuf.then_some(v3_protobuf::CONTENT_TYPE))
        }
    };
    if protobuf.is_none() && !json {
        return Some(Err(ApiError::not_acceptable(&["application/json"])));
    }
    let content_type = protobuf.unwrap_or("application/json");
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
