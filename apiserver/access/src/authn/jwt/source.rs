//! Where an issuer's keys come from: OpenID Connect Discovery 1.0, in the background.

use super::config::Issuer;
use super::figures::Figures;
use super::keys::Keys;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde::Deserialize;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Between attempts to reach an issuer whose keys are not there yet: upstream's.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// After so long the keys are fetched again, so that one that was taken back is believed no longer; upstream waits for
/// a token with an unknown key, and keeps the others for ever.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);
/// Fetches that tokens with unknown keys may cause at once, and the time after which there is another one: whoever makes
/// such tokens up must not have the issuer asked by each.
const FETCHES: u32 = 5;
const FETCH_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long a request waits for newer keys.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whoever gets documents over HTTPS, in bounded time and size.
pub trait Web: Send + Sync + 'static {
    /// `roots`: whom to believe (PEM), without them the machine's own.
    fn get<'a>(&'a self, url: &'a str, roots: Option<&'a [u8]>) -> BoxFuture<'a, Result<Bytes, String>>;
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// What makes a fetch other than another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    issuer: String,
    discovery: String,
    roots: String,
}

/// How many more fetches tokens may cause.
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn take(&mut self) -> bool {
        let now = Instant::now();
        while self.left < FETCHES && now.duration_since(self.since) >= FETCH_RETRY_INTERVAL {
            self.left += 1;
            self.since += FETCH_RETRY_INTERVAL;
        }
        if self.left == FETCHES {
            self.since = now;
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }
}

/// The keys of one issuer: none until it was reached for the first time. Its task ends with the last holder.
pub struct Source {
    address: Address,
    web: Arc<dyn Web>,
    figures: Arc<Figures>,
    keys: RwLock<Option<Arc<Keys>>>,
    /// Held while keys are fetched.
    fetching: Mutex<Allowance>,
}

impl Source {
    /// Begins to fetch, within a runtime.
    pub fn start(issuer: &Issuer, web: Arc<dyn Web>, figures: Arc<Figures>) -> Arc<Self> {
        let source = Arc::new(Self {
            address: address(issuer),
            web,
            figures,
            keys: RwLock::default(),
            fetching: Mutex::new(Allowance { left: FETCHES, since: Instant::now() }),
        });
        tokio::spawn(maintain(Arc::downgrade(&source)));
        source
    }

    /// Whether this source is the one of that issuer too.
    pub fn is_of(&self, issuer: &Issuer) -> bool {
        self.address == address(issuer)
    }

    pub fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.read().clone()
    }

    /// The keys after a token came whose key is not among `known`: newer ones, if others have fetched them meanwhile or
    /// if a fetch is allowed. Otherwise, and where the issuer does not answer in time, what is there.
    pub async fn newer(&self, known: &Arc<Keys>) -> Option<Arc<Keys>> {
        let fetch = async {
            let mut allowance = self.fetching.lock().await;
            let is_newer = self.keys().is_some_and(|keys| !Arc::ptr_eq(&keys, known));
            if !is_newer && allowance.take() {
                self.fetch().await;
            }
        };
        if tokio::time::timeout(WAIT_TIMEOUT, fetch).await.is_err() {
            tracing::warn!(issuer = self.address.issuer, "no newer keys in time");
        }
        self.keys()
    }

    /// Whether there are new keys; the old ones stay otherwise. The caller holds `fetching`.
    async fn fetch(&self) -> bool {
        match self.fetched().await {
            Ok((keys, document)) => {
                tracing::debug!(issuer = self.address.issuer, keys = keys.len(), "keys fetched");
                self.figures.fetched(&self.address.issuer, Some(&document));
                *self.keys.write() = Some(Arc::new(keys));
                true
            }
            Err(error) => {
                self.figures.fetched(&self.address.issuer, None);
                tracing::error!(issuer = self.address.issuer, error, "fetching the keys of a token issuer");
                false
            }
        }
    }

    async fn fetched(&self) -> Result<(Keys, Bytes), String> {
        let Address { issuer, discovery, roots } = &self.address;
        let roots = Some(roots.as_bytes()).filter(|roots| !roots.is_empty());
        let document = self.web.get(discovery, roots).await?;
        let found: Discovery = serde_json::from_slice(&document)
            .map_err(|e| format!("{discovery}: no discovery document: {e}"))?;
        if found.issuer != *issuer {
            return Err(format!(
                "issuer did not match the issuer returned by provider, expected {issuer:?} got {:?}",
                found.issuer
            ));
        }
        let document = self.web.get(&found.jwks_uri, roots).await?;
        let keys = Keys::parse(&document).map_err(|why| format!("{}: {why}", found.jwks_uri))?;
        Ok((keys, document))
    }
}

fn address(issuer: &Issuer) -> Address {
    let discovery = match issuer.discovery_url.as_str() {
        "" => format!("{}{WELL_KNOWN}", issuer.url.trim_end_matches('/')),
        other => other.to_owned(),
    };
    Address { issuer: issuer.url.clone(), discovery, roots: issuer.certificate_authority.clone() }
}

async fn maintain(source: Weak<Source>) {
    loop {
        let Some(alive) = source.upgrade() else { return };
        let fetched = {
            let _held = alive.fetching.lock().await;
            alive.fetch().await
        };
        let pause = if fetched || alive.keys().is_some() { REFRESH_INTERVAL } else { RETRY_INTERVAL };
        drop(alive);
        tokio::time::sleep(pause).await;
    }
}
