//! What runs on a joined machine, and with what it is told by the cluster.

use super::identity::{Identity, Role};
use super::settings::Agent;
use super::transport;
use crate::config::Component;
use crate::node::{self, BoxError};
use crate::supervise::Supervisor;
use coracle_api::error::chain;
use coracle_apiserver::pki::joined_kubelet_tls;
use coracle_client::{Context, Informers};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Between attempts to read what the cluster says.
const RETRY: Duration = Duration::from_secs(2);

/// What all components of one run share.
struct Shared {
    agent: Arc<Agent>,
    identity: Arc<Identity>,
    /// Acts as the kubelet.
    kubelet: kube::Client,
    stop: CancellationToken,
    proxy: OnceCell<(kube::Client, Informers)>,
}

impl Shared {
    /// The proxy's client, and informers with its rights: what the kubelet wants of them, it may see too.
    async fn proxy(&self) -> Result<&(kube::Client, Informers), String> {
        let make = async || {
            let client = self.identity.proxy().await?;
            let informers = Informers::new(client.clone(), self.stop.clone());
            Ok::<_, String>((client, informers))
        };
        self.proxy.get_or_try_init(make).await
    }

    async fn context(&self, stop: CancellationToken) -> Result<Context, String> {
        let (client, informers) = self.proxy().await?.clone();
        Ok(Context { client, informers, stop })
    }
}

/// Starts everything that is not disabled. `stop` ends this run of them all.
pub fn spawn_all(
    supervisor: &mut Supervisor,
    agent: &Arc<Agent>,
    identity: &Arc<Identity>,
    stop: &CancellationToken,
) -> Result<(), String> {
    let shared = Arc::new(Shared {
        agent: agent.clone(),
        identity: identity.clone(),
        kubelet: identity.kubelet()?,
        stop: stop.clone(),
        proxy: OnceCell::new(),
    });
    if agent.runs(Component::Proxy) {
        let shared = shared.clone();
        supervisor.spawn("proxy", move |stop| proxy(shared.clone(), stop));
    }
    if agent.runs(Component::Network) {
        let shared = shared.clone();
        supervisor.spawn("network", move |stop| network(shared.clone(), stop));
    }
    supervisor.spawn("kubelet", move |stop| kubelet(shared.clone(), stop));
    Ok(())
}

async fn kubelet(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let told = stop.run_until_cancelled(async {
        Ok::<_, BoxError>((shared.proxy().await?.1.clone(), cluster_dns(&shared).await))
    });
    let Some(told) = told.await else { return Ok(()) };
    let (informers, dns) = told?;
    let agent = &shared.agent;
    let mut settings = coracle_kubelet::Config::new(&agent.node_name, agent.node_ip);
    settings.runtime_endpoint.clone_from(&agent.runtime_endpoint);
    settings.data_dir.clone_from(&agent.data_dir);
    settings.eviction.clone_from(&agent.eviction);
    settings.streaming_connection_idle_timeout = agent.streaming_connection_idle_timeout;
    settings.node.clone_from(&agent.kubelet);
    settings.cluster_dns = dns.into_iter().collect();
    let context = Context { client: shared.kubelet.clone(), informers, stop };
    let identity = shared.identity.clone();
    Box::pin(node::run_kubelet(context, settings, async move { port(&identity).await })).await
}

