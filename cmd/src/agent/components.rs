//! What runs on a joined machine, and with what it is told by the cluster.

use super::identity::Identity;
use super::settings::Agent;
use crate::certificates::Role;
use crate::cluster;
use crate::config::Component;
use crate::flags::this_program;
use crate::node::{self, BoxError};
use crate::shown;
use crate::supervise::Supervisor;
use coracle_apiserver::pki::joined_kubelet_tls;
use coracle_client::{Context, Informers};
use coracle_proxy::AsNode;
use coracle_proxy::policy::metrics::Metrics as PolicyMetrics;
use rustls::pki_types::CertificateDer;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// What all components of one run share.
struct Shared {
    agent: Arc<Agent>,
    identity: Arc<Identity>,
    /// Acts as the kubelet.
    kubelet: kube::Client,
    stop: CancellationToken,
    proxy: OnceCell<(kube::Client, Informers)>,
    metrics: Figures,
}

/// What components count, over their restarts.
#[derive(Default)]
struct Figures {
    kubelet: coracle_kubelet::metrics::Metrics,
    policy: Arc<PolicyMetrics>,
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

    async fn cluster_cidr(&self) -> Result<String, String> {
        Ok(cluster::cidr(&self.proxy().await?.0, &self.agent.server).await)
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
        metrics: Figures::default(),
    });
    if agent.runs(Component::Proxy) {
        let shared = shared.clone();
        supervisor.spawn("proxy", move |stop| proxy(shared.clone(), stop));
    }
    if agent.runs(Component::Network) {
        let shared = shared.clone();
        supervisor.spawn("network", move |stop| network(shared.clone(), stop));
    }
    if agent.runs(Component::Dns) {
        let shared = shared.clone();
        supervisor.spawn("dns", move |stop| dns(shared.clone(), stop));
    }
    let mut shown = Vec::new();
    if agent.runs(Component::ShownPods) {
        shown = shown::components(supervisor, false);
    }
    let of_servers = shared.clone();
    supervisor.spawn("servers", move |stop| servers(of_servers.clone(), stop));
    supervisor.spawn("kubelet", move |stop| kubelet(shared.clone(), shown.clone(), stop));
    Ok(())
}

/// Learns where the cluster's servers are, and turns to another when one does not answer.
async fn servers(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let identity = &shared.identity;
    let learning = async {
        identity.servers().learn(shared.proxy().await?.0.clone()).await;
        Ok::<_, String>(())
    };
    let both = futures::future::try_join(learning, identity.watch_over_servers());
    match stop.run_until_cancelled(both).await {
        Some(Err(why)) => Err(why.into()),
        _ => Ok(()),
    }
}

async fn kubelet(
    shared: Arc<Shared>,
    components: Vec<coracle_kubelet::Component>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let told = stop.run_until_cancelled(async {
        Ok::<_, BoxError>((
            shared.proxy().await?.1.clone(),
            cluster::dns_or_kept(&shared.kubelet, &shared.agent.server, &shared.agent.data_dir).await,
        ))
    });
    let Some(told) = told.await else { return Ok(()) };
    let (informers, dns) = told?;
    let agent = &shared.agent;
    let mut settings =
        coracle_kubelet::Config::new(&agent.node_name, agent.node_ip).with_second(agent.second_ip);
    settings.data_dir.clone_from(&agent.data_dir);
    settings.cluster_dns = dns.into_iter().collect();
    agent.kubelet.apply(&mut settings);
    settings.program = this_program();
    settings.components = components;
    settings.metrics = shared.metrics.kubelet.clone();
    shown::log(&settings);
    let context = Context { client: shared.kubelet.clone(), informers, stop };
    let identity = shared.identity.clone();
    let certificate = move || {
        let identity = identity.clone();
        async move { port(&identity).await }
    };
    let changed = cluster::dns_changed(&shared.kubelet, &agent.server, &agent.data_dir, dns);
    tokio::select! {
        ended = Box::pin(node::run_kubelet(context, settings, certificate)) => ended,
        // Containers outlive it.
        () = changed => Err("the cluster's DNS has another address now".into()),
    }
}

async fn port(identity: &Identity) -> Result<node::Port, BoxError> {
    let own = identity.certificate(Role::Serving).await?;
    let (tls, verifier) = joined_kubelet_tls(&identity.ca_pem(), &own.chain_pem, &own.key_pem)?;
    let judge = Arc::new(move |chain: &[CertificateDer<'_>]| verifier.verify(chain));
    Ok(node::Port { tls, judge, certificates: identity.terms(&own)? })
}

async fn proxy(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let Some(context) = stop.run_until_cancelled(shared.context(stop.clone())).await else { return Ok(()) };
    let agent = &shared.agent;
    let mut settings = site(&shared, None, Vec::new()).proxy();
    settings.forget_policies |= !agent.runs(Component::Network);
    settings.as_node = AsNode(Some(shared.kubelet.clone()));
    Ok(coracle_proxy::run(context?, settings).await?)
}

async fn network(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let agent = &shared.agent;
    if !coracle_proxy::network::is_ours(&agent.cni_conf_dir, true) {
        tracing::info!(directory = %agent.cni_conf_dir.display(), "somebody else's pod network is left as it is");
        stop.cancelled().await;
        return Ok(());
    }
    let ready = async {
        let mut addresses = agent.node_ips().all().collect::<Vec<_>>();
        for server in shared.identity.servers().all() {
            addresses.extend(cluster::addresses(&server).await);
        }
        Ok::<_, String>((shared.context(stop.clone()).await?, shared.cluster_cidr().await?, addresses))
    };
    let Some(ready) = stop.run_until_cancelled(ready).await else { return Ok(()) };
    let (context, cidr, addresses) = ready?;
    let Some(config) = site(&shared, Some(cidr), addresses).network() else {
        stop.cancelled().await;
        return Ok(());
    };
    Ok(coracle_proxy::network::run(context, config).await?)
}

/// Pods of this node ask here, with the server away, too.
async fn dns(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let agent = &shared.agent;
    let ready = async {
        let address = cluster::built_in_dns(&shared.kubelet, &agent.server).await;
        Ok::<_, String>((shared.context(stop.clone()).await?, shared.cluster_cidr().await?, address))
    };
    let Some(ready) = stop.run_until_cancelled(ready).await else { return Ok(()) };
    let (context, cidr, address) = ready?;
    let Some(cluster_dns) = address else {
        tracing::info!("somebody else answers names in this cluster");
        stop.cancelled().await;
        return Ok(());
    };
    let settings = coracle_dns::Config {
        listen: SocketAddr::new(agent.node_ip, cluster::DNS_PORT),
        node_name: agent.node_name.clone(),
        cluster_dns,
        domain: cluster::DOMAIN.to_owned(),
        clients: cidr.split(',').filter_map(|range| range.parse().ok()).collect(),
    };
    let publication = coracle_dns::Publication::Announcement(shared.kubelet.clone());
    Ok(coracle_dns::run(context, settings, publication).await?)
}

fn site(shared: &Shared, cluster_cidr: Option<String>, addresses: Vec<IpAddr>) -> node::Site<'_> {
    let agent = &shared.agent;
    node::Site {
        node_name: &agent.node_name,
        cluster_cidr,
        service_cidr: None,
        node_ips: agent.node_ips(),
        addresses,
        cni_conf_dir: &agent.cni_conf_dir,
        data_dir: &agent.data_dir,
        policy_metrics: shared.metrics.policy.clone(),
        program: this_program(),
        create: true,
    }
}
