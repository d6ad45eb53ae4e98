//! OpenAPI: what objects look like and which requests exist, for `kubectl explain`, `apply` and client generators.
//!
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>. Documents are made
//! when asked for and not kept: clients keep them by the hash in their address.

mod operations;
mod pages;
mod parameters;
mod prose;
mod schema;
mod v2;
mod v2_protobuf;
mod v3;

use crate::discovery::Document;
use coracle_api::{ApiError, Resource};
use std::sync::Arc;

/// Answers a GET of `/openapi/v2`, `/openapi/v3` and of the documents that the latter names; `None` for every other
/// path and for groups and versions that are not served.
///
/// JSON, and v2 as protobuf, which kubectl asks for; other forms are 406. Takes milliseconds for a v3 document and tens
/// of them for v2, so call it where blocking is allowed.
pub fn respond(path: &str, accept: &str, resources: &[Arc<Resource>]) -> Option<Result<Document, ApiError>> {
    let path = path.trim_end_matches('/');
    if path == "/openapi/v2" && !accepts_json(accept) && v2_protobuf::accepted(accept) {
        return Some(Ok(v2_protobuf::document(resources)));
    }
    let make: Box<dyn FnOnce() -> Document> = match path {
        "/openapi/v2" => Box::new(|| v2::document(resources)),
        "/openapi/v3" => Box::new(|| Document::json(&v3::index(resources))),
        _ => {
            let document = v3::document(path.strip_prefix("/openapi/v3/")?, resources)?;
            Box::new(|| document)
        }
    };
    if accepts_json(accept) {
        return Some(Ok(make()));
    }
    Some(Err(ApiError::not_acceptable(&["application/json"])))
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
pub fn keep(path: &str, hash: Option<&str>, document: &Document) -> Keep {
    let wanted = document.etag.trim_matches('"');
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
mod facts_tests;
#[cfg(test)]
mod tests;
