//! The cluster's public key infrastructure: made at the first start, loaded afterwards, renewed while running.
//!
//! Layout of the folder, as in <https://kubernetes.io/docs/setup/best-practices/certificates/>: `ca.crt/.key`
//! (signs clients and serving certificates), `front-proxy-ca.crt/.key`, `sa.key/.pub` (service-account tokens) and
//! the leaves of [`Leaf`]. Every key is EC P-256 in PKCS#8 PEM. Files are 0600 in a folder of 0700, whole or absent
//! after a power cut.
//!
//! Clocks of small machines are wrong at boot: certificates are valid from 1970 on, and count their life from
//! [`OLDEST_NOW`] at the earliest.

mod certs;
mod der;
mod files;
mod host;
mod request;
mod resolver;
mod signer;
mod tls;

#[cfg(test)]
mod tests;

pub use certs::{Leaf, SignedClient};
pub use files::{read as read_private, write_private};
pub use host::{addresses, host_name};
pub use request::{CertificateRequest, RequestError, USAGES, check_certificates};
pub use signer::ServiceAccountKey;
pub use tls::{ClientVerifier, joined_kubelet_tls};

use certs::{Authority, Issued};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Life of a certificate authority: ten years, as kubeadm's.
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Life of a leaf: one year, as kubeadm's.
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// A leaf with less than this left is replaced (a third of its life). Shorter would risk boxes that are switched on
/// a few times a year.
const RENEW_BEFORE: Duration = Duration::from_secs(365 * 24 * 3600 / 3);
/// How often a running server looks whether something must be renewed. The serving certificate is also checked at
/// every handshake, so this bounds only client certificates and new host addresses.
const CHECK_EVERY: Duration = Duration::from_secs(24 * 3600);
/// After a renewal that failed (a full disk), the old certificate serves this long before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// 2026-01-01T00:00:00Z. A clock that shows less is wrong, and no certificate's life is counted from it.
const OLDEST_NOW: i64 = 1_767_225_600;

/// The wall clock, replaceable for tests.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Where the names and addresses of this host come from, replaceable for tests.
pub type HostNames = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Clone)]
pub struct PkiOptions {
    pub node_name: String,
    /// More DNS names or IP addresses for the serving certificates.
    pub extra_names: Vec<String>,
    /// First address of the service CIDR, where pods reach the API server.
    pub service_ip: IpAddr,
    pub cluster_domain: String,
    pub clock: Clock,
    pub host_names: HostNames,
}

