//! What a request adds to the metrics.

use super::RequestInfo;
use crate::connect;
use crate::metrics::{self, Answered, InFlight, Request, RequestKind};
use coracle_api::catalogue;

/// Counts the request as being served until the guard is dropped.
pub fn in_flight(info: &RequestInfo) -> InFlight<'static> {
    let reads = matches!(info.verb, "get" | "list" | "watch" | "head");
    metrics::global().in_flight(if reads { RequestKind::ReadOnly } else { RequestKind::Mutating })
}

/// Counts an answer that has ended.
pub fn answered(info: &RequestInfo, dry_run: bool, answered: Answered) {
    let mut request = request(info);
    request.dry_run = if dry_run { "All" } else { "" };
    metrics::global().answered(request, answered);
}

/// Counts a watch or a stream that begins (1) or ends (-1).
pub fn lasting(info: &RequestInfo, by: i64) {
    metrics::global().lasting(request(info), by);
}

/// Counts a request whose client did not wait for the answer.
pub fn aborted(info: &RequestInfo) {
    metrics::global().aborted(request(info));
}

pub fn deprecated(info: &RequestInfo) {
    let Request { group, version, resource, subresource, .. } = request(info);
    metrics::global().deprecated(group, version, resource, subresource);
}

/// Only what the catalogue knows becomes a label: clients can write anything into a path.
fn request(info: &RequestInfo) -> Request<'static> {
    let known = catalogue::by_plural(&info.group, &info.version, &info.resource);
    let streams = info.group.is_empty() && connect::handles(&info.resource, &info.subresource);
    let mut request = Request { verb: label(info, streams), component: "apiserver", ..Request::default() };
    if let Some(resource) = known {
        request.group = &resource.group;
        request.version = &resource.version;
        request.resource = &resource.plural;
        request.subresource = resource.subresource(&info.subresource).map_or("", |s| &s.name);
        request.scope = scope(info);
    } else if !info.is_resource {
        request.subresource = known_path(&info.path);
    }
    request
}

/// Upstream writes the path of what is no resource where the subresource stands.
fn known_path(path: &str) -> &'static str {
    const PATHS: &[&str] =
        &["/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v2", "/openapi/v3"];
    PATHS.iter().find(|known| path.trim_end_matches('/') == **known).copied().unwrap_or_default()
}

fn label(info: &RequestInfo, streams: bool) -> &'static str {
    match info.verb {
        _ if streams => "CONNECT",
        "get" | "head" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

fn scope(info: &RequestInfo) -> &'static str {
    if !info.is_collection() || (info.verb == "create" && !info.resource.is_empty()) {
        "resource"
    } else if info.namespace.is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}
