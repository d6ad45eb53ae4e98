//! Whether whoever was let in a while ago would be let in still. Watches and streams last, and end when the credential
//! that they were asked for with is taken back. One that has run out in the meantime ends nothing, as upstream: what
//! lasts is judged by the time at which it began.

use super::{Authenticator, AuthnError, PeerIdentity};
use coracle_resources::cache::{Cache, Filter, Watcher, any_changed};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// How often a webhook is asked again about what it allowed. Its answers are remembered for longer
/// (`--authentication-token-webhook-cache-ttl`), so this is what is added to that.
const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// After the end of a watch that was too slow, or shortly before the end of the process.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What showed who is asking.
#[derive(Clone)]
pub enum Proof {
    /// Nobody said who they are, or the request comes from this process.
    Nothing,
    Certificate(Arc<PeerIdentity>),
    Token(Arc<str>),
}

/// The proof behind a request that lasts. In the extensions of such requests.
#[derive(Clone)]
pub struct Standing(Arc<Inner>);

struct Inner {
    authenticator: Arc<Authenticator>,
    cache: Arc<Cache>,
    proof: Proof,
    since: Timestamp,
}

impl Standing {
    /// `None` where there is nothing that could be taken back. `cache` is the one that the authenticator reads.
    pub fn of(authenticator: &Arc<Authenticator>, cache: &Arc<Cache>, proof: Proof) -> Option<Self> {
        if matches!(proof, Proof::Nothing) {
            return None;
        }
        let (authenticator, cache) = (authenticator.clone(), cache.clone());
        let since = (authenticator.clock)();
        Some(Self(Arc::new(Inner { authenticator, cache, proof, since })))
    }

    /// Returns when the credential is taken back; never, if it is not.
    pub async fn lost(&self) {
        match &self.0.proof {
            Proof::Nothing => std::future::pending().await,
            Proof::Certificate(peer) => self.0.authenticator.until_revoked(peer).await,
            Proof::Token(token) => self.0.refused(token).await,
        }
    }
}

impl Inner {
    /// Looks again whenever one of the objects changes that the token stands on, and when others may believe it no more.
    async fn refused(&self, token: &str) {
        let mut configured = self.authenticator.reconfigured();
        loop {
            let mut watchers: Vec<Watcher> = self.objects(token);
            let foreign = watchers.is_empty();
            configured.mark_unchanged();
            if !self.authenticator.stands(token, self.since).await {
                return;
            }
            tokio::select! {
                lost = any_changed(&mut watchers), if !foreign => if lost { tokio::time::sleep(RETRY_INTERVAL).await },
                changed = configured.changed() => if changed.is_err() { std::future::pending::<()>().await },
                () = tokio::time::sleep(ASK_INTERVAL), if foreign && self.authenticator.webhook.is_some() => {}
            }
        }
    }

    fn objects(&self, token: &str) -> Vec<Watcher> {
        let objects = self.authenticator.stands_on(token).into_iter();
        let watch = |(resource, namespace, name): (&str, String, String)| {
            let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
            self.cache.watch(resource, Filter { namespace, name: Some(name), ..Filter::default() }).1
        };
        objects.map(watch).collect()
    }
}

impl Authenticator {
    /// Whether a token that was accepted then would be accepted still, whatever its end is. Nobody is refused because
    /// those who know could not be asked.
    async fn stands(&self, token: &str, since: Timestamp) -> bool {
        match self.own_token(token, self.tokens.api_audiences(), since) {
            Ok(_) => true,
            Err(AuthnError::Foreign) => self.foreign_stands(token).await,
            Err(error) => {
                tracing::debug!(%error, "a token was taken back");
                false
            }
        }
    }

    async fn foreign_stands(&self, token: &str) -> bool {
        if self.configured().issuers.claims(token) {
            return true;
        }
        let Some(webhook) = &self.webhook else { return false };
        let own = self.tokens.api_audiences();
        !matches!(webhook.authenticate(token, own, own).await, Ok(None))
    }
}
