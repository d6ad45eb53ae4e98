//! Subresources that lead elsewhere: to the kubelet of a pod's node (`log`, `exec`, `attach`, `portforward`), or by
//! reverse proxy to a pod, a service or a node (`proxy`).
//!
//! Authentication, authorization and admission are done when [`connect`] is called. Every error before the first byte
//! of the answer comes back as an [`ApiError`]; after it the connection can only end.

pub mod addresses;
pub(crate) mod backend;
pub(crate) mod forward;
mod guard;
pub(crate) mod headers;
mod html;
mod log;
mod pods;
mod proxy;
mod relocate;
mod targets;

pub use backend::KubeletClient;
pub use guard::{Guard, OwnNames};
pub(crate) use pods::ports;

use axum::body::Body;
use coracle_api::{ApiError, Object};
use coracle_registry::Query;
use coracle_requests::ObjectReader;
use coracle_requests::RequestInfo;
use http::{Request, Response};
use std::sync::Arc;

/// Which object and which way to it. `name` is decoded and may carry scheme and port (`https:web:8443`) for `proxy`.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// `pods`, `services` or `nodes`.
    pub resource: &'a str,
    /// `log`, `exec`, `attach`, `portforward` or `proxy`.
    pub subresource: &'a str,
    /// Empty for nodes.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Where in the encoded path that begins which is proxied.
    pub rest_at: usize,
}

/// Whether [`connect`] serves this pair of plural and subresource (core group only).
pub fn handles(resource: &str, subresource: &str) -> bool {
    match resource {
        "pods" => matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy"),
        "services" | "nodes" => subresource == "proxy",
        _ => false,
    }
}

/// Whether the request goes to a backend whatever its method is: those that have no verb (OPTIONS) are nobody else's.
pub fn takes_any_method(info: &RequestInfo) -> bool {
    let proxies = info.subresource == "proxy" && handles(&info.resource, "proxy");
    proxies && info.group.is_empty() && info.version == "v1" && !info.name.is_empty() && info.verb.is_empty()
}

/// Answers one connect request.
///
/// `request` is the client's as it was admitted, `query` its query, with its full path and, for upgrades, hyper's `OnUpgrade` in the
/// extensions; `ConnectInfo<SocketAddr>` in the extensions, where present, becomes `X-Forwarded-For`. The answer's
/// body streams; dropping it ends the connection behind it.
pub async fn connect(
    request: Request<Body>,
    target: Target<'_>,
    query: &Query,
    reader: &dyn ObjectReader,
    kubelets: &KubeletClient,
) -> Result<Response<Body>, ApiError> {
    match (target.resource, target.subresource) {
        ("pods", "log") => log::get(request, target, query, reader, kubelets).await,
        ("pods", "exec" | "attach" | "portforward") => {
            pods::stream(request, target, query, reader, kubelets).await
        }
        ("pods" | "services" | "nodes", "proxy") => proxy::proxy(request, target, reader, kubelets).await,
        _ => Err(ApiError::page_not_found()),
    }
}

/// The pod of the target, or 404.
fn pod(target: Target<'_>, reader: &dyn ObjectReader) -> Result<Arc<Object>, ApiError> {
    reader
        .get("pods.", target.namespace, target.name)
        .ok_or_else(|| ApiError::not_found("", "pods", target.name))
}

fn text<'a>(object: &'a Object, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Object::as_str).unwrap_or_default()
}

fn items<'a>(object: &'a Object, pointer: &str) -> &'a [Object] {
    object.pointer(pointer).and_then(Object::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
