//! A node's certificates: kept in a folder (0600), asked for by way of the certificates API, and renewed when four fifths
//! of their life are over.

pub mod request;
pub mod terms;

use crate::address::NodeIps;
use crate::authorities::{common_name, generation, names};
use coracle_api::certificate::{Holder, Name};
use coracle_api::error::chain;
use coracle_api::well_known;
use coracle_apiserver::pki::{read_private, write_private};
use jiff::Timestamp;
use request::Wanted;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terms::Failures;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Between attempts at a certificate.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The longest sleep before the clock is looked at again: it may have been set.
const LOOK_INTERVAL: Duration = Duration::from_secs(3600);

/// The certificates of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The kubelet towards the API.
    Kubelet,
    /// The proxy and the pod network towards the API.
    Proxy,
    /// The kubelet's own port.
    Serving,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Kubelet, Self::Proxy, Self::Serving];

    pub fn file(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet-client.pem",
            Self::Proxy => "kube-proxy.pem",
            Self::Serving => "kubelet-serving.pem",
        }
    }

    pub fn wanted(self, node: &str, addresses: NodeIps) -> Wanted {
        let of_node = Wanted {
            signer: well_known::SIGNER_KUBELET_CLIENT,
            common_name: format!("system:node:{node}"),
            organization: Some("system:nodes"),
            hosts: Vec::new(),
            purpose: "client auth",
        };
        match self {
            Self::Kubelet => of_node,
            Self::Proxy => Wanted {
                signer: well_known::SIGNER_CLIENT,
                common_name: "system:kube-proxy".to_owned(),
                organization: None,
                ..of_node
            },
            Self::Serving => Wanted {
                signer: well_known::SIGNER_KUBELET_SERVING,
                hosts: std::iter::once(node.to_owned())
                    .chain(addresses.all().map(|ip| ip.to_string()))
                    .collect(),
                purpose: "server auth",
                ..of_node
            },
        }
    }
}

/// A certificate with its key, PEM both.
#[derive(Clone)]
pub struct Certificate {
    pub chain_pem: String,
    pub key_pem: String,
    pub common_name: String,
    hosts: BTreeSet<String>,
    /// The authority's subject, DER.
    issuer: Vec<u8>,
    /// The authority's common name.
    pub issuer_name: String,
    from: Timestamp,
    pub until: Timestamp,
}

impl Certificate {
    /// The file's text: the chain, then the key.
    fn parse(text: &str) -> Result<Self, String> {
        let key = text.find("-----BEGIN PRIVATE KEY-----").ok_or("there is no private key in it")?;
        let (chain_pem, key_pem) = text.split_at(key);
        let der = CertificateDer::from_pem_slice(chain_pem.as_bytes()).map_err(|e| e.to_string())?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
        let at = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|e| e.to_string())
        };
        let holder = Holder::of_parsed(&parsed).map_err(|e| e.to_string())?;
        Ok(Self {
            common_name: holder.common_name().unwrap_or_default().to_owned(),
            hosts: holder.names.iter().filter_map(host).collect(),
            issuer: parsed.issuer().as_raw().to_vec(),
            issuer_name: common_name(parsed.issuer()),
            from: at(parsed.validity().not_before)?,
            until: at(parsed.validity().not_after)?,
            chain_pem: chain_pem.to_owned(),
            key_pem: key_pem.to_owned(),
        })
    }

    fn is_for(&self, wanted: &Wanted, now: Timestamp) -> bool {
        self.common_name == wanted.common_name
            && wanted.hosts.iter().all(|host| self.hosts.contains(host))
            && self.until > now
    }

    /// Whether the authority of this name signed it.
    fn is_by(&self, authority_pem: &str) -> bool {
        let der = CertificateDer::from_pem_slice(authority_pem.as_bytes());
        let parsed = der.as_ref().ok().and_then(|der| X509Certificate::from_der(der).ok());
        parsed.is_some_and(|(_, authority)| authority.subject().as_raw() == self.issuer)
    }

    /// Whether its authority was replaced by one that signs now, which is the first of the bundle. All authorities of a
    /// cluster are replaced together, the cluster's own first.
    fn is_behind(&self, bundle: &str) -> bool {
        let signer = names(bundle).ok().and_then(|names| names.into_iter().next());
        signer.is_some_and(|signer| generation(&self.issuer_name) < generation(&signer))
    }

    /// When four fifths of its life are over; upstream's kubelet chooses between seven and nine tenths.
    fn due(&self) -> Timestamp {
        let life = self.until.duration_since(self.from);
        self.from.checked_add(life * 4 / 5).unwrap_or(self.until)
    }
}

