//! Who this machine is: the cluster's CA and the machine's certificates, kept in `<data-dir>/pki` (0600) and renewed when
//! four fifths of their life are over.

use super::authority::Following;
use super::discovery;
use super::settings::Agent;
use crate::address::NodeIps;
use crate::authorities::names;
use crate::certificates::terms::{Failures, Serving, Terms};
use crate::certificates::{Certificate, CertificateManager, Role, load, request, store};
use crate::servers::Servers;
use crate::transport;
use axum::http::Uri;
use coracle_api::error::chain;
use coracle_apiserver::pki::read_private;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CA: &str = "ca.crt";
/// After what can only be the disk's fault.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

pub struct Identity {
    agent: Agent,
    /// Of the node, as it is now.
    node_ips: RwLock<NodeIps>,
    dir: PathBuf,
    failures: Arc<Failures>,
    servers: Arc<Servers>,
    /// All that are trusted, the one that signs first.
    ca_pem: RwLock<String>,
}

impl Identity {
    /// The one that is there from an earlier start, or a new one by the token.
    ///
    /// # Errors
    /// In words for whoever started the agent: what is missing or wrong, and what to do.
    pub async fn of(agent: &Agent) -> Result<Self, String> {
        let dir = agent.data_dir.join("pki");
        let servers = Servers::load(agent.server.clone(), Some(&agent.data_dir));
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
            let ca_pem = RwLock::new(ca_pem);
            let servers = servers.clone();
            let node_ips = RwLock::new(agent.node_ips());
            let failures = Arc::default();
            let this = Self { agent: agent.clone().named(name), node_ips, dir, failures, servers, ca_pem };
            if own.until > Timestamp::now() {
                this.check(&own).await?;
                return Ok(this);
            }
            tracing::warn!(until = %own.until, "this machine's certificate is over, joining anew");
        }
        Self::join(agent, servers).await
    }

    async fn join(agent: &Agent, servers: Arc<Servers>) -> Result<Self, String> {
        let token = agent.token.as_ref();
        let token = token.ok_or(
            "this machine has not joined a cluster yet: --token is needed, see coracle token create",
        )?;
        let server = &agent.server;
        let ca_pem = discovery::authority(server, token, &agent.pins).await?;
        let client = transport::by_token(server, &ca_pem, &token.whole())?;
        not_there(&client, agent).await?;
        let ca_pem = RwLock::new(ca_pem);
        let node_ips = RwLock::new(agent.node_ips());
        let dir = agent.data_dir.join("pki");
        let this = Self { agent: agent.clone(), node_ips, dir, failures: Arc::default(), servers, ca_pem };
        let wanted = Role::Kubelet.wanted(&agent.node_name, agent.node_ips());
        let issued = request::issue(&client, &wanted).await;
        let issued = issued.map_err(|why| format!("{}: {why}", server.to_string().trim_end_matches('/')))?;
        // The CA first: a certificate without it would be worth nothing.
        store(&this.dir, CA, this.ca_pem())?;
        store(&this.dir, Role::Kubelet.file(), issued.0 + &issued.1)?;
        Ok(this)
    }

    pub fn node_name(&self) -> &str {
        &self.agent.node_name
    }

    /// The certificates that are asked for from now on are for these addresses.
    pub fn move_to(&self, node_ips: NodeIps) {
        *self.node_ips.write() = node_ips;
    }

    pub fn ca_pem(&self) -> String {
        self.ca_pem.read().clone()
    }

    /// A server that is away is waited for; one that is another's, or does not know this machine any more, is not.
    async fn check(&self, own: &Certificate) -> Result<(), String> {
        let server = &self.agent.server;
        let nodes: Api<Node> = Api::all(self.client(self.ca_pem(), own.clone())?);
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
        kubelet(&self.dir, &self.servers, self.ca_pem())
    }

    /// The cluster's servers, and whichever is asked.
    pub fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    /// Looks after which server is asked, for ever.
    pub async fn watch_over_servers(&self) -> Result<(), String> {
        let own = load(&self.dir, Role::Kubelet)?.ok_or("the kubelet's certificate is gone")?;
        let ca_pem = self.ca_pem();
        let make = move |server: &Uri| transport::by_certificate(server, &ca_pem, &own);
        self.servers.clone().watch_over(make).await;
        Ok(())
    }

    fn client(&self, ca_pem: String, own: Certificate) -> Result<kube::Client, String> {
        self.servers.client(move |server| transport::by_certificate(server, &ca_pem, &own))
    }

    /// A client that acts as the proxy.
    pub async fn proxy(&self) -> Result<kube::Client, String> {
        self.client(self.ca_pem(), self.certificate(Role::Proxy).await?)
    }

    /// The stored certificate; a new one where there is none for this name and address, or it is over. Waits for the
    /// server as long as it takes.
    pub async fn certificate(&self, role: Role) -> Result<Certificate, String> {
        self.keeper().certificate(role).await
    }

    /// Returns when a certificate has been renewed, so that everybody takes the new one. The kubelet's own comes first:
    /// the others are asked for with it.
    pub async fn renewed(&self) {
        self.keeper().renewed().await;
    }

    /// Follows the cluster's authorities, and says on the Node which ones this machine knows. Returns when others are
    /// trusted, so that everybody believes these.
    pub async fn trusts_others(&self) {
        loop {
            match self.kubelet().map(|client| Following { identity: self, client }) {
                Ok(following) => return following.until_others().await,
                Err(why) => tracing::warn!(why, "the cluster's authorities are not followed, trying again"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// The names of the authorities that are trusted, and of the one that signed the kubelet's certificate.
    pub fn authorities(&self) -> Result<(Vec<String>, String), String> {
        let own = load(&self.dir, Role::Kubelet)?.ok_or("the kubelet's certificate is gone")?;
        Ok((names(&self.ca_pem())?, own.issuer_name))
    }

    /// Takes a bundle by which the server is believed now; another would shut this machine out.
    pub async fn trust(&self, bundle: String) -> Result<(), String> {
        let own = load(&self.dir, Role::Kubelet)?.ok_or("the kubelet's certificate is gone")?;
        let server = &self.agent.server;
        let nodes: Api<Node> = Api::all(self.client(bundle.clone(), own)?);
        nodes.get_opt(self.node_name()).await.map_err(|error| transport::why(server, &error))?;
        store(&self.dir, CA, bundle.clone())?;
        tracing::info!(authorities = names(&bundle)?.join(", "), "the cluster's authorities have changed");
        *self.ca_pem.write() = bundle;
        Ok(())
    }

    /// What is told of the certificates, until one of them is renewed.
    pub fn terms(&self, serving: &Certificate) -> Result<Terms, String> {
        let client = load(&self.dir, Role::Kubelet)?.map(|own| own.until);
        Ok(Terms { client, serving: Serving::Until(Some(serving.until)), failures: self.failures.clone() })
    }

    fn keeper(&self) -> CertificateManager {
        let (dir, servers, ca_pem) = (self.dir.clone(), self.servers.clone(), self.ca_pem());
        let kubelet = move || kubelet(&dir, &servers, ca_pem.clone());
        CertificateManager {
            dir: self.dir.clone(),
            node_name: self.agent.node_name.clone(),
            node_ips: *self.node_ips.read(),
            roles: &Role::ALL,
            outdated_by: Some(self.ca_pem()),
            kubelet: Box::new(kubelet),
            failures: self.failures.clone(),
        }
    }
}

/// With the certificate of now.
fn kubelet(dir: &Path, servers: &Arc<Servers>, ca_pem: String) -> Result<kube::Client, String> {
    let own = load(dir, Role::Kubelet)?.ok_or("the kubelet's certificate is gone")?;
    servers.client(move |server| transport::by_certificate(server, &ca_pem, &own))
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
