//! Everything that is not a resource: health, version, discovery, metrics.

use super::RequestInfo;
use super::negotiation::Wanted;
use super::respond::{Reply, method_not_allowed};
use crate::discovery::{self, Document};
use crate::registry::Query;
use crate::server::Inner;
use axum::body::Body;
use coracle_api::catalogue;
use coracle_api::{ApiError, UserInfo};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use std::sync::Arc;

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
    let accept = request.headers().get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    match discovery::respond(&info.path, accept, catalogue::catalogue()) {
        Some(document) => Ok(served(&document, request.headers(), wanted)),
        None => Err(ApiError::page_not_found()),
    }
}

/// A document that changes seldom: with its tag, or 304 for who has it already.
fn served(document: &Document, headers: &HeaderMap, wanted: Wanted) -> Response<Body> {
    let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()).is_some_and(|v| document.matches(v));
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        Reply::raw(document.body.clone()).into_response(wanted)
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(document.content_type));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&document.etag) {
        headers.insert(ETAG, tag);
    }
    response
}

fn is_known(path: &str) -> bool {
    let root = path.split('/').nth(1).unwrap_or_default();
    matches!(root, "livez" | "readyz" | "healthz" | "version" | "metrics" | "api" | "apis" | "openapi" | "")
}
