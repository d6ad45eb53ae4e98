//! Who this machine is: the cluster's CA and the machine's certificates, kept in `<data-dir>/pki` (0600) and renewed when
//! four fifths of their life are over.

use super::request::{self, Wanted};
use super::settings::Agent;
use super::{discovery, transport};
use coracle_api::certificate::{Holder, Name};
use coracle_api::error::chain;
use coracle_apiserver::pki::{read_private, write_private};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

const CA: &str = "ca.crt";
/// Between attempts at a certificate.
const RETRY: Duration = Duration::from_secs(5);
/// The longest sleep before the clock is looked at again: it may have been set.
const LOOK: Duration = Duration::from_secs(3600);

/// The certificates of a joined machine.
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
    const ALL: [Self; 3] = [Self::Kubelet, Self::Proxy, Self::Serving];

    fn file(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet-client.pem",
            Self::Proxy => "kube-proxy.pem",
            Self::Serving => "kubelet-serving.pem",
        }
    }

    fn wanted(self, node: &str, address: IpAddr) -> Wanted {
        let of_node = Wanted {
            signer: "kubernetes.io/kube-apiserver-client-kubelet",
            common_name: format!("system:node:{node}"),
            organization: Some("system:nodes"),
            hosts: Vec::new(),
            purpose: "client auth",
        };
        match self {
            Self::Kubelet => of_node,
            Self::Proxy => Wanted {
                signer: "kubernetes.io/kube-apiserver-client",
                common_name: "system:kube-proxy".to_owned(),
                organization: None,
                ..of_node
            },
            Self::Serving => Wanted {
                signer: "kubernetes.io/kubelet-serving",
                hosts: vec![node.to_owned(), address.to_string()],
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
    common_name: String,
    hosts: BTreeSet<String>,
    /// The authority's subject, DER.
    issuer: Vec<u8>,
    from: Timestamp,
    until: Timestamp,
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

pub struct Identity {
    agent: Agent,
    dir: PathBuf,
    ca_pem: String,
}

impl Identity {
    /// The one that is there from an earlier start, or a new one by the token.
    ///
    /// # Errors
    /// In words for whoever started the agent: what is missing or wrong, and what to do.
    pub async fn of(agent: &Agent) -> Result<Self, String> {
        let dir = agent.data_dir.join("pki");
        let stored = load(&dir, Role::Kubelet)?;
        let ca = read_private(&dir, CA).map_err(|e| chain(&e))?;
        if let (Some(own), Some(ca_pem)) = (stored, ca) {
            let name = own.common_name.strip_prefix("system:node:").unwrap_or_default();
            if agent.name_was_asked && name != agent.node_name {
                return Err(format!(
                    "this machine has joined as node \"{name}\"; to join as \"{}\", remove {}",
                    agent.node_name,
                    dir.display()
                ));
            }
            let this = Self { agent: agent.clone().named(name), dir, ca_pem };
            if own.until > Timestamp::now() {
                this.check(&own).await?;
                return Ok(this);
            }
            tracing::warn!(until = %own.until, "this machine's certificate is over, joining anew");
        }
        Self::join(agent).await
    }

    async fn join(agent: &Agent) -> Result<Self, String> {
        let token = agent.token.as_ref();
        let token = token.ok_or(
            "this machine has not joined a cluster yet: --token is needed, see coracle token create",
        )?;
        let server = &agent.server;
        let ca_pem = discovery::authority(server, token, &agent.pins).await?;
        let client = transport::by_token(server, &ca_pem, &token.whole())?;
        not_there(&client, agent).await?;
        let this = Self { agent: agent.clone(), dir: agent.data_dir.join("pki"), ca_pem };
        let wanted = Role::Kubelet.wanted(&agent.node_name, agent.node_ip);
        let issued = request::issue(&client, &wanted).await;
        let issued = issued.map_err(|why| format!("{}: {why}", server.to_string().trim_end_matches('/')))?;
        // The CA first: a certificate without it would be worth nothing.
        store(&this.dir, CA, this.ca_pem.clone())?;
        store(&this.dir, Role::Kubelet.file(), issued.0 + &issued.1)?;
        Ok(this)
    }

    pub fn node_name(&self) -> &str {
        &self.agent.node_name
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A server that is away is waited for; one that is another's, or does not know this machine any more, is not.
    async fn check(&self, own: &Certificate) -> Result<(), String> {
        let server = &self.agent.server;
        let client = transport::by_certificate(server, &self.ca_pem, own)?;
        let nodes: Api<Node> = Api::all(client);
        let remove = || format!("to join another cluster, remove {} and give a token", self.dir.display());
        match nodes.get_opt(self.node_name()).await {
            Err(error) if transport::is_distrust(&error) => Err(format!(
                "{}; its certificate is not one of the cluster that this machine has joined: {}",
                transport::why(server, &error),
                remove()
            )),
            Err(kube::Error::Api(status)) if status.code == 401 => {
                Err(format!("{server}: the server does not know this machine's certificate: {}", remove()))
            }
            Err(error) => {
                tracing::warn!(why = transport::why(server, &error), "the server is away, waiting for it");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// A client that acts as the kubelet.
    pub fn kubelet(&self) -> Result<kube::Client, String> {
        let own = load(&self.dir, Role::Kubelet)?.ok_or("the kubelet's certificate is gone")?;
        transport::by_certificate(&self.agent.server, &self.ca_pem, &own)
    }

    /// A client that acts as the proxy.
    pub async fn proxy(&self) -> Result<kube::Client, String> {
        transport::by_certificate(&self.agent.server, &self.ca_pem, &self.certificate(Role::Proxy).await?)
    }

    /// The stored certificate; a new one where there is none for this name and address, or it is over. Waits for the
    /// server as long as it takes.
    pub async fn certificate(&self, role: Role) -> Result<Certificate, String> {
        let wanted = role.wanted(self.node_name(), self.agent.node_ip);
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
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Whether it is of before kubelets' ports had an authority of their own: the API server does not believe it any more.
    fn is_outdated(&self, role: Role, own: &Certificate) -> bool {
        role == Role::Serving && own.is_by(&self.ca_pem)
    }

    async fn renew(&self, role: Role) -> Result<Certificate, String> {
        let wanted = role.wanted(self.node_name(), self.agent.node_ip);
        let (certificate, key) = request::issue(&self.kubelet()?, &wanted).await?;
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
            for role in Role::ALL {
                let Some(own) = load(&self.dir, role).ok().flatten() else { continue };
                // At the start that has been tried; a server of an earlier version signs as it did before.
                let outdated = !first && self.is_outdated(role, &own);
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
        let all = Role::ALL.into_iter().filter_map(|role| load(&self.dir, role).ok().flatten());
        let left = all.filter_map(|own| Duration::try_from(own.due().duration_since(now)).ok()).min();
        left.unwrap_or(LOOK).clamp(Duration::from_secs(60), LOOK)
    }
}

fn load(dir: &Path, role: Role) -> Result<Option<Certificate>, String> {
    let text = read_private(dir, role.file()).map_err(|e| chain(&e))?;
    let broken = |why| format!("{}: {why}", dir.join(role.file()).display());
    text.map(|text| Certificate::parse(&text).map_err(broken)).transpose()
}

/// In a folder that its owner alone can read.
fn store(dir: &Path, file: &str, text: String) -> Result<(), String> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| format!("{}: {e}", dir.display()))?;
    write_private(&dir.join(file), text).map_err(|e| chain(&e))
}

/// A second machine of one name would take over the first one's pods. As kubeadm: a node that is not Ready may be replaced.
async fn not_there(client: &kube::Client, agent: &Agent) -> Result<(), String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get_opt(&agent.node_name).await.map_err(|e| transport::why(&agent.server, &e))?;
    let conditions = found.and_then(|node| node.status).and_then(|status| status.conditions);
    if conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True") {
        return Err(format!(
            "a node with name \"{}\" and status \"Ready\" already exists in the cluster: choose another with --node-name, or delete it first",
            agent.node_name
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(from: i64, until: i64, hosts: &[&str]) -> Certificate {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let hosts = hosts.iter().map(|h| (*h).to_owned()).collect();
        let common_name = "system:node:n2".to_owned();
        let (chain_pem, key_pem) = (String::new(), String::new());
        let issuer = Vec::new();
        Certificate { chain_pem, key_pem, common_name, hosts, issuer, from: at(from), until: at(until) }
    }

    #[test]
    fn a_certificate_is_for_a_name_an_address_and_a_time() {
        let address = "192.0.2.2".parse().expect("an address");
        let wanted = Role::Serving.wanted("n2", address);
        let now = Timestamp::from_second(500).expect("a time");
        assert!(certificate(0, 1000, &["n2", "192.0.2.2"]).is_for(&wanted, now));
        assert!(!certificate(0, 1000, &["n2", "192.0.2.9"]).is_for(&wanted, now), "the address has changed");
        assert!(!certificate(0, 500, &["n2", "192.0.2.2"]).is_for(&wanted, now), "it is over");
        assert!(
            !certificate(0, 1000, &["n3", "192.0.2.2"]).is_for(&Role::Serving.wanted("n3", address), now)
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