async fn port(identity: &Identity) -> Result<node::Port, BoxError> {
    let own = identity.certificate(Role::Serving).await?;
    let (tls, verifier) = joined_kubelet_tls(identity.ca_pem(), &own.chain_pem, &own.key_pem)?;
    let judge = Arc::new(move |chain: &[CertificateDer<'_>]| verifier.verify(chain));
    Ok(node::Port { tls, judge })
}

async fn proxy(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let ready =
        async { Ok::<_, String>((shared.context(stop.clone()).await?, cluster_cidr(&shared).await?)) };
    let Some(ready) = stop.run_until_cancelled(ready).await else { return Ok(()) };
    let (context, cidr) = ready?;
    Ok(coracle_proxy::run(context, site(&shared.agent, &cidr, Vec::new()).proxy()).await?)
}

async fn network(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let agent = &shared.agent;
    if !coracle_proxy::network::is_ours(&agent.cni_conf_dir, true) {
        tracing::info!(directory = %agent.cni_conf_dir.display(), "somebody else's pod network is left as it is");
        stop.cancelled().await;
        return Ok(());
    }
    let ready = async {
        let addresses = std::iter::once(agent.node_ip).chain(of_server(agent).await).collect();
        Ok::<_, String>((shared.context(stop.clone()).await?, cluster_cidr(&shared).await?, addresses))
    };
    let Some(ready) = stop.run_until_cancelled(ready).await else { return Ok(()) };
    let (context, cidr, addresses) = ready?;
    let Some(config) = site(agent, &cidr, addresses).network() else {
        stop.cancelled().await;
        return Ok(());
    };
    Ok(coracle_proxy::network::run(context, config).await?)
}

/// Where the API server is reached; empty where its name cannot be looked up.
async fn of_server(agent: &Agent) -> Vec<IpAddr> {
    let host = agent.server.host().unwrap_or_default().trim_matches(['[', ']']);
    match tokio::net::lookup_host((host, agent.server.port_u16().unwrap_or(443))).await {
        Ok(found) => found.map(|socket| socket.ip()).collect(),
        Err(_) => Vec::new(),
    }
}

fn site<'a>(agent: &'a Agent, cluster_cidr: &'a str, addresses: Vec<IpAddr>) -> node::Site<'a> {
    node::Site {
        node_name: &agent.node_name,
        cluster_cidr,
        service_cidr: None,
        addresses,
        cni_conf_dir: &agent.cni_conf_dir,
        data_dir: &agent.data_dir,
        create: true,
    }
}

/// Where pods ask for names: the address of the Service `kube-dns`; none in a cluster without.
async fn cluster_dns(shared: &Shared) -> Option<IpAddr> {
    let services: Api<Service> = Api::namespaced(shared.kubelet.clone(), "kube-system");
    loop {
        match services.get_opt("kube-dns").await {
            Ok(service) => return service?.spec?.cluster_ip?.parse().ok(),
            Err(error) => unread(shared, "the Service kube-system/kube-dns", &error).await,
        }
    }
}

#[derive(Deserialize)]
struct ProxyConfiguration {
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
}

/// The addresses of all pods, from the proxies' configuration.
async fn cluster_cidr(shared: &Shared) -> Result<String, String> {
    let client = shared.proxy().await?.0.clone();
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let map = loop {
        match maps.get("kube-proxy").await {
            Ok(map) => break map,
            Err(error) => unread(shared, "the ConfigMap kube-system/kube-proxy", &error).await,
        }
    };
    let text = map.data.unwrap_or_default().remove("config.conf").unwrap_or_default();
    let read: Result<ProxyConfiguration, _> = serde_saphyr::from_str(&text);
    let cidr = read.map_err(|e| format!("ConfigMap kube-system/kube-proxy: {}", chain(&e)))?.cluster_cidr;
    match cidr.parse::<ipnet::IpNet>() {
        Ok(_) => Ok(cidr),
        Err(_) => Err(format!("ConfigMap kube-system/kube-proxy: clusterCIDR \"{cidr}\" is no CIDR")),
    }
}

async fn unread(shared: &Shared, what: &str, error: &kube::Error) {
    tracing::warn!(why = transport::why(&shared.agent.server, error), "{what} cannot be read, trying again");
    tokio::time::sleep(RETRY).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_configuration_is_read() {
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.42.0.0/16\n";
        let read: ProxyConfiguration = serde_saphyr::from_str(text).expect("valid");
        assert_eq!(read.cluster_cidr, "10.42.0.0/16");
    }
}
