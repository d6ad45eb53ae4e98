//! Authentication: who is asking (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/>).
//!
//! In this order: the headers of an authenticating proxy, the client certificate of the connection, a bearer token
//! (service-account JWT or bootstrap token, a JWT of a configured issuer, whatever the token webhook knows). Credentials
//! that are not accepted get 401; who brings none is `system:anonymous`, to whom upstream's default roles allow little
//! more than health and version. Requests of components in this process do not come here: they carry their [`UserInfo`]
//! as an extension.

mod anonymous;
mod bearer;
mod bootstrap_token;
pub mod claims;
mod constrained;
mod credentials;
mod front_proxy;
pub mod impersonation;
pub mod jwt;
pub mod legacy;
pub mod oidc;
pub mod revocation;
pub mod service_account;
mod signature;
mod standing;
mod token_cache;
pub mod webhook;
mod x509;

#[cfg(test)]
mod tests;

pub use anonymous::{Anonymous, is_public};
pub use claims::Reference;
pub use credentials::Credentials;
pub use impersonation::impersonate_request;
pub use service_account::{Bound, IssueRequest, Issued, Issuing, ServiceAccountTokens};
pub use standing::{Proof, Standing};
pub use x509::PROXY_NAMES;
pub use x509::PeerIdentity;

use coracle_api::identity::CREDENTIAL_ID;
use coracle_api::{ApiError, UserInfo};
use coracle_component_base::metrics::Metrics;
use coracle_pki::{Pki, PkiError};
use coracle_requests::ObjectReader;
use jiff::Timestamp;
use jwt::Issuers;
use parking_lot::RwLock;
use revocation::Revocations;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use webhook::TokenWebhook;
use x509::Verifiers;

/// Issuer of service-account tokens and the audience of the API itself.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

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
    /// Of a pod's token: whether it was to be renewed before now.
    is_stale: Option<bool>,
}

impl TokenUser {
    fn new(user: UserInfo, audiences: Vec<String>) -> Self {
        Self { user, audiences, is_stale: None }
    }
}

/// What a configuration file may change while the server runs.
#[derive(Default)]
pub struct Configured {
    pub issuers: Issuers,
    pub anonymous: Anonymous,
}

/// See the module. One per server.
pub struct Authenticator {
    verifiers: Verifiers,
    tokens: Arc<ServiceAccountTokens>,
    read: Arc<dyn ObjectReader>,
    clock: coracle_pki::Clock,
    revoked: Revocations,
    configured: RwLock<Arc<Configured>>,
    /// Changes with it.
    reconfigured: watch::Sender<()>,
    webhook: Option<TokenWebhook>,
    metrics: Arc<Metrics>,
}

/// Who is asking, and what showed it.
pub struct Known {
    pub user: UserInfo,
    pub proof: Proof,
}

impl Known {
    /// By the caller's word alone.
    pub fn unproven(user: UserInfo) -> Self {
        Self { user, proof: Proof::Nothing }
    }
}

impl Authenticator {
    pub fn new(
        pki: &Pki,
        tokens: Arc<ServiceAccountTokens>,
        read: Arc<dyn ObjectReader>,
    ) -> Result<Self, PkiError> {
        let clock = pki.clock().clone();
        let verifiers = Verifiers { clients: pki.client_verifier()?, proxies: pki.front_proxy_verifier()? };
        let (revoked, configured) = (Revocations::default(), RwLock::default());
        let (reconfigured, metrics) = (watch::Sender::default(), Arc::default());
        Ok(Self { verifiers, tokens, read, clock, revoked, configured, reconfigured, webhook: None, metrics })
    }

    /// Asks a webhook about tokens that nobody here knows.
    pub fn with_webhook(self, webhook: Option<TokenWebhook>) -> Self {
        Self { webhook, ..self }
    }

