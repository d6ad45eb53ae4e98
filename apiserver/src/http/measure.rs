//! What a request adds to the metrics.

use super::RequestInfo;
use crate::connect;
use crate::metrics::{self, InFlight, Request, RequestKind};
use coracle_api::catalogue;
use http::StatusCode;
use std::time::Duration;

/// Counts the request as being served until the guard is dropped.
pub fn in_flight(info: &RequestInfo) -> InFlight<'static> {
    let reads = matches!(info.verb, "get" | "list" | "watch" | "head");
    metrics::global().in_flight(if reads { RequestKind::ReadOnly } else { RequestKind::Mutating })
}

/// Counts an answer. Only what the catalogue knows becomes a label: clients can write anything into a path.
pub fn answered(info: &RequestInfo, code: StatusCode, duration: Duration) {
    let known = catalogue::by_plural(&info.group, &info.version, &info.resource);
    let streams = connect::handles(&info.resource, &info.subresource);
    let mut request = Request { verb: label(info, streams), component: "apiserver", ..Request::default() };
    if let Some(resource) = known {
        request.group = &resource.group;
        request.version = &resource.version;
        request.resource = &resource.plural;
        request.subresource = resource.subresource(&info.subresource).map_or("", |s| &s.name);
        request.scope = scope(info);
    }
    let lasting = streams || info.verb == "watch";
    metrics::global().request(request, code, (!lasting).then_some(duration));
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
    if !info.is_collection() {
        "resource"
    } else if info.namespace.is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}
