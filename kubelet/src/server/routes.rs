//! Paths of the kubelet's server.

use super::auth::Admitted;
use super::error::HttpError;
use super::{Server, checkpoint, local_path, logs, metrics, node_logs, stats, streams};
use crate::streaming;
use axum::body::Body;
use coracle_listen::zpages::Zpages;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers a request that was admitted.
pub(super) async fn answer(
    server: &Arc<Server>,
    request: Request<Body>,
    admitted: Admitted,
) -> Result<Response<Body>, HttpError> {
    let path = request.uri().path().to_owned();
    // Rights were asked of the path as it is written.
    let first = path.split('/').nth(1).unwrap_or_default();
    if path.len() > 1 && (first.is_empty() || first.contains('%')) {
        return Err(HttpError::not_found("404 page not found\n"));
    }
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if let Some(why) = server.without(&segments) {
        return Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, why));
    }
    if let [verb @ ("exec" | "attach" | "portForward" | "run"), rest @ ..] = segments.as_slice() {
        return streams::answer(server, request, verb, rest, admitted).await;
    }
    if let ["localPath", rest @ ..] = segments.as_slice() {
        return local_path::answer(&server.volumes, request, rest).await;
    }
    if let ["checkpoint", rest @ ..] = segments.as_slice() {
        return checkpoint::answer(server, request, rest).await;
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"));
    }
    match segments.as_slice() {
        ["healthz" | "livez" | "readyz"] | ["healthz", "ping" | "log" | "syncloop"] => {
            server.metrics.health_checks.asked(&segments);
            Ok(text("ok"))
        }
        ["pods"] => Ok(pods(&server.pods.pods())),
        ["runningpods"] => Ok(running(server)),
        ["configz"] => Ok(json_body(&json!({ "kubeletconfig": (server.configz)() }))),
        ["statusz" | "flagz"] => Ok(zpage(server, &path, request.headers())),
        ["containerLogs", namespace, pod, container] => {
            container_log(server, request, [namespace, pod, container], admitted)
        }
        ["stats"] | ["stats", "summary"] => {
            stats::summary(server, request.uri().query().unwrap_or_default()).await
        }
        ["metrics"] => Ok(metrics::kubelet(server).await),
        ["metrics", "cadvisor"] => metrics::cadvisor(server).await,
        ["metrics", "probes"] => Ok(metrics::probes(&server.metrics.probes)),
        ["metrics", "slis"] => Ok(metrics::objectives(&server.metrics.health_checks)),
        ["metrics", "resource"] => metrics::resource(server).await,
        ["logs", rest @ ..] => node_logs::answer(&server.log_root, rest, path.ends_with('/')).await,
        _ => Err(HttpError::not_found("404 page not found\n")),
    }
}

impl Server {
    /// Why a path is not served, in upstream's words.
    fn without(&self, segments: &[&str]) -> Option<&'static str> {
        match segments {
            [
                "exec" | "attach" | "portForward" | "run" | "containerLogs" | "runningpods" | "configz"
                | "logs",
                ..,
            ] if !self.debugging => Some("Debug endpoints are disabled."),
            ["logs", ..] if !self.system_logs => Some("logs endpoint is disabled."),
            _ => None,
        }
    }
}

fn zpage(server: &Server, path: &str, headers: &HeaderMap) -> Response<Body> {
    let paths = super::PATHS.map(|first| format!("/{first}"));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let pages = Zpages { component: "kubelet", program: &server.program, paths: &paths };
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    pages.response(path.trim_end_matches('/'), accept).map(Body::from)
}

/// The log of a container, as messages of a WebSocket where that is asked for.
fn container_log(
    server: &Arc<Server>,
    request: Request<Body>,
    [namespace, pod, container]: [&str; 3],
    admitted: Admitted,
) -> Result<Response<Body>, HttpError> {
    let ends = server.ends(admitted);
    let log = logs::answer(server, request.uri().query(), namespace, pod, container, ends)?;
    let upgrade = streaming::upgrade_of(request.headers()).map(str::to_owned);
    match upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")) {
        true => Ok(streaming::messages(request, log.into_body(), &server.stop)?),
        false => Ok(log),
    }
}

pub(super) fn text(body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(super) fn json_body(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn pods(pods: &[Arc<Pod>]) -> Response<Body> {
    let items: Vec<&Pod> = pods.iter().map(Arc::as_ref).collect();
    json_body(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
}

/// What runs according to the runtime: names and images only, as upstream.
fn running(server: &Server) -> Response<Body> {
    let items: Vec<Value> = server.pods.pods().iter().filter_map(|pod| running_pod(server, pod)).collect();
    json_body(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
}

fn running_pod(server: &Server, pod: &Pod) -> Option<Value> {
    let (namespace, name) = (pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
    let handle = server.pods.find(namespace, name, pod.metadata.uid.as_deref())?;
    let spec = handle.pod.spec.as_ref()?;
    let image = |name: &str| spec.containers.iter().find(|c| c.name == name).and_then(|c| c.image.as_deref());
    let containers: Vec<Value> = handle
        .containers
        .iter()
        .filter(|container| container.running)
        .map(|container| json!({ "name": container.name, "image": image(&container.name), "resources": {} }))
        .collect();
    (!containers.is_empty()).then(|| {
        json!({
            "metadata": { "name": name, "namespace": namespace, "uid": handle.uid },
            "spec": { "containers": containers }, "status": {},
        })
    })
}
