//! A request from its first byte to the answer: who, may they, what, and how it is told.

use super::negotiation::Wanted;
use super::resources::Call;
use super::respond::{Reply, error_response, method_not_allowed};
use super::route::{NoRoute, Route};
use super::serve::Peer;
use super::{RequestInfo, measure, paths};
use crate::authn;
use crate::authz::{self, Attributes};
use crate::connect;
use crate::registry::Query;
use crate::registry::list::rest_token;
use crate::server::Inner;
use axum::body::Body;
use coracle_api::{ApiError, UserInfo};
use futures::FutureExt;
use http::header::CACHE_CONTROL;
use http::{HeaderName, HeaderValue, Request, Response};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Answers every request; errors and panics become Status objects.
pub async fn handle(server: Arc<Inner>, request: Request<Body>) -> Response<Body> {
    let started = Instant::now();
    let info = RequestInfo::new(request.method(), request.uri());
    let audit_id = request.headers().get(AUDIT_ID).cloned().unwrap_or_else(new_audit_id);
    let wanted = Wanted::new(request.headers(), request.uri().query(), info.is_resource);
    let shown = *wanted.as_ref().unwrap_or(&Wanted::default());
    let outcome = match wanted {
        Err(error) if needs_json(&info) => Err(error),
        _ => AssertUnwindSafe(answer(&server, &info, shown, request)).catch_unwind().await.unwrap_or_else(
            |_| {
                tracing::error!(verb = info.verb, path = info.path, "panic while serving a request");
                Err(ApiError::internal("the server panicked while serving this request"))
            },
        ),
    };
    let mut response = outcome.unwrap_or_else(|error| failure(&error, shown));
    let headers = response.headers_mut();
    headers.insert(AUDIT_ID, audit_id);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    measure::answered(&info, response.status(), started.elapsed());
    tracing::debug!(
        verb = info.verb,
        path = info.path,
        code = response.status().as_u16(),
        micros = started.elapsed().as_micros(),
        "request"
    );
    response
}

fn new_audit_id() -> HeaderValue {
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("none"))
}

/// Health, metrics, logs and streams are not negotiated.
fn needs_json(info: &RequestInfo) -> bool {
    info.is_resource && !connect::handles(&info.resource, &info.subresource)
}

fn failure(error: &ApiError, wanted: Wanted) -> Response<Body> {
    let Some(token) = rest_token(error) else { return error_response(error, wanted) };
    let mut status = error.to_status();
    status["metadata"]["continue"] = token.into();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("details");
    }
    Reply::json(http::StatusCode::GONE, status).into_response(wanted)
}

async fn answer(
    server: &Arc<Inner>,
    info: &RequestInfo,
    wanted: Wanted,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let user = identify(server, info, &request)?;
    authorize(server, info, &user, request.uri().query())?;
    let _place = if is_long_running(info) { None } else { Some(server.limits.enter(info.verb)?) };
    let _counted = measure::in_flight(info);
    if !info.is_resource {
        return paths::answer(server, info, wanted, request.headers(), request.uri().query()).await;
    }
    let route = match Route::find(info) {
        Ok(route) => route,
        Err(NoRoute::NotFound(error)) => return Err(error),
        Err(NoRoute::Method(allowed)) => return Ok(method_not_allowed(&allowed, wanted)),
    };
    if info.group.is_empty() && connect::handles(&info.resource, &info.subresource) {
        return stream(server, info, request).await;
    }
    let query = Query::new(request.uri().query());
    let (parts, body) = request.into_parts();
    let call = Call { server, info, user: &user, headers: &parts.headers, query, wanted, route };
    call.answer(body).await
}

/// In memory the caller says who it is; over a socket, its credentials do.
fn identify(server: &Inner, info: &RequestInfo, request: &Request<Body>) -> Result<UserInfo, ApiError> {
    let known = request.extensions().get::<UserInfo>().cloned();
    let user = match (known, &server.authenticator) {
        (Some(user), _) => user,
        (None, Some(authenticator)) => {
            let identity = request.extensions().get::<Peer>().and_then(|p| p.identity.as_deref());
            authenticator.authenticate(identity, request.headers(), &info.path)?
        }
        (None, None) if authn::is_public(&info.path) => UserInfo::anonymous(),
        (None, None) => return Err(ApiError::unauthorized()),
    };
    Ok(authn::impersonate(&user, request.headers(), &*server.authorizer)?.unwrap_or(user))
}

fn authorize(
    server: &Inner,
    info: &RequestInfo,
    user: &UserInfo,
    query: Option<&str>,
) -> Result<(), ApiError> {
    // Upstream's --authorization-always-allow-paths.
    let root = info.path.split('/').nth(1).unwrap_or_default();
    if !info.is_resource && matches!(root, "livez" | "readyz" | "healthz") {
        return Ok(());
    }
    if !info.is_resource {
        return authz::require(&*server.authorizer, &Attributes::path(user, info.verb, &info.path));
    }
    let selector = query.and_then(|q| {
        form_urlencoded::parse(q.as_bytes()).find(|(k, _)| k == "fieldSelector").map(|(_, v)| v)
    });
    let attributes = Attributes {
        version: &info.version,
        subresource: &info.subresource,
        name: &info.name,
        field_selector: selector.as_deref().unwrap_or_default(),
        ..Attributes::resource(user, info.verb, &info.group, &info.resource, &info.namespace)
    };
    authz::require(&*server.authorizer, &attributes)
}

fn is_long_running(info: &RequestInfo) -> bool {
    info.verb == "watch" || connect::handles(&info.resource, &info.subresource)
}

async fn stream(
    server: &Arc<Inner>,
    info: &RequestInfo,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let Some(kubelets) = &server.kubelets else {
        return Err(ApiError::unavailable("this server has no client for kubelets"));
    };
    let target = connect::Target {
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: if info.resource == "nodes" { "" } else { &info.namespace },
        name: &info.name,
    };
    connect::connect(request, target, &*server.registry.cache, kubelets).await
}
