//! The cluster's public key infrastructure: made at the first start, loaded afterwards, renewed while running.
//!
//! Layout of the folder, as in <https://kubernetes.io/docs/setup/best-practices/certificates/>: `ca.crt/.key`
//! (signs clients and the API server's own certificate), `kubelet-serving-ca.crt/.key` (signs what kubelets' ports serve),
//! `front-proxy-ca.crt/.key`, `sa.key/.pub` (service-account tokens) and the leaves of [`Leaf`]. Every key is EC P-256 in PKCS#8 PEM. Files are 0600 in a folder of 0700, whole or absent
//! after a power cut.
//!
//! Clocks of small machines are wrong at boot: certificates are valid from 1970 on, and count their life from
//! [`OLDEST_NOW`] at the earliest.

mod certs;
mod der;
mod files;
mod host;
pub mod kubeconfig;
mod pair;
mod request;
mod resolver;
mod signer;
mod tls;
mod trust;

#[cfg(test)]
mod tests;

pub use certs::{ADMIN, ADMINS, KUBELET_CLIENT, Leaf, SignedClient};
pub use files::{read as read_private, write_private};
pub use host::{addresses, host_name};
pub use pair::key_pair_mistake;
pub use request::{
    CertificateRequest, RequestError, Signer, SigningAuthority, USAGES, check_certificates, pem_of,
    seconds_of_life,
};
pub use signer::ServiceAccountKey;
pub use tls::{ClientVerifier, authorities, joined_kubelet_tls};
pub use trust::{AuthorityId, Stage};

use certs::{Authority, Issued, Spec};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trust::{Authorities, Trust};

/// The group whose members nothing is denied to, as their certificates name it.
pub const MASTERS: &str = "system:masters";
/// Life of a certificate authority: ten years, as kubeadm's.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Life of a leaf: one year, as kubeadm's.
const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Life of the administrator's certificate, whose file is copied to where people work: a week, half of which passes
/// before it is renewed, so that a copy that was lost is worth little for long, and one of today lasts a working week.
const ADMIN_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a running server looks whether something is due: the longest that an administrator's kubeconfig is of no
/// use after the clock was set forward by a week. A look compares four numbers.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// How often it also asks the host for its names and addresses.
const CHECK_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// The authorities' files, without extension, and the names in their certificates.
const CLUSTER_CA: (&str, &str) = ("ca", "kubernetes-ca");
const KUBELET_CA: (&str, &str) = ("kubelet-serving-ca", "kubernetes-kubelet-serving-ca");
const FRONT_PROXY_CA: (&str, &str) = ("front-proxy-ca", "kubernetes-front-proxy-ca");
/// A file of this name in the folder asks for new leaves; the server takes it away when they are there.
pub const RENEW_REQUEST: &str = "renew";
/// After a renewal that failed (a full disk), the old certificate serves this long before the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
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
    /// In the place of those in `options`, since [`Pki::be_known_as`].
    extra_names: RwLock<Vec<String>>,
    trust: Arc<Trust>,
    service_account: ServiceAccountKey,
    leaves: Vec<RwLock<Arc<Issued>>>,
    /// Serializes renewals, and holds the time before which none is tried again.
    renewal: Mutex<Timestamp>,
    /// Renewals of the certificate of port 10250 that failed.
    kubelet_failures: AtomicU64,
}

