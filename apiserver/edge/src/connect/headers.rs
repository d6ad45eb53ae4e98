//! Which headers cross a proxy (RFC 9110, section 7.6.1).

use axum::extract::ConnectInfo;
use coracle_api::ApiError;
use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use std::net::SocketAddr;

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The protocol that the client wants to change to, if it does.
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    if wants { headers.get(UPGRADE).cloned() } else { None }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The client's headers as the backend may see them: without hop-by-hop headers, without credentials and claims of
/// identity, with the upgrade put back if there is one.
pub(crate) fn for_backend(parts: &Parts) -> HeaderMap {
    let upgrade = upgrade_of(&parts.headers);
    let mut headers = parts.headers.clone();
    remove_hop_by_hop(&mut headers);
    headers.remove(HOST);
    headers.remove(AUTHORIZATION);
    remove_bearer(&mut headers);
    let claims: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-") || name.as_str().starts_with("x-remote-"))
        .cloned()
        .collect();
    for name in claims {
        headers.remove(name);
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers
}

/// Where browsers put a bearer token.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A token among the WebSocket protocols is for this server alone.
fn remove_bearer(headers: &mut HeaderMap) {
    let offered: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    if !offered.iter().any(|protocol| protocol.starts_with(BEARER_PROTOCOL)) {
        return;
    }
    let kept: Vec<&str> = offered.into_iter().filter(|p| !p.starts_with(BEARER_PROTOCOL)).collect();
    let kept = HeaderValue::from_str(&kept.join(", ")).ok().filter(|kept| !kept.is_empty());
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    headers.extend(kept.map(|kept| (SEC_WEBSOCKET_PROTOCOL, kept)));
}

/// Adds the client's address to `X-Forwarded-For`, and the path it asked for.
pub(crate) fn add_forwarded(headers: &mut HeaderMap, parts: &Parts) {
    if let Some(ConnectInfo(client)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() {
        let before = headers.get("x-forwarded-for").and_then(|v| v.to_str().ok()).map(str::to_owned);
        let chain = match before {
            Some(before) => format!("{before}, {}", client.ip()),
            None => client.ip().to_string(),
        };
        set(headers, "x-forwarded-for", &chain);
    }
    set(headers, "x-forwarded-uri", parts.uri.path());
}

/// What the client calls this server: its `Host`, or in HTTP/2 the authority.
pub(crate) fn host_of(parts: &Parts) -> Option<HeaderValue> {
    let named = || HeaderValue::from_str(parts.uri.authority()?.as_str()).ok();
    parts.headers.get(HOST).cloned().or_else(named)
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The backend's headers as the client may see them; a change of protocol keeps its two.
pub(crate) fn for_client(headers: &mut HeaderMap, upgraded: bool) {
    let protocol = headers.get(UPGRADE).cloned();
    remove_hop_by_hop(headers);
    if upgraded && let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// What a backend allows its pages does not hold for this server, whose origin they share: whom it lets read its answers
/// (upstream's `corsRemovingTransport`), and which paths a service worker of theirs may take over.
pub(crate) fn remove_rights_of_pages(headers: &mut HeaderMap) {
    for name in [
        "access-control-allow-credentials",
        "access-control-allow-headers",
        "access-control-allow-methods",
        "access-control-allow-origin",
        "service-worker-allowed",
    ] {
        headers.remove(name);
    }
}

/// Refuses what a browser asks for to install it as a service worker: it would answer for other pages of this origin, and
/// outlive its backend.
pub(crate) fn refuse_service_worker(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key("service-worker") {
        return Err(ApiError::bad_request("scripts of service workers are not proxied"));
    }
    Ok(())
}
