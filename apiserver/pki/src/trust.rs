//! Who signs, and who is trusted. While an authority is replaced there are two of each:
//!
//! ```text
//! settled --begin--> trusting --issue--> issuing --finish--> settled
//!              \--abandon--> settled
//! trusting   NAME-next.crt/.key lie beside NAME.crt/.key: both are trusted, the old one signs
//! issuing    the new one is NAME.crt/.key and signs, NAME-previous.crt is trusted yet
//! ```
//! A bundle names the one that signs first. `ca-cross.crt` is the new cluster authority as the old one vouches for it: the
//! server sends it along, so that whoever knows the old one alone believes the server until the end.

use super::certs::Authority;
use super::files::{self, NewFile};
use super::{CLUSTER_CA, FRONT_PROXY_CA, KUBELET_CA, PkiError};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// The cluster authority's certificate under the signature of the one before it.
pub(super) const CROSS: &str = "ca-cross.crt";

/// How far the replacement of the authorities has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is one of each.
    Settled,
    /// The new ones are trusted, the old ones sign.
    Trusting,
    /// The new ones sign, the old ones are trusted.
    Issuing,
}

/// An authority, known by its certificate.
pub type AuthorityId = [u8; 32];

pub(super) fn id_of(der: &[u8]) -> AuthorityId {
    Sha256::digest(der).into()
}

/// One that is trusted, and signs nothing here.
#[derive(Clone)]
pub(super) struct Known {
    pub pem: String,
    pub der: CertificateDer<'static>,
}

impl Known {
    fn of(authority: &Authority) -> Self {
        Self { pem: authority.pem.clone(), der: authority.der.clone() }
    }

    fn load(dir: &Path, name: &str) -> Result<Option<Self>, PkiError> {
        let Some(pem) = files::read(dir, name)? else { return Ok(None) };
        let malformed = |why: String| PkiError::Malformed { path: dir.join(name), why };
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| malformed(e.to_string()))?;
        Ok(Some(Self { der: der.into_owned(), pem }))
    }
}

/// An authority and the one that comes after or was before it.
#[derive(Clone)]
pub(super) struct Office {
    file: &'static str,
    name: &'static str,
    pub signer: Arc<Authority>,
    pub next: Option<Arc<Authority>>,
    pub previous: Option<Known>,
}

fn next_of(file: &str) -> String {
    format!("{file}-next")
}

fn previous_of(file: &str) -> String {
    format!("{file}-previous.crt")
}

impl Office {
    fn load(
        dir: &Path,
        (file, name): (&'static str, &'static str),
        now: Timestamp,
        new: &mut Vec<NewFile>,
    ) -> Result<Self, PkiError> {
        let previous = Known::load(dir, &previous_of(file))?;
        if previous.is_some() {
            promote(dir, file)?;
        }
        let signer = Arc::new(Authority::load_or_make(dir, file, name, now, new)?);
        let has_next = dir.join(format!("{}.key", next_of(file))).exists();
        let next = if has_next { Some(Self::successor(dir, file, name, now)?) } else { None };
        Ok(Self { file, name, signer, next, previous })
    }

    /// The one that is made, or was made before a stop.
    fn successor(dir: &Path, file: &str, name: &str, now: Timestamp) -> Result<Arc<Authority>, PkiError> {
        let mut new = Vec::new();
        let name = format!("{name}@{}", now.as_second());
        let next = Authority::load_or_make(dir, &next_of(file), &name, now, &mut new)?;
        files::write_all(dir, &new)?;
        Ok(Arc::new(next))
    }

    /// All that are trusted, the one that signs first.
    pub fn known(&self) -> Vec<Known> {
        let mut all = vec![Known::of(&self.signer)];
        all.extend(self.next.as_deref().map(Known::of));
        all.extend(self.previous.clone());
        all
    }

    pub fn bundle(&self) -> String {
        self.known().into_iter().map(|known| known.pem).collect()
    }
}

/// Puts the next authority in the place of the one that signs, whose certificate lies aside already. Repeated, it finishes
/// what a stop left.
fn promote(dir: &Path, file: &str) -> Result<(), PkiError> {
    let next = next_of(file);
    let (certificate, key) = (format!("{next}.crt"), format!("{next}.key"));
    if let (Some(pem), Some(key)) = (files::read(dir, &certificate)?, files::read(dir, &key)?) {
        let new = |ending: &str, contents| NewFile { name: format!("{file}.{ending}"), contents };
        files::write_all(dir, &[new("key", key), new("crt", pem)])?;
    }
    // The certificate last: without the key nothing is promoted again.
    [key, certificate].iter().try_for_each(|name| files::remove(dir, name))
}

/// All authorities as of one moment.
#[derive(Clone)]
pub(super) struct Authorities {
    pub cluster: Office,
    pub kubelet: Office,
    pub front_proxy: Office,
    /// What the server sends beside its own certificate.
    pub cross: Option<CertificateDer<'static>>,
}