impl Pki {
    /// Loads what the folder has and makes what it lacks. Leaves that expire soon, do not match their key or authority,
    /// or lack a name are replaced; authorities and the service-account key never.
    pub fn ensure(dir: &Path, options: PkiOptions) -> Result<Arc<Self>, PkiError> {
        files::create_dir(dir)?;
        let now = (options.clock)();
        let mut new = Vec::new();
        let all = Authorities::load(dir, now, &mut new)?;
        let service_account = ServiceAccountKey::load_or_make(dir, &mut new)?;
        let mut leaves = Vec::with_capacity(Leaf::ALL.len());
        for leaf in Leaf::ALL {
            let wanted = leaf.spec(&options);
            let authority = authority_of(leaf, &all);
            let stored = Issued::load(dir, leaf, authority);
            stored.iter().for_each(|stored| warn_of_master(leaf, stored, now));
            let issued = match stored.filter(|i| i.satisfies(&wanted, now)) {
                Some(issued) => issued,
                None => Issued::make(leaf, &wanted, authority, now, &mut new)?,
            };
            leaves.push(RwLock::new(Arc::new(issued.with_chain(beside(leaf, &all)))));
        }
        files::write_all(dir, &new)?;
        all.cluster.signer.warn_before_expiry(now);
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            extra_names: RwLock::new(options.extra_names.clone()),
            options,
            trust: Trust::new(all),
            service_account,
            leaves,
            renewal: Mutex::new(Timestamp::MIN),
            kubelet_failures: AtomicU64::default(),
        }))
    }

    /// PEM of the cluster's CA, for kubeconfigs and the `kube-root-ca.crt` ConfigMaps: all that are trusted while it is
    /// replaced, the one that signs first.
    pub fn ca_pem(&self) -> String {
        self.trust.now().cluster.bundle()
    }

    /// [`ca_pem`](Self::ca_pem), and word of its changes.
    pub fn ca_changes(&self) -> watch::Receiver<String> {
        self.trust.changes()
    }

    /// PEM of the authority that signs the aggregation layer's client certificates.
    pub fn front_proxy_ca_pem(&self) -> String {
        self.trust.now().front_proxy.bundle()
    }

    /// PEM of the authority of kubelets' ports, for who asks kubelets himself.
    pub fn kubelet_ca_pem(&self) -> String {
        self.trust.now().kubelet.bundle()
    }

    /// The names and addresses of the API server now, which its certificate has or gets within a day.
    pub fn server_names(&self) -> BTreeSet<String> {
        certs::server_names(&self.wanted())
    }

    /// What leaves must say now.
    fn wanted(&self) -> PkiOptions {
        PkiOptions { extra_names: self.extra_names.read().clone(), ..self.options.clone() }
    }

    /// From now on the serving certificates have these in the place of the [`PkiOptions::extra_names`] that they had, and the
    /// host's names and addresses of now. Returns the leaves that were replaced for it.
    ///
    /// # Errors
    /// As of [`Self::check`], which tries again.
    pub fn be_known_as(&self, extra_names: Vec<String>) -> Result<BTreeSet<Leaf>, PkiError> {
        *self.extra_names.write() = extra_names;
        self.check()
    }

    /// SHA-256 of a leaf's DER, in lowercase hex.
    pub fn leaf_fingerprint(&self, leaf: Leaf) -> String {
        self.current(leaf).fingerprint()
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
        certs::sign_client(&self.trust.now().cluster.signer, cn, orgs, LEAF_LIFETIME, (self.options.clock)())
    }

    /// As [`Self::sign_client`], by the front proxy's authority: for a proxy that says who the user is.
    pub fn sign_front_proxy(&self, cn: &str) -> Result<SignedClient, PkiError> {
        certs::sign_client(
            &self.trust.now().front_proxy.signer,
            cn,
            &[],
            LEAF_LIFETIME,
            (self.options.clock)(),
        )
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
        let wanted = leaf.spec(&self.wanted());
        if now < *not_before || slot.read().satisfies(&wanted, now) {
            return Ok(false);
        }
        let replaced = self.replace_slot(leaf, &wanted, now, &mut not_before);
        if replaced.is_err() && leaf == Leaf::Kubelet {
            self.kubelet_failures.fetch_add(1, Ordering::Relaxed);
        }
        replaced.map(|()| true)
    }

    /// Replaces a leaf that is good yet, as when it was revoked. The old one is not taken back by this.
    pub fn replace(&self, leaf: Leaf) -> Result<(), PkiError> {
        let mut not_before = self.renewal.lock();
        self.replace_slot(leaf, &leaf.spec(&self.wanted()), (self.options.clock)(), &mut not_before)
    }

    fn replace_slot(
        &self,
        leaf: Leaf,
        wanted: &Spec,
        now: Timestamp,
        not_before: &mut Timestamp,
    ) -> Result<(), PkiError> {
        *not_before = now
            .saturating_add(jiff::SignedDuration::try_from(RETRY_INTERVAL).unwrap_or_default())
            .unwrap_or(now);
        let mut new = Vec::new();
        let all = self.trust.now();
        let issued = Issued::make(leaf, wanted, authority_of(leaf, &all), now, &mut new)?;
        files::write_all(&self.dir, &new)?;
        *self.leaves[leaf as usize].write() = Arc::new(issued.with_chain(beside(leaf, &all)));
        *not_before = Timestamp::MIN;
        tracing::info!(certificate = leaf.file(), "certificate renewed");
        Ok(())
    }

    /// Replaces every leaf if somebody asked for it ([`RENEW_REQUEST`]).
    fn answer_request(&self) -> Result<BTreeSet<Leaf>, PkiError> {
        let path = self.dir.join(RENEW_REQUEST);
        if !path.exists() {
            return Ok(BTreeSet::new());
        }
        Leaf::ALL.into_iter().try_for_each(|leaf| self.replace(leaf))?;
        std::fs::remove_file(&path).map_err(|source| PkiError::Write { path, source })?;
        Ok(Leaf::ALL.into())
    }

    /// How far the replacement of the authorities has come.
    pub fn stage(&self) -> Stage {
        self.trust.now().stage()
    }

    /// Makes new authorities, which are trusted from now on and sign nothing yet. Repeated, it finishes what failed
    /// half-way.
    pub fn begin_rotation(&self) -> Result<(), PkiError> {
        let _alone = self.renewal.lock();
        let all = self.trust.now().begun(&self.dir, (self.options.clock)())?;
        self.trust.set(all);
        Ok(())
    }

    /// The new authorities sign from now on, and what the server keeps is of them.
    pub fn issue_from_next(&self) -> Result<(), PkiError> {
        {
            let _alone = self.renewal.lock();
            let all = self.trust.now().issuing(&self.dir, (self.options.clock)())?;
            self.trust.set(all);
        }
        Leaf::ALL.into_iter().try_for_each(|leaf| self.replace(leaf))
    }

    /// Only those that sign are trusted from now on.
    pub fn end_rotation(&self) -> Result<(), PkiError> {
        {
            let _alone = self.renewal.lock();
            let all = self.trust.now().settled(&self.dir)?;
            self.trust.set(all);
        }
        // Its chain has led to the old one.
        self.replace(Leaf::ApiServer)
    }

    fn is_any_due(&self) -> bool {
        let now = (self.options.clock)();
        self.leaves.iter().any(|leaf| leaf.read().is_due(now))
    }

    /// Renews until `stop`; `renewed` is called with what changed (to write the kubeconfig anew). The wall clock is looked
    /// at often, because it may have been set.
    pub async fn run(
        self: Arc<Self>,
        stop: CancellationToken,
        renewed: impl Fn(&Self, &BTreeSet<Leaf>) + Send,
    ) {
        let mut checked = tokio::time::Instant::now();
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_some() {
            let mut changed = self.answer_request();
            if self.is_any_due() || checked.elapsed() >= CHECK_INTERVAL {
                checked = tokio::time::Instant::now();
                changed = changed.and_then(|mut changed| {
                    changed.extend(self.check()?);
                    Ok(changed)
                });
            }
            match changed {
                Ok(changed) if changed.is_empty() => {}
                Ok(changed) => renewed(&self, &changed),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "certificate check failed");
                }
            }
        }
    }
}

