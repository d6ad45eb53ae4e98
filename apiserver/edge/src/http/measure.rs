//! What a request adds to the metrics.

use super::RequestInfo;
use crate::connect;
use coracle_api::Resource;
use coracle_component_base::metrics::{Answered, InFlight, Metrics, Request, RequestKind};

/// Counts the request as being served until the guard is dropped.
pub fn in_flight(metrics: &Metrics, info: &RequestInfo) -> InFlight {
    let reads = matches!(info.verb, "get" | "list" | "watch" | "head");
    metrics.in_flight(if reads { RequestKind::ReadOnly } else { RequestKind::Mutating })
}

/// What is asked for, as far as it is served: only that becomes a label, because clients can write anything into a path.
pub type Known<'a> = Option<&'a Resource>;

/// Counts an answer that has ended.
pub fn answered(metrics: &Metrics, info: &RequestInfo, known: Known<'_>, dry_run: bool, answered: Answered) {
    let mut request = request(info, known);
    request.dry_run = if dry_run { "All" } else { "" };
    metrics.answered(request, answered);
}

/// Counts a watch or a stream that begins (1) or ends (-1).
pub fn lasting(metrics: &Metrics, info: &RequestInfo, known: Known<'_>, by: i64) {
    metrics.lasting(request(info, known), by);
}

/// Counts a request whose client did not wait for the answer.
pub fn aborted(metrics: &Metrics, info: &RequestInfo, known: Known<'_>) {
    metrics.aborted(request(info, known));
}

pub fn deprecated(metrics: &Metrics, info: &RequestInfo, known: Known<'_>) {
    let Request { group, version, resource, subresource, .. } = request(info, known);
    metrics.deprecated(group, version, resource, subresource);
}

fn request<'a>(info: &RequestInfo, known: Known<'a>) -> Request<'a> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_api::catalogue;
    use http::Method;

    fn counted(uri: &str, known: Known<'_>) -> [String; 5] {
        let info = RequestInfo::new(&Method::GET, &uri.parse().unwrap());
        let Request { verb, group, resource, subresource, scope, .. } = request(&info, known);
        [verb, group, resource, subresource, scope].map(str::to_owned)
    }

    #[test]
    fn what_is_served_becomes_labels_and_nothing_else() {
        let pods = &**catalogue::by_plural("", "v1", "pods").unwrap();
        let status = "/api/v1/namespaces/n/pods/p/status";
        assert_eq!(counted(status, Some(pods)), ["GET", "", "pods", "status", "resource"]);
        assert_eq!(counted("/api/v1/namespaces/n/pods/p/x", Some(pods))[3], "");
        let custom = Resource { group: "example.com".into(), plural: "toys".into(), ..pods.clone() };
        let toys = "/apis/example.com/v1/namespaces/n/toys";
        assert_eq!(counted(toys, Some(&custom)), ["LIST", "example.com", "toys", "", "namespace"]);
        assert_eq!(counted(toys, None), ["LIST", "", "", "", ""]);
        assert_eq!(counted("/healthz", None), ["GET", "", "", "/healthz", ""]);
    }
}
