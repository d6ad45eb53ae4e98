//! Authentication: who is asking (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/>).
//!
//! In this order: the headers of an authenticating proxy, the client certificate of the connection, a bearer token
//! (service-account JWT or bootstrap token). Credentials that are not accepted get 401; who brings none is
//! `system:anonymous`, to whom upstream's default roles allow little more than health and version. Requests of components
//! in this process do not come here: they carry their [`UserInfo`] as an extension.

mod bootstrap_token;
pub mod claims;
mod constrained;
mod front_proxy;
pub mod impersonation;
pub mod legacy;
pub mod oidc;
pub mod service_account;
mod token_cache;
mod x509;

#[cfg(test)]
mod tests;

pub use claims::Reference;
pub use impersonation::{asks_to_impersonate, impersonate, impersonate_request};
pub use service_account::{Bound, IssueRequest, Issued, Issuing, ServiceAccountTokens};
pub(crate) use x509::PROXY_NAMES;
pub use x509::PeerIdentity;

use crate::metrics;
use crate::pki::{Pki, PkiError};
use crate::strategy::Reader;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coracle_api::{ApiError, UserInfo};
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use token_cache::TokenCache;
use x509::Verifiers;

/// Issuer of service-account tokens and the audience of the API itself.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Where browsers put a bearer token, because they cannot set headers on WebSockets.
const WEBSOCKET_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// Why credentials were not accepted. The client only ever reads 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthnError {
    #[error("no credentials")]
    Missing,
    #[error("client certificate: {0}")]
    Certificate(String),
    #[error("{0}")]
    Token(String),
    /// A token that no issuer here has made, as far as can be seen.
    #[error("unknown token")]
    Foreign,
    #[error("malformed Authorization header")]
    Header,
}

/// An accepted bearer token.
#[derive(Clone, Debug)]
pub struct TokenUser {
    pub user: UserInfo,
    /// Those of the asked audiences that the token is for.
    pub audiences: Vec<String>,
}

/// See the module. One per server.
pub struct Authenticator {
    verifiers: Verifiers,
    tokens: Arc<ServiceAccountTokens>,
    read: Arc<dyn Reader>,
    cache: TokenCache,
    clock: crate::pki::Clock,
    anonymous: bool,
}

impl Authenticator {
    pub fn new(
        pki: &Pki,
        tokens: Arc<ServiceAccountTokens>,
        read: Arc<dyn Reader>,
    ) -> Result<Self, PkiError> {
        let clock = pki.clock().clone();
        let verifiers = Verifiers { clients: pki.client_verifier()?, proxies: pki.front_proxy_verifier()? };
        Ok(Self { verifiers, tokens, read, cache: TokenCache::new(), clock, anonymous: true })
    }

    /// `--anonymous-auth=false`: who brings no credentials gets 401, but on [`is_public`] paths.
    pub fn without_anonymous(self) -> Self {
        Self { anonymous: false, ..self }
    }

    pub fn tokens(&self) -> &Arc<ServiceAccountTokens> {
        &self.tokens
    }

    /// Judges the certificate chain of a new connection, once; keep the result with the connection. `None` if the client
    /// sent none.
    pub fn peer(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<PeerIdentity> {
        let peer = PeerIdentity::of(chain.filter(|c| !c.is_empty())?, &self.verifiers);
        if let Some(left) = peer.time_left((self.clock)()) {
            metrics::global().certificate_left(left);
        }
        Some(peer)
    }

    /// The user behind a request, before impersonation; an error is always a 401.
    ///
    /// A bearer token that is refused ends it even where anybody may go, as upstream; a certificate wins over a token.
    pub fn authenticate(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<UserInfo, ApiError> {
        self.identify(peer, headers, path).map_err(|error| {
            if error != AuthnError::Missing {
                tracing::debug!(%error, "unauthenticated");
            }
            ApiError::unauthorized()
        })
    }

    fn identify(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<UserInfo, AuthnError> {
        let mut refused = None;
        if let Some(peer) = peer {
            let now = (self.clock)();
            if let Some(user) = front_proxy::user(headers).filter(|_| peer.is_proxy(now)) {
                return Ok(user);
            }
            match peer.user(now) {
                Ok(user) => return Ok(user),
                Err(error) => refused = Some(error),
            }
        }
        match bearer(headers)? {
            Some(token) => self.token(&token, &[]).map(|found| found.user),
            None => match refused {
                Some(error) => Err(error),
                None if self.anonymous || is_public(path) => Ok(UserInfo::anonymous()),
                None => Err(AuthnError::Missing),
            },
        }
    }

    /// The user of a bearer token that is for one of `audiences` (none: for the API itself). Also what TokenReview asks.
    pub fn token(&self, token: &str, audiences: &[String]) -> Result<TokenUser, AuthnError> {
        let now = (self.clock)();
        if let Some(found) = self.cache.get(token, audiences) {
            return Ok(found);
        }
        let found = if bootstrap_token::looks_like_one(token) {
            self.bootstrap_token(token, audiences, now)
        } else {
            self.tokens.verify(token, audiences, self.read.as_ref(), now)
        };
        let mut found = found.map_err(|why| match self.tokens.is_own(token) {
            true => AuthnError::Token(why),
            false => AuthnError::Foreign,
        })?;
        let everyone = "system:authenticated";
        if !found.user.in_group(everyone) {
            found.user.groups.push(everyone.to_owned());
        }
        self.cache.put(token, audiences, &found);
        Ok(found)
    }
}

/// Paths that answer without credentials even where anonymous requests are off: health and version. Authorization still
/// sees `system:anonymous`.
pub fn is_public(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    let health =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    path == "/version" || ["/livez", "/readyz", "/healthz"].into_iter().any(health)
}

impl Authenticator {
    /// Such tokens name no audience: they are for the API, and for nobody else.
    fn bootstrap_token(
        &self,
        token: &str,
        audiences: &[String],
        now: jiff::Timestamp,
    ) -> Result<TokenUser, String> {
        let own = self.tokens.api_audiences();
        let asked = if audiences.is_empty() { own } else { audiences };
        let shared: Vec<String> = asked.iter().filter(|a| own.contains(a)).cloned().collect();
        if shared.is_empty() {
            return Err(format!("bootstrap tokens are for {own:?}, not for {asked:?}"));
        }
        let found = bootstrap_token::authenticate(token, self.read.as_ref(), now)?;
        Ok(TokenUser { audiences: shared, ..found })
    }
}

/// The token of the `Authorization` header, else of the WebSocket protocols. As upstream's parser, other schemes and
/// empty tokens count as no credentials, and what follows a token in the header is no part of it.
fn bearer(headers: &HeaderMap) -> Result<Option<String>, AuthnError> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = value.to_str().map_err(|_| AuthnError::Header)?;
        let mut parts = text.trim().split(' ');
        let bearer = parts.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
        if let Some(token) = parts.next().filter(|token| bearer && !token.is_empty()) {
            return Ok(Some(token.to_owned()));
        }
    }
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    let mut tokens =
        protocols.flat_map(|v| v.split(',')).filter_map(|p| p.trim().strip_prefix(WEBSOCKET_TOKEN));
    let Some(encoded) = tokens.next().filter(|token| !token.is_empty()) else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| AuthnError::Header)?;
    String::from_utf8(bytes).map(Some).map_err(|_| AuthnError::Header)
}
