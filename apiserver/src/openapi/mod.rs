//! OpenAPI: what objects look like and which requests exist, for `kubectl explain`, `apply` and client generators.
//!
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>. Documents are made
//! when asked for and not kept: clients keep them by the hash in their address.

mod operations;
mod prose;
mod schema;
mod v2;
mod v2_protobuf;
mod v3;

use crate::discovery::Document;
use coracle_api::{ApiError, Resource};
use std::sync::Arc;

const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Answers a GET of `/openapi/v2`, `/openapi/v3`, `/openapi/v3/api/V` and `/openapi/v3/apis/G/V`; `None` for every
/// other path and for groups and versions that are not served.
///
/// JSON, and the definitions of v2 as protobuf, which kubectl asks for; other forms are 406. Takes
/// milliseconds for a v3 document and tens of them for v2, so call it where blocking is allowed.
pub fn respond(path: &str, accept: &str, resources: &[Arc<Resource>]) -> Option<Result<Document, ApiError>> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    if segments == ["openapi", "v2"] && !accepts_json(accept) && v2_protobuf::accepted(accept) {
        return Some(Ok(v2_protobuf::document(resources)));
    }
    let make: Box<dyn FnOnce() -> Document> = match segments.as_slice() {
        ["openapi", "v2"] => Box::new(|| v2::document(resources)),
        ["openapi", "v3"] => Box::new(|| Document::json(&v3::index(resources))),
        ["openapi", "v3", "api", version] => {
            let document = v3::document("", version, resources)?;
            Box::new(|| document)
        }
        ["openapi", "v3", "apis", group, version] => {
            let document = v3::document(group, version, resources)?;
            Box::new(|| document)
        }
        _ => return None,
    };
    if accepts_json(accept) {
        return Some(Ok(make()));
    }
    Some(Err(ApiError::not_acceptable(&["application/json"])))
}

fn accepts_json(accept: &str) -> bool {
    let mut ranges = accept.split(',').map(|r| r.split(';').next().unwrap_or_default().trim());
    ranges.any(|r| matches!(r, "" | "*/*" | "application/*" | "application/json"))
}

#[cfg(test)]
mod tests;
