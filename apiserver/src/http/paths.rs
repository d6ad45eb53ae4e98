//! Everything that is not a resource: health, version, discovery, metrics.

use super::RequestInfo;
use super::negotiation::Wanted;
use super::respond::{Reply, method_not_allowed};
use crate::registry::Query;
use crate::server::Inner;
use axum::body::Body;
use coracle_api::{ApiError, UserInfo};
use http::{Request, Response};
use serde_json::json;
use std::sync::Arc;

/// The Kubernetes version whose API this is.
pub const MINOR: &str = "36";
pub const GIT_VERSION: &str = "v1.36.0+coracle";

pub fn answer(
    server: &Arc<Inner>,
    info: &RequestInfo,
    _user: &UserInfo,
    wanted: Wanted,
    request: &Request<Body>,
) -> Result<Response<Body>, ApiError> {
    if !matches!(info.verb, "get" | "head") {
        return if is_known(&info.path) {
            Ok(method_not_allowed("GET", wanted))
        } else {
            Err(ApiError::page_not_found())
        };
    }
    let query = Query::new(request.uri().query());
    if let Some(reply) = server.health.answer(&info.path, &query) {
        return Ok(reply.into_response(wanted));
    }
    match info.path.trim_end_matches('/') {
        "/version" => Ok(Reply::ok(version()).into_response(wanted)),
        _ => Err(ApiError::page_not_found()),
    }
}

fn is_known(path: &str) -> bool {
    let root = path.split('/').nth(1).unwrap_or_default();
    matches!(root, "livez" | "readyz" | "healthz" | "version" | "metrics" | "api" | "apis" | "openapi" | "")
}

fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": GIT_VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none (rust)", "compiler": "rustc", "platform": platform(),
    })
}

fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}
