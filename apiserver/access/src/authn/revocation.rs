//! Client certificates that are good no more, although they have not expired: a ConfigMap of the cluster names them by
//! the digest of each. It is looked at on every request, so that an entry takes effect at once, on connections that
//! stand too.

use super::Authenticator;
use coracle_requests::ObjectReader;
use coracle_resources::cache::{Cache, Filter};
use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// After the end of a watch that was too slow, or shortly before the end of the process.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Where revoked certificates are named. Each key of its data is the SHA-256 of a certificate's DER in lower-case
/// hexadecimal digits; the values are for people.
pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "coracle-revoked-certificates";

/// What credential ids of certificates begin with.
pub(super) const CREDENTIAL: &str = "X509SHA256=";

/// The SHA-256 of a certificate's DER.
pub(super) type Fingerprint = [u8; 32];

pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    Sha256::digest(certificate).into()
}

/// As keys of the ConfigMap and credential ids write it.
pub(super) fn hex(fingerprint: &Fingerprint) -> String {
    coracle_api::hex::text(fingerprint)
}

/// What the ConfigMap said when ConfigMaps last changed.
#[derive(Default)]
pub(super) struct Revocations {
    read_at: RwLock<(Option<u64>, Arc<HashSet<String>>)>,
    /// Changes with the list, where somebody [follows](follow) it.
    changed: watch::Sender<()>,
}

impl Revocations {
    /// Whether one of these certificates was revoked.
    pub fn cover(&self, chain: &[Fingerprint], read: &dyn ObjectReader) -> bool {
        let revoked = self.current(read);
        !revoked.is_empty() && chain.iter().any(|one| revoked.contains(&hex(one)))
    }

    /// Whether one of these credential ids, as [`coracle_api::identity::CREDENTIAL_ID`] has them, is a revoked
    /// certificate's.
    pub fn cover_id<'a>(&self, ids: impl IntoIterator<Item = &'a str>, read: &dyn ObjectReader) -> bool {
        let revoked = self.current(read);
        ids.into_iter().filter_map(|id| id.strip_prefix(CREDENTIAL)).any(|id| revoked.contains(id))
    }

    /// Waits until [`cover`](Self::cover) holds.
    pub async fn covered(&self, chain: &[Fingerprint], read: &dyn ObjectReader) {
        let mut changed = self.changed.subscribe();
        while !self.cover(chain, read) {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Wakes those who wait.
    pub fn tell(&self) {
        self.changed.send_replace(());
    }

    /// The list is read again whenever any ConfigMap has changed, or always where nobody can say whether one has. The
    /// number of the last change is taken first: a change in between is seen by the next request.
    fn current(&self, read: &dyn ObjectReader) -> Arc<HashSet<String>> {
        let changed = read.changed_at("configmaps.");
        {
            let last = self.read_at.read();
            if changed.is_some() && last.0 == changed {
                return last.1.clone();
            }
        }
        let list = read.get("configmaps.", NAMESPACE, NAME);
        let data = list.as_ref().and_then(|list| list["data"].as_object());
        let found = data.map(|data| data.keys().map(|key| key.to_ascii_lowercase()).collect());
        let found = Arc::new(found.unwrap_or_default());
        *self.read_at.write() = (changed, Arc::clone(&found));
        found
    }
}

/// Ends what lasts and was asked for with a certificate that is revoked, until `stop`.
pub async fn follow(authenticator: Arc<Authenticator>, cache: Arc<Cache>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let filter = Filter {
            namespace: Some(NAMESPACE.to_owned()),
            name: Some(NAME.to_owned()),
            ..Filter::default()
        };
        let (_, mut watcher) = cache.watch("configmaps.", filter);
        authenticator.revocations_changed();
        while let Some(Some(_)) = stop.run_until_cancelled(watcher.next()).await {
            authenticator.revocations_changed();
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await;
    }
}
