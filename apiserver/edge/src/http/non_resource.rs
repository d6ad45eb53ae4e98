//! Everything that is not a resource: health, version, discovery, metrics.

use super::seats::Seats;
use super::{RequestHeaders, RequestInfo, large};
use crate::discovery::{self, Document};
use crate::http::ServerState;
use crate::openapi;
use crate::wire::negotiation::Wanted;
use crate::wire::respond::{Content, Reply, as_gzip, method_not_allowed};
use axum::body::Body;
use coracle_access::authn::oidc;
use coracle_api::ApiError;
use coracle_api::encode::InOrder;
use coracle_component_base::metrics;
use coracle_listen::zpages::{self, Zpages};
use coracle_registry::Query;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, LOCATION, VARY};
use http::{HeaderValue, Response, StatusCode};
use std::convert::Infallible;
use std::sync::Arc;

pub async fn answer(
    server: &Arc<ServerState>,
    (info, seats): (&RequestInfo, &Seats),
    wanted: Wanted,
    headers: &RequestHeaders,
) -> Result<Response<Body>, ApiError> {
    // Upstream's figures are set back by DELETE; ours only grow.
    let is_reset = info.verb == "delete" && info.path.starts_with("/metrics");
    if is_reset || info.verb != "get" && has_get_only(&info.path) {
        return Ok(method_not_allowed("GET", wanted));
    }
    let query = &info.query;
    if let Some(reply) = super::health::answer(&server.health, &info.path, query) {
        return Ok(reply.into_response(wanted));
    }
    let accept = headers.accept();
    if let Some(page) = own_page(server, &info.path, accept, query, wanted) {
        return page;
    }
    if let Some(document) = server.aggregator.local_document(&info.path) {
        let mut response = served(&document, headers, wanted, seats).await;
        let known = openapi::keep(&info.path, query.get("hash"), &document.etag);
        keep(&mut response, &known, (server.registry.clock)());
        return Ok(response);
    }
    if let Some(document) = server.aggregator.converted(&info.path) {
        let known = openapi::keep(&info.path, query.get("hash"), &document.etag);
        let mut response = served(&document, headers, wanted, seats).await;
        keep(&mut response, &known, (server.registry.clock)());
        return Ok(response);
    }
    if info.path.starts_with("/openapi/") {
        return openapi_document(server, (info, seats), headers, wanted).await;
    }
    if let Some(authenticator) = &server.authenticator
        && let Some((kind, document)) = oidc::respond(&info.path, authenticator.tokens())
    {
        let document = InOrder { value: &document, order: oidc::ORDER };
        let content = Content::Text(kind, serde_json::to_vec(&document).unwrap_or_default().into());
        let reply = Reply { status: StatusCode::OK, content, warnings: Vec::new() };
        let mut response = reply.into_response(wanted);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(oidc::CACHE_CONTROL));
        return Ok(response);
    }
    let address = server.address.read().clone();
    match discovery::respond(&info.path, accept, &address, &server.documents.present()) {
        Some(document) => Ok(served(&document, headers, wanted, seats).await),
        None => Err(ApiError::page_not_found()),
    }
}

/// The pages that the server has of itself; `None` for any other path.
fn own_page(
    server: &Arc<ServerState>,
    path: &str,
    accept: &str,
    query: &Query,
    wanted: Wanted,
) -> Option<Result<Response<Body>, ApiError>> {
    if let Some(page) = path.strip_prefix("/debug/api_priority_and_fairness/") {
        let details = query.get("includeRequestDetails").is_some_and(|v| !v.is_empty());
        let page = server.flow.dump(page, details).ok_or_else(ApiError::page_not_found);
        return Some(page.map(|page| Reply::text(StatusCode::OK, page).into_response(wanted)));
    }
    let reply = match path {
        "/metrics" => return Some(Ok(metrics_page(server, wanted))),
        "/metrics/slis" => {
            let content = Content::Text(metrics::CONTENT_TYPE, server.health.render_metrics().into());
            Ok(Reply { status: StatusCode::OK, content, warnings: Vec::new() })
        }
        "/" => {
            let page = serde_json::json!({ "paths": index(server) });
            return Some(Ok(Reply::ok(page).into_response(Wanted { pretty: true, ..wanted })));
        }
        zpages::STATUSZ | zpages::FLAGZ => zpage(server, path, accept)?,
        path => {
            let content = Content::Text(metrics::CONTENT_TYPE, server.metrics().page(path)?.into());
            Ok(Reply { status: StatusCode::OK, content, warnings: Vec::new() })
        }
    };
    Some(reply.map(|reply| reply.into_response(wanted)))
}

