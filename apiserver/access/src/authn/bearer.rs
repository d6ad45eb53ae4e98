//! Where requests carry bearer tokens.

use super::AuthnError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};

/// Where browsers put a bearer token, because they cannot set headers on WebSockets.
pub(super) const WEBSOCKET_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// The token of the `Authorization` header, else of the WebSocket protocols. As upstream's parser, other schemes and
/// empty tokens count as no credentials, and what follows a token in the header is no part of it.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<String>, AuthnError> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = value.to_str().map_err(|_| AuthnError::Header)?;
        let mut parts = text.trim().split(' ');
        let bearer = parts.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
        if let Some(token) = parts.next().filter(|token| bearer && !token.is_empty()) {
            return plain(token.to_owned()).map(Some);
        }
    }
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    let mut tokens =
        protocols.flat_map(|v| v.split(',')).filter_map(|p| p.trim().strip_prefix(WEBSOCKET_TOKEN));
    let Some(encoded) = tokens.next().filter(|token| !token.is_empty()) else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| AuthnError::Header)?;
    String::from_utf8(bytes).map_err(|_| AuthnError::Header).and_then(plain).map(Some)
}

/// Tokens are of visible ASCII, as RFC 6750 has it: encoded ones could hold anything.
fn plain(token: String) -> Result<String, AuthnError> {
    if is_plain(&token) { Ok(token) } else { Err(AuthnError::Header) }
}

pub(super) fn is_plain(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_graphic())
}