    /// Counts in the figures of a server instead of in some of its own.
    pub fn counted_in(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// The figures that it counts in.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// From the next request on. Requests under way end with what they began with; those that last, with the issuer
    /// that their token is from.
    pub fn configure(&self, configured: Configured) {
        *self.configured.write() = Arc::new(configured);
        self.reconfigured.send_replace(());
    }

    /// Tells of every [`configure`](Self::configure) from now on.
    fn reconfigured(&self) -> watch::Receiver<()> {
        self.reconfigured.subscribe()
    }

    /// What is in effect.
    pub fn configured(&self) -> Arc<Configured> {
        self.configured.read().clone()
    }

    pub fn tokens(&self) -> &Arc<ServiceAccountTokens> {
        &self.tokens
    }

    /// Judges the certificate chain of a new connection, once; keep the result with the connection. `None` if the client
    /// sent none.
    pub fn peer(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<PeerIdentity> {
        let peer = PeerIdentity::of(chain.filter(|c| !c.is_empty())?, &self.verifiers);
        if let Some(left) = peer.time_left((self.clock)()) {
            self.metrics.certificate_left(left);
        }
        Some(peer)
    }

    /// The user behind a request, before impersonation; an error is always a 401.
    ///
    /// A bearer token that is refused ends it even where anybody may go, as upstream; a certificate wins over a token.
    /// Only a token that has to be asked of somebody else waits.
    pub async fn authenticate(
        &self,
        peer: Option<&Arc<PeerIdentity>>,
        said: &Credentials,
        path: &str,
    ) -> Result<Known, ApiError> {
        self.identify(peer, said, path).await.map_err(|error| {
            if error != AuthnError::Missing {
                tracing::debug!(%error, "unauthenticated");
            }
            ApiError::unauthorized()
        })
    }

    async fn identify(
        &self,
        peer: Option<&Arc<PeerIdentity>>,
        said: &Credentials,
        path: &str,
    ) -> Result<Known, AuthnError> {
        let refused = match peer.map(|peer| (peer, self.certified(peer, said))) {
            Some((peer, Ok(user))) => return Ok(Known { user, proof: Proof::Certificate(peer.clone()) }),
            Some((_, Err(error))) => Some(error),
            None => None,
        };
        match (said.bearer.as_ref().map_err(AuthnError::clone)?, refused) {
            (Some(token), _) => {
                // What is seldom taken must not make every request's future large.
                let user = Box::pin(self.token(token, &[])).await?.user;
                Ok(Known { user, proof: Proof::Token(token.as_str().into()) })
            }
            (None, Some(error)) => Err(error),
            (None, None) if self.configured().anonymous.may_ask(path) => {
                Ok(Known::unproven(UserInfo::anonymous()))
            }
            (None, None) => Err(AuthnError::Missing),
        }
    }

    /// Waits until one of the certificates of a connection is revoked, or the authority behind them is dropped.
    pub async fn until_revoked(&self, peer: &PeerIdentity) {
        tokio::select! {
            () = self.revoked.covered(peer.chain(), &*self.read) => {}
            () = peer.forsaken(&self.verifiers) => {}
        }
    }

    /// Whether this extra information of a user has the credential id of a revoked certificate: others, who know users
    /// by certificates, ask here what they may.
    pub fn is_revoked(&self, extra: &Value) -> bool {
        let ids = extra[CREDENTIAL_ID].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.revoked.cover_id(ids, &*self.read)
    }

    /// The list of revoked certificates is another one.
    fn revocations_changed(&self) {
        self.revoked.tell();
    }

    /// The user of a connection's certificate, or whom the proxy that holds it names.
    fn certified(&self, peer: &PeerIdentity, said: &Credentials) -> Result<UserInfo, AuthnError> {
        if self.revoked.cover(peer.chain(), &*self.read) {
            return Err(AuthnError::Certificate("it was revoked".to_owned()));
        }
        if peer.is_forsaken(&self.verifiers) {
            return Err(AuthnError::Certificate("its authority is not trusted any more".to_owned()));
        }
        let now = (self.clock)();
        match said.proxied.as_ref().filter(|_| peer.is_proxy(now)) {
            Some(user) => Ok(user.clone()),
            None => peer.user(now),
        }
    }

    /// The user of a bearer token that is for one of `audiences` (none: for the API itself). Also what TokenReview asks.
    pub async fn token(&self, token: &str, audiences: &[String]) -> Result<TokenUser, AuthnError> {
        if !bearer::is_plain(token) {
            return Err(AuthnError::Foreign);
        }
        let asked = if audiences.is_empty() { self.tokens.api_audiences() } else { audiences };
        let mut found = match self.own_token(token, asked, (self.clock)()) {
            Ok(found) => found,
            Err(error) => self.foreign_token(token, asked, error).await?,
        };
        let everyone = "system:authenticated";
        if !found.user.in_group(everyone) {
            found.user.groups.push(everyone.to_owned());
        }
        Ok(found)
    }

    /// The objects that a token of our own is good as long as: by resource, namespace and name.
    fn stands_on(&self, token: &str) -> Vec<(&'static str, String, String)> {
        match bootstrap_token::looks_like_one(token) {
            true => vec![bootstrap_token::object_of(token)],
            false => self.tokens.stands_on(token),
        }
    }

    /// Tokens that were made here.
    fn own_token(&self, token: &str, asked: &[String], now: Timestamp) -> Result<TokenUser, AuthnError> {
        let found = if bootstrap_token::looks_like_one(token) {
            let audiences = self.for_the_api(asked).ok_or_else(|| {
                let own = self.tokens.api_audiences();
                AuthnError::Token(format!("bootstrap tokens are for {own:?}, not for {asked:?}"))
            });
            audiences.and_then(|audiences| {
                let found = bootstrap_token::authenticate(token, self.read.as_ref(), now);
                found.map(|found| TokenUser { audiences, ..found }).map_err(AuthnError::Token)
            })
        } else {
            self.tokens.verify(token, asked, self.read.as_ref(), now).map_err(AuthnError::Token)
        };
        if let Some(is_stale) = found.as_ref().ok().and_then(|found| found.is_stale) {
            self.metrics.pod_token(is_stale);
        }
        found.map_err(|error| if self.tokens.is_own(token) { error } else { AuthnError::Foreign })
    }

    /// Tokens that others made: configured issuers, then the webhook. `error` says why it is none of ours.
    async fn foreign_token(
        &self,
        token: &str,
        asked: &[String],
        error: AuthnError,
    ) -> Result<TokenUser, AuthnError> {
        let mut error = error;
        let configured = self.configured();
        match configured.issuers.authenticate(token, (self.clock)()).await {
            // Such tokens name no audience of the API's: whoever believes the issuer believes them for the API alone.
            Some(Ok(user)) => match self.for_the_api(asked) {
                Some(audiences) => return Ok(TokenUser::new(user, audiences)),
                None => error = AuthnError::Token(format!("the token is not for {asked:?}")),
            },
            Some(Err(why)) => error = AuthnError::Token(why),
            None => {}
        }
        let Some(webhook) = &self.webhook else { return Err(error) };
        match webhook.authenticate(token, asked, self.tokens.api_audiences()).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(error),
            Err(why) => Err(AuthnError::Token(why)),
        }
    }

    /// What of `asked` are the API's own audiences: all that a token is for which names none. `None` if there are none.
    fn for_the_api(&self, asked: &[String]) -> Option<Vec<String>> {
        let own = self.tokens.api_audiences();
        let shared: Vec<String> = asked.iter().filter(|a| own.contains(a)).cloned().collect();
        (!shared.is_empty()).then_some(shared)
    }
}
