//! Tokens of other issuers: OpenID Connect ID tokens and the like, by `--authentication-config` or `--oidc-*`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#openid-connect-tokens>).
//!
//! A document is parsed (`config`), checked and compiled (`validation`), and becomes [`Issuers`]. Each issuer's keys are
//! fetched in the background (`source`); a token is checked against them (`keys`, `issuer`) and its claims become a user
//! (`mapping`, `expression`). An issuer that is away refuses its own tokens and holds up nobody else's.

pub mod config;
mod expression;
mod figures;
mod issuer;
mod keys;
mod mapping;
mod source;
pub mod validation;

#[cfg(test)]
mod signing;
#[cfg(test)]
mod tests;

pub use config::AuthenticationConfiguration;
pub use jsonwebtoken::Algorithm;
pub use keys::ALGORITHMS;
pub use source::Web;

use super::token_cache::{TokenCache, key};
use super::{Anonymous, Configured};
use bytes::Bytes;
use coracle_api::UserInfo;
use coracle_component_base::metrics::Metrics;
use coracle_webhook as webhook;
use figures::Figures;
use futures::FutureExt;
use futures::future::BoxFuture;
use issuer::Issuer;
use jiff::Timestamp;
use source::Source;
use std::sync::Arc;
use std::time::{Duration, Instant};
use validation::Compiled;

/// For one document, and its largest size in bytes: a set has a few keys of half a KiB.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
const DOCUMENT_BYTES: usize = 1 << 20;
/// How long a token's user is remembered: upstream's ten seconds. Beyond the token's own end it never is.
const REMEMBER_TTL: Duration = Duration::from_secs(10);
/// Longer tokens are refused unread. Providers put hundreds of groups into some.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// [`Web`] as it is.
pub struct Https;

impl Web for Https {
    fn get<'a>(&'a self, url: &'a str, roots: Option<&'a [u8]>) -> BoxFuture<'a, Result<Bytes, String>> {
        webhook::get(url, roots, DOCUMENT_BYTES, FETCH_TIMEOUT)
            .map(|got| got.map_err(|e| e.to_string()))
            .boxed()
    }
}

/// A user, and the second since 1970 from which the token is good no more.
type Known = Arc<(UserInfo, i64)>;

/// All issuers of one configuration.
pub struct Issuers {
    issuers: Vec<Issuer>,
    known: TokenCache<Known>,
    /// `None` before the first configuration with issuers.
    figures: Option<Arc<Figures>>,
}

impl Default for Issuers {
    fn default() -> Self {
        Self { issuers: Vec::new(), known: TokenCache::new(Some(REMEMBER_TTL)), figures: None }
    }
}

impl Issuers {
    /// Begins to fetch keys, within a runtime. An issuer that is found where it was in `before` keeps its keys.
    /// `algorithms` are believed: some of [`ALGORITHMS`].
    pub fn start(
        compiled: Vec<Compiled>,
        algorithms: &[Algorithm],
        before: &Self,
        web: &Arc<dyn Web>,
        metrics: &Metrics,
    ) -> Self {
        // Shown from the first issuer on.
        let shown = || (!compiled.is_empty()).then(|| Figures::shown(metrics));
        let figures = before.figures.clone().or_else(shown);
        let start = |compiled: Compiled| {
            let known = before.issuers.iter().find(|issuer| issuer.source.is_of(&compiled.issuer));
            let source = match known {
                Some(known) => known.source.clone(),
                None => Source::start(&compiled.issuer, web.clone(), figures.clone().unwrap_or_default()),
            };
            Issuer { compiled, source, algorithms: algorithms.to_vec() }
        };
        let issuers = compiled.into_iter().map(start).collect();
        Self { issuers, figures, ..Self::default() }
    }

    /// Whether the token says that it is of one of the issuers; nothing is checked.
    pub(super) fn claims(&self, token: &str) -> bool {
        let claimed = issuer::claimed(token);
        claimed.is_some_and(|url| self.issuers.iter().any(|one| one.compiled.issuer.url == url))
    }

    /// The user of a token of one of the issuers; `None` for tokens of others.
    pub async fn authenticate(&self, token: &str, now: Timestamp) -> Option<Result<UserInfo, String>> {
        if self.issuers.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let issuer = issuer::claimed(token)?;
        let issuer = self.issuers.iter().find(|one| one.compiled.issuer.url == issuer)?;
        let key = key([token]);
        if let Some(known) = self.known.get(&key)
            && now.as_second() < known.1
        {
            return Some(Ok(known.0.clone()));
        }
        let began = Instant::now();
        let found = issuer.authenticate(token, now).await;
        if let Some(figures) = &self.figures {
            figures.checked(&issuer.compiled.issuer.url, found.is_ok(), began.elapsed());
        }
        Some(found.map(|(user, until)| {
            self.known.put(key, Arc::new((user.clone(), until)));
            user
        }))
    }
}

/// A configuration that may be put into effect.
pub struct Checked {
    compiled: Vec<Compiled>,
    algorithms: Vec<Algorithm>,
    /// `None` where the document says nothing of it.
    pub anonymous: Option<Anonymous>,
}

impl Checked {
    /// `disallowed`: the issuers of service accounts. `algorithms`: which signatures are believed.
    ///
    /// # Errors
    /// All mistakes, each with its field.
    pub fn new(
        config: &AuthenticationConfiguration,
        disallowed: &[String],
        algorithms: &[Algorithm],
    ) -> Result<Self, Vec<String>> {
        let compiled = validation::compile(config, disallowed);
        let compiled = compiled.map_err(|errors| {
            errors.iter().map(|error| format!("{}: {}", error.field, error.detail)).collect::<Vec<_>>()
        })?;
        let anonymous = config.anonymous.as_ref().map(|said| match said {
            said if !said.enabled => Anonymous::Nowhere,
            said if said.conditions.is_empty() => Anonymous::Everywhere,
            said => Anonymous::Paths(said.conditions.iter().map(|one| one.path.clone()).collect()),
        });
        Ok(Self { compiled, algorithms: algorithms.to_vec(), anonymous })
    }

    /// What to give to [`super::Authenticator::configure`], within a runtime; `anonymous` counts where the document says
    /// nothing of it.
    pub fn start(
        self,
        before: &Configured,
        anonymous: Anonymous,
        web: &Arc<dyn Web>,
        metrics: &Metrics,
    ) -> Configured {
        let issuers = Issuers::start(self.compiled, &self.algorithms, &before.issuers, web, metrics);
        Configured { issuers, anonymous: self.anonymous.unwrap_or(anonymous) }
    }
}
