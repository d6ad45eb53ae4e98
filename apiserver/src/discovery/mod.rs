//! Discovery: what this server serves, in the plain and in the aggregated form, and `/version`.
//!
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>. Pure functions of the resources;
//! nothing is made before it is asked for or kept afterwards (the largest document takes about a millisecond).

mod aggregated;
mod document;
mod plain;
mod version;

pub use document::{Document, hex};
pub use version::{GIT_VERSION, version};

use coracle_api::Resource;
use std::sync::Arc;

/// Answers a GET of `/api`, `/apis`, `/api/v1`, `/apis/G`, `/apis/G/V` (a slash may follow) or `/version`; `None`
/// for every other path and for groups and versions that are not served.
///
/// `accept` is the whole header, empty if there was none. `resources` are all served resources in the order of
/// their groups and, within one, of preference.
pub fn respond(path: &str, accept: &str, resources: &[Arc<Resource>]) -> Option<Document> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let aggregated = aggregated::Form::negotiate(accept);
    match (segments.as_slice(), aggregated) {
        (["version"], _) => Some(Document::json(&version())),
        (["api"], Some(form)) => Some(form.document(resources.iter().filter(|r| r.group.is_empty()))),
        (["apis"], Some(form)) => Some(form.document(resources.iter().filter(|r| !r.group.is_empty()))),
        (["api"], None) => Some(Document::json(&plain::api_versions())),
        (["apis"], None) => Some(Document::json(&plain::group_list(resources))),
        (["api", version], _) => plain::resource_list("", version, resources).map(|v| Document::json(&v)),
        (["apis", group], _) => plain::group(group, resources).map(|v| Document::json(&v)),
        (["apis", group, version], _) if !group.is_empty() => {
            plain::resource_list(group, version, resources).map(|v| Document::json(&v))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
