//! Discovery: what this server serves, in the plain and in the aggregated form, and `/version`.
//!
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>. Pure functions of the [`ServedApis`], which
//! the server makes anew when a definition or another server has changed what is served; nothing else is made before it
//! is asked for or kept afterwards (the largest document takes about a millisecond).

mod aggregated;
mod document;
mod foreign;
mod plain;
mod ranking;
mod served_apis;

pub use document::{Document, hex};
pub use foreign::{Foreign, ForeignVersion, NoForeign};
pub use plain::RESOURCES;
pub use ranking::{CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY, Ranking, newer_first};
pub use served_apis::{Group, ServedApis};

use coracle_component_base::version;

/// Answers a GET of `/api`, `/apis`, `/api/v1`, `/apis/G`, `/apis/G/V` (a slash may follow) or `/version`; `None`
/// for every other path and for groups and versions that are not served by this server.
///
/// `accept` is the whole header, empty if there was none; `address` is where clients find this server.
pub fn respond(path: &str, accept: &str, address: &str, offer: &ServedApis) -> Option<Document> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let aggregated = aggregated::Form::negotiate(accept);
    match (segments.as_slice(), aggregated) {
        (["version"], _) => Some(Document::indented(&version::version(), version::ORDER)),
        (["api"], Some(form)) => Some(form.core(offer)),
        (["apis"], Some(form)) => Some(form.groups(offer)),
        (["api"], None) => Some(Document::json(&plain::api_versions(address), plain::GROUPS)),
        (["apis"], None) => Some(Document::json(&plain::group_list(offer), plain::GROUPS)),
        (["api", version], _) => {
            plain::resource_list("", version, offer).map(|v| Document::json(&v, plain::RESOURCES))
        }
        (["apis", group], _) => plain::group(group, offer).map(|v| Document::json(&v, plain::GROUPS)),
        (["apis", group, version], _) if !group.is_empty() => {
            plain::resource_list(group, version, offer).map(|v| Document::json(&v, plain::RESOURCES))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