fn host(name: &Name) -> Option<String> {
    match name {
        Name::Dns(name) => Some(name.clone()),
        Name::Ip(ip) => Some(ip.to_string()),
        _ => None,
    }
}

/// Makes a client that acts as the kubelet.
pub type Kubelet = Box<dyn Fn() -> Result<kube::Client, String> + Send + Sync>;

/// Keeps a node's certificates in a folder, by way of the certificates API.
pub struct CertificateManager {
    pub dir: PathBuf,
    pub node_name: String,
    pub node_ips: NodeIps,
    /// Those that it keeps, in the order in which they are renewed.
    pub roles: &'static [Role],
    /// The cluster's authorities (PEM), the one that signs first. A serving certificate of it is worth nothing any more, as
    /// kubelets' ports have one of their own; and certificates of earlier ones are worth nothing soon.
    pub outdated_by: Option<String>,
    /// Whoever asks for them all.
    pub kubelet: Kubelet,
    /// Counts when none is issued.
    pub failures: Arc<Failures>,
}

impl CertificateManager {
    /// The stored certificate; a new one where there is none for this name and address, or it is over. Waits for the
    /// server as long as it takes.
    pub async fn certificate(&self, role: Role) -> Result<Certificate, String> {
        let wanted = role.wanted(&self.node_name, self.node_ips);
        if let Some(own) = load(&self.dir, role)?.filter(|own| own.is_for(&wanted, Timestamp::now())) {
            return Ok(if self.is_outdated(role, &own) {
                self.renew(role).await.unwrap_or(own)
            } else {
                own
            });
        }
        loop {
            match self.renew(role).await {
                Ok(own) => return Ok(own),
                Err(why) => tracing::warn!(certificate = role.file(), why, "no certificate, trying again"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Whether it is of before kubelets' ports had an authority of their own: the API server does not believe it any more.
    fn is_outdated(&self, role: Role, own: &Certificate) -> bool {
        role == Role::Serving && self.outdated_by.as_deref().is_some_and(|ca| own.is_by(ca))
            || self.is_behind(own)
    }

    fn is_behind(&self, own: &Certificate) -> bool {
        self.outdated_by.as_deref().is_some_and(|ca| own.is_behind(ca))
    }

    async fn renew(&self, role: Role) -> Result<Certificate, String> {
        self.issue(role).await.inspect_err(|_| self.failures.note(role))
    }

    async fn issue(&self, role: Role) -> Result<Certificate, String> {
        let wanted = role.wanted(&self.node_name, self.node_ips);
        let (certificate, key) = request::issue(&(self.kubelet)()?, &wanted).await?;
        let text = certificate + &key;
        let own = Certificate::parse(&text)?;
        store(&self.dir, role.file(), text)?;
        tracing::info!(certificate = role.file(), until = %own.until, "certificate issued");
        Ok(own)
    }

    /// Returns when a certificate has been renewed, so that everybody takes the new one. The kubelet's own comes first:
    /// the others are asked for with it.
    pub async fn renewed(&self) {
        let mut first = true;
        loop {
            let mut changed = false;
            for role in self.roles.iter().copied() {
                let Some(own) = load(&self.dir, role).ok().flatten() else { continue };
                // At the start that has been tried; a server of an earlier version signs as it did before.
                let outdated = !first && self.is_outdated(role, &own) || self.is_behind(&own);
                if !outdated && own.due() > Timestamp::now() {
                    continue;
                }
                match self.renew(role).await {
                    Ok(new) => changed |= !outdated || !self.is_outdated(role, &new),
                    Err(why) => tracing::warn!(
                        certificate = role.file(),
                        why,
                        "certificate not renewed, trying again"
                    ),
                }
            }
            if changed {
                return;
            }
            tokio::time::sleep(self.pause(Timestamp::now())).await;
            first = false;
        }
    }

    /// Until the first is due, but at least a minute, so that a renewal that fails is not hammered.
    fn pause(&self, now: Timestamp) -> Duration {
        let all = self.roles.iter().copied().filter_map(|role| load(&self.dir, role).ok().flatten());
        let left = all.filter_map(|own| Duration::try_from(own.due().duration_since(now)).ok()).min();
        left.unwrap_or(LOOK_INTERVAL).clamp(Duration::from_secs(60), LOOK_INTERVAL)
    }
}

/// When a certificate in PEM ends.
pub fn end_of(chain_pem: &str) -> Option<Timestamp> {
    let der = CertificateDer::from_pem_slice(chain_pem.as_bytes()).ok()?;
    let (_, parsed) = X509Certificate::from_der(&der).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

pub fn load(dir: &Path, role: Role) -> Result<Option<Certificate>, String> {
    let text = read_private(dir, role.file()).map_err(|e| chain(&e))?;
    let broken = |why| format!("{}: {why}", dir.join(role.file()).display());
    text.map(|text| Certificate::parse(&text).map_err(broken)).transpose()
}

/// In a folder that its owner alone can read.
pub fn store(dir: &Path, file: &str, text: String) -> Result<(), String> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| format!("{}: {e}", dir.display()))?;
    write_private(&dir.join(file), text).map_err(|e| chain(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(from: i64, until: i64, hosts: &[&str]) -> Certificate {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let hosts = hosts.iter().map(|h| (*h).to_owned()).collect();
        let common_name = "system:node:n2".to_owned();
        let (chain_pem, key_pem) = (String::new(), String::new());
        let (issuer, issuer_name) = (Vec::new(), String::new());
        let (from, until) = (at(from), at(until));
        Certificate { chain_pem, key_pem, common_name, hosts, issuer, issuer_name, from, until }
    }

    #[test]
    fn a_certificate_is_for_a_name_an_address_and_a_time() {
        let address: std::net::IpAddr = "192.0.2.2".parse().expect("an address");
        let wanted = Role::Serving.wanted("n2", address.into());
        let now = Timestamp::from_second(500).expect("a time");
        assert!(certificate(0, 1000, &["n2", "192.0.2.2"]).is_for(&wanted, now));
        assert!(!certificate(0, 1000, &["n2", "192.0.2.9"]).is_for(&wanted, now), "the address has changed");
        assert!(!certificate(0, 500, &["n2", "192.0.2.2"]).is_for(&wanted, now), "it is over");
        assert!(
            !certificate(0, 1000, &["n3", "192.0.2.2"])
                .is_for(&Role::Serving.wanted("n3", address.into()), now)
        );
        assert_eq!(certificate(0, 1000, &[]).due().as_second(), 800);
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let made = rcgen::generate_simple_self_signed(vec!["n2".to_owned(), "192.0.2.2".to_owned()]);
        let made = made.expect("a certificate");
        store(dir.path(), Role::Serving.file(), made.cert.pem() + &made.signing_key.serialize_pem())
            .expect("stored");
        let own = load(dir.path(), Role::Serving).expect("readable").expect("there");
        assert_eq!(own.hosts, BTreeSet::from(["n2".to_owned(), "192.0.2.2".to_owned()]));
        assert!(own.key_pem.starts_with("-----BEGIN PRIVATE KEY-----") && !own.chain_pem.contains("PRIVATE"));
        assert!(own.is_by(&made.cert.pem()), "it is its own authority");
        let other = rcgen::CertificateParams::default();
        let other = other.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate");
        assert!(own.is_by(&other.pem()), "of the same name");
        let mut named = rcgen::CertificateParams::default();
        named.distinguished_name.push(rcgen::DnType::CommonName, "another");
        let named = named.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate");
        assert!(!own.is_by(&named.pem()) && !own.is_by(""));
        assert!(load(dir.path(), Role::Proxy).expect("readable").is_none());
        store(dir.path(), Role::Proxy.file(), "nonsense".to_owned()).expect("stored");
        assert!(load(dir.path(), Role::Proxy).is_err());
    }
}