impl Default for PkiOptions {
    fn default() -> Self {
        Self {
            node_name: host_name(),
            extra_names: Vec::new(),
            service_ip: IpAddr::from([10, 43, 0, 1]),
            cluster_domain: "cluster.local".to_owned(),
            clock: Arc::new(Timestamp::now),
            host_names: Arc::new(host::names),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} is not what it should be: {why}")]
    Malformed { path: PathBuf, why: String },
    /// A certificate without its key. It is not replaced, because everything signed by it would become worthless.
    #[error("{path} is missing beside {beside}; restore it, or remove both to make a new one")]
    HalfMissing { path: PathBuf, beside: PathBuf },
    #[error("make certificate {name}")]
    Generate {
        name: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("set up TLS: {0}")]
    Tls(String),
}

/// See the module. One per process; share it in its `Arc`.
pub struct Pki {
    dir: PathBuf,
    options: PkiOptions,
    ca: Authority,
    front_proxy_ca: Authority,
    service_account: ServiceAccountKey,
    leaves: Vec<RwLock<Arc<Issued>>>,
    /// Serializes renewals, and holds the time before which none is tried again.
    renewal: Mutex<Timestamp>,
}

impl Pki {
    /// Loads what the folder has and makes what it lacks. Leaves that expire soon, do not match their key or authority,
    /// or lack a name are replaced; authorities and the service-account key never.
    pub fn ensure(dir: &Path, options: PkiOptions) -> Result<Arc<Self>, PkiError> {
        files::create_dir(dir)?;
        let now = (options.clock)();
        let mut new = Vec::new();
        let ca = Authority::load_or_make(dir, "ca", "kubernetes-ca", now, &mut new)?;
        let front_proxy_ca =
            Authority::load_or_make(dir, "front-proxy-ca", "kubernetes-front-proxy-ca", now, &mut new)?;
        let service_account = ServiceAccountKey::load_or_make(dir, &mut new)?;
        let mut leaves = Vec::with_capacity(Leaf::ALL.len());
        for leaf in Leaf::ALL {
            let wanted = leaf.spec(&options);
            let issued = match Issued::load(dir, leaf, &ca).filter(|i| i.satisfies(&wanted, now)) {
                Some(issued) => issued,
                None => Issued::make(leaf, &wanted, &ca, now, &mut new)?,
            };
            leaves.push(RwLock::new(Arc::new(issued)));
        }
        files::write_all(dir, &new)?;
        ca.warn_before_expiry(now);
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            options,
            ca,
            front_proxy_ca,
            service_account,
            leaves,
            renewal: Mutex::new(Timestamp::MIN),
        }))
    }

    /// PEM of the cluster's CA, for kubeconfigs and the `kube-root-ca.crt` ConfigMaps.
    pub fn ca_pem(&self) -> &str {
        &self.ca.pem
    }

    /// PEM of the authority that signs the aggregation layer's client certificates.
    pub fn front_proxy_ca_pem(&self) -> &str {
        &self.front_proxy_ca.pem
    }

    pub fn service_account_key(&self) -> &ServiceAccountKey {
        &self.service_account
    }

    pub fn clock(&self) -> &Clock {
        &self.options.clock
    }

    /// Certificate chain and private key of a leaf, both PEM, as valid now.
    pub fn leaf_pem(&self, leaf: Leaf) -> (String, String) {
        let issued = self.current(leaf);
        (issued.cert_pem.clone(), issued.key_pem.clone())
    }

    /// A client certificate with a key of its own, valid for a year: `cn` is the user, `orgs` its groups.
    pub fn sign_client(&self, cn: &str, orgs: &[&str]) -> Result<SignedClient, PkiError> {
        certs::sign_client(&self.ca, cn, orgs, (self.options.clock)())
    }

    /// As [`Self::sign_client`], by the front proxy's authority: for a proxy that says who the user is.
    pub fn sign_front_proxy(&self, cn: &str) -> Result<SignedClient, PkiError> {
        certs::sign_client(&self.front_proxy_ca, cn, &[], (self.options.clock)())
    }

    /// The leaf as it must be served now; replaces it first if it is due. A failed replacement is logged and the old
    /// one returned.
    pub(crate) fn current(&self, leaf: Leaf) -> Arc<Issued> {
        let slot = &self.leaves[leaf as usize];
        let issued = slot.read().clone();
        let now = (self.options.clock)();
        if !issued.is_due(now) {
            return issued;
        }
        if let Err(error) = self.renew(leaf, now) {
            tracing::error!(
                certificate = leaf.file(),
                error = &error as &dyn std::error::Error,
                "renewal failed"
            );
        }
        slot.read().clone()
    }

    /// Replaces every leaf that is due or lacks a name. Returns those that changed.
    pub fn check(&self) -> Result<BTreeSet<Leaf>, PkiError> {
        let now = (self.options.clock)();
        let mut changed = BTreeSet::new();
        for leaf in Leaf::ALL {
            if self.renew(leaf, now)? {
                changed.insert(leaf);
            }
        }
        Ok(changed)
    }

    fn renew(&self, leaf: Leaf, now: Timestamp) -> Result<bool, PkiError> {
        let mut not_before = self.renewal.lock();
        let slot = &self.leaves[leaf as usize];
        let wanted = leaf.spec(&self.options);
        if now < *not_before || slot.read().satisfies(&wanted, now) {
            return Ok(false);
        }
        *not_before = now
            .saturating_add(jiff::SignedDuration::try_from(RETRY_AFTER).unwrap_or_default())
            .unwrap_or(now);
        let mut new = Vec::new();
        let issued = Issued::make(leaf, &wanted, &self.ca, now, &mut new)?;
        files::write_all(&self.dir, &new)?;
        *slot.write() = Arc::new(issued);
        *not_before = Timestamp::MIN;
        tracing::info!(certificate = leaf.file(), "certificate renewed");
        Ok(true)
    }

    /// Renews until `stop`; `renewed` is called with what changed (to write the kubeconfig anew).
    pub async fn run(
        self: Arc<Self>,
        stop: CancellationToken,
        renewed: impl Fn(&Self, &BTreeSet<Leaf>) + Send,
    ) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
            match self.check() {
                Ok(changed) if changed.is_empty() => {}
                Ok(changed) => renewed(&self, &changed),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "certificate check failed");
                }
            }
        }
    }
}