fn zpage(server: &ServerState, path: &str, accept: &str) -> Option<Result<Reply, ApiError>> {
    let paths = index(server);
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let pages = Zpages { component: "kube-apiserver", program: &server.program, paths: &paths };
    let page = pages.page(path, accept, (server.registry.clock)())?;
    let page = page.map_err(|error| ApiError::new(406, "NotAcceptable", error.to_string()));
    Some(page.map(|page| Reply {
        status: StatusCode::OK,
        content: Content::Text(page.media, page.body.into()),
        warnings: page.warning.into_iter().collect(),
    }))
}

/// What there is beside resources, as upstream's root page lists it.
fn index(server: &ServerState) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        zpages::FLAGZ,
        "/healthz",
        "/healthz/ping",
        "/livez",
        "/livez/ping",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/readyz",
        "/readyz/ping",
        zpages::STATUSZ,
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.extend(server.metrics().page_paths().into_iter().map(str::to_owned));
    for group in &server.documents.present().groups {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{version}", group.name)));
    }
    paths.sort();
    paths
}

/// Schemas are made on demand, which takes tens of milliseconds, unless the client has them already.
async fn openapi_document(
    server: &Arc<ServerState>,
    (info, seats): (&RequestInfo, &Seats),
    headers: &RequestHeaders,
    wanted: Wanted,
) -> Result<Response<Body>, ApiError> {
    let (accept, query) = (headers.accept(), &info.query);
    let offer = server.documents.present();
    let page = openapi::find(&info.path, accept, &offer).ok_or_else(ApiError::page_not_found)??;
    let known = openapi::keep(&info.path, query.get("hash"), &page.etag);
    let unmade = Document::unmade(page.content_type, &page.etag);
    let mut response = if has_already(&unmade, headers) || matches!(known, openapi::Keep::Elsewhere(_)) {
        served(&unmade, headers, wanted, seats).await
    } else {
        let made = || match page.make() {
            openapi::Made::Whole(document) => (document, None),
            openapi::Made::Parts(parts, document) => (document, Some(parts.sent(wanted.gzip))),
        };
        match large::read((server, info, seats), large::LARGE_BYTES, made).await? {
            (document, None) => served(&document, headers, wanted, seats).await,
            (document, Some(parts)) => with_tag(streamed(parts, wanted.gzip), &document),
        }
    };
    keep(&mut response, &known, (server.registry.clock)());
    Ok(response)
}

fn has_already(document: &Document, headers: &RequestHeaders) -> bool {
    let known = headers.if_none_match();
    !known.is_empty() && document.matches(known)
}

fn metrics_page(server: &ServerState, wanted: Wanted) -> Response<Body> {
    server.metrics().begin_cached();
    for (resource, figures) in server.registry.cache.figures() {
        server.metrics().cached(resource.trim_end_matches('.'), figures);
    }
    let content = Content::Text(metrics::CONTENT_TYPE, server.metrics().render().into());
    Reply { status: StatusCode::OK, content, warnings: Vec::new() }.into_response(wanted)
}

/// Documents whose address holds their hash are kept for a year, which is what upstream says instead of for ever.
fn keep(response: &mut Response<Body>, keep: &openapi::Keep, now: jiff::Timestamp) {
    const YEAR: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);
    match keep {
        openapi::Keep::Ask => {}
        openapi::Keep::ForEver => {
            let until =
                now.saturating_add(YEAR).unwrap_or(now).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            if let Ok(until) = HeaderValue::from_str(&until) {
                response.headers_mut().insert(EXPIRES, until);
            }
        }
        openapi::Keep::Elsewhere(address) => {
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            *response.body_mut() = Body::empty();
            if let Ok(address) = HeaderValue::from_str(address) {
                response.headers_mut().insert(LOCATION, address);
            }
        }
    }
}

/// A document that changes seldom: with its tag, or 304 for who has it already.
async fn served(
    document: &Document,
    headers: &RequestHeaders,
    wanted: Wanted,
    seats: &Seats,
) -> Response<Body> {
    let response = if has_already(document, headers) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let reply = Reply::raw(document.body.clone());
        large::make(seats, reply.weight(), || reply.into_response(wanted)).await
    };
    with_tag(response, document)
}

fn with_tag(mut response: Response<Body>, document: &Document) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(document.content_type));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&document.etag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// A long document, piece by piece.
fn streamed(parts: openapi::Sent, gzip: bool) -> Response<Body> {
    let body = Body::from_stream(futures::stream::iter(parts.map(Ok::<_, Infallible>)));
    if gzip { as_gzip(Response::new(body)) } else { Response::new(body) }
}

/// Whether upstream has a route for GET alone at this path; elsewhere it answers whatever the method is.
fn has_get_only(path: &str) -> bool {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments.as_slice() {
        ["version" | "api"] | ["api", _] => true,
        [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"] => true,
        ["apis", group, version] => is_built_in(group, version),
        _ => false,
    }
}

fn is_built_in(group: &str, version: &str) -> bool {
    let mut resources = coracle_api::catalogue::catalogue().iter();
    resources.any(|resource| *resource.group == *group && *resource.version == *version)
}