impl Authorities {
    pub fn load(dir: &Path, now: Timestamp, new: &mut Vec<NewFile>) -> Result<Self, PkiError> {
        let mut office = |which| Office::load(dir, which, now, new);
        let (cluster, kubelet) = (office(CLUSTER_CA)?, office(KUBELET_CA)?);
        let front_proxy = office(FRONT_PROXY_CA)?;
        let mut all = Self { cluster, kubelet, front_proxy, cross: None };
        if all.stage() == Stage::Issuing {
            // Those that a stop kept from it.
            for office in all.offices_mut() {
                issue(dir, office)?;
            }
            all.cross = Known::load(dir, CROSS)?.map(|known| known.der);
        }
        Ok(all)
    }

    fn offices(&self) -> [&Office; 3] {
        [&self.cluster, &self.kubelet, &self.front_proxy]
    }

    fn offices_mut(&mut self) -> [&mut Office; 3] {
        [&mut self.cluster, &mut self.kubelet, &mut self.front_proxy]
    }

    pub fn stage(&self) -> Stage {
        match self.offices() {
            all if all.iter().any(|office| office.previous.is_some()) => Stage::Issuing,
            all if all.iter().any(|office| office.next.is_some()) => Stage::Trusting,
            _ => Stage::Settled,
        }
    }

    /// Makes the next ones; those that are there stay.
    pub fn begun(&self, dir: &Path, now: Timestamp) -> Result<Self, PkiError> {
        let mut all = self.clone();
        for office in all.offices_mut() {
            office.next = Some(Office::successor(dir, office.file, office.name, now)?);
        }
        Ok(all)
    }

    /// The next ones sign from now on.
    pub fn issuing(&self, dir: &Path, now: Timestamp) -> Result<Self, PkiError> {
        let mut all = self.clone();
        if let Some(next) = &all.cluster.next {
            let cross = next.certified_by(&all.cluster.signer, now)?;
            let file = NewFile { name: CROSS.to_owned(), contents: cross.pem() };
            files::write_all(dir, &[file])?;
            all.cross = Some(cross.der().clone());
        }
        all.offices_mut().into_iter().try_for_each(|office| issue(dir, office))?;
        Ok(all)
    }

    /// Without those that will not sign any more; or without those that would.
    pub fn settled(&self, dir: &Path) -> Result<Self, PkiError> {
        let mut all = self.clone();
        for office in all.offices_mut() {
            let next = next_of(office.file);
            let names = [format!("{next}.key"), format!("{next}.crt"), previous_of(office.file)];
            names.iter().try_for_each(|name| files::remove(dir, name))?;
            (office.next, office.previous) = (None, None);
        }
        files::remove(dir, CROSS)?;
        all.cross = None;
        Ok(all)
    }
}

fn issue(dir: &Path, office: &mut Office) -> Result<(), PkiError> {
    let Some(next) = office.next.take() else { return Ok(()) };
    let previous = Known::of(&office.signer);
    files::write_all(dir, &[NewFile { name: previous_of(office.file), contents: previous.pem.clone() }])?;
    promote(dir, office.file)?;
    (office.signer, office.previous) = (next, Some(previous));
    Ok(())
}

/// The authorities of now, and word of their changes.
pub(super) struct Trust {
    now: RwLock<Arc<Authorities>>,
    /// The cluster's bundle.
    changed: watch::Sender<String>,
}

impl Trust {
    pub fn new(all: Authorities) -> Arc<Self> {
        let changed = watch::Sender::new(all.cluster.bundle());
        Arc::new(Self { now: RwLock::new(Arc::new(all)), changed })
    }

    pub fn now(&self) -> Arc<Authorities> {
        self.now.read().clone()
    }

    pub fn set(&self, all: Authorities) {
        let bundle = all.cluster.bundle();
        *self.now.write() = Arc::new(all);
        self.changed.send_replace(bundle);
    }

    pub fn changes(&self) -> watch::Receiver<String> {
        self.changed.subscribe()
    }
}

type Make<T> = Box<dyn Fn(&Authorities) -> Result<T, PkiError> + Send + Sync>;

/// What is made of the authorities, and made anew when they have changed.
pub(super) struct Following<T> {
    trust: Arc<Trust>,
    make: Make<T>,
    made: Mutex<(Arc<Authorities>, T)>,
}

impl<T: Clone> Following<T> {
    pub fn new(
        trust: &Arc<Trust>,
        make: impl Fn(&Authorities) -> Result<T, PkiError> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, PkiError> {
        let of = trust.now();
        let made = Mutex::new((of.clone(), make(&of)?));
        Ok(Arc::new(Self { trust: trust.clone(), make: Box::new(make), made }))
    }

    pub fn now(&self) -> T {
        let all = self.trust.now();
        let mut made = self.made.lock();
        if !Arc::ptr_eq(&made.0, &all) {
            match (self.make)(&all) {
                Ok(new) => *made = (all, new),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "the authorities' change");
                }
            }
        }
        made.1.clone()
    }
}