fn authority_of(leaf: Leaf, all: &Authorities) -> &Authority {
    if leaf == Leaf::Kubelet { &all.kubelet.signer } else { &all.cluster.signer }
}

/// What others are shown beside a leaf.
fn beside(leaf: Leaf, all: &Authorities) -> Option<&rustls::pki_types::CertificateDer<'static>> {
    all.cross.as_ref().filter(|_| leaf == Leaf::ApiServer)
}

/// Certificates of earlier versions made their holders members of `system:masters` for a year, which no role takes back.
fn warn_of_master(leaf: Leaf, stored: &Issued, now: Timestamp) {
    let master = stored.organizations().iter().any(|o| o == MASTERS);
    if leaf == Leaf::Admin && master && stored.ends_after(now) {
        tracing::warn!(
            fingerprint = stored.fingerprint(),
            "the administrator's certificate of before is replaced, but good until it ends: coracle cert revoke takes it back"
        );
    }
}

/// SHA-256 of a certificate's DER in lowercase hex: what it is known by in the list of revoked ones.
pub fn fingerprint(der: &[u8]) -> String {
    coracle_api::hex::text(&Sha256::digest(der))
}

/// A client certificate of the cluster whose authority lies in `dir`, for `life` from `now`; and that authority's own
/// certificate (PEM). For commands beside a server, or without one.
pub fn sign_client_in(
    dir: &Path,
    cn: &str,
    orgs: &[&str],
    life: Duration,
    now: Timestamp,
) -> Result<(SignedClient, String), PkiError> {
    let authority = Authority::open(dir, CLUSTER_CA.0)?;
    let signed = certs::sign_client(&authority, cn, orgs, life, now)?;
    let mut bundle = authority.pem;
    for beside in ["next", "previous"] {
        bundle += &files::read(dir, &format!("{}-{beside}.crt", CLUSTER_CA.0))?.unwrap_or_default();
    }
    Ok((signed, bundle))
}
