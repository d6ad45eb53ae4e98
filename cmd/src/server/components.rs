//! Which components run, as whom, and with what settings.

use super::control_plane::{ControlPlane, service_address};
use super::following::Following;
use super::identity::Clients;
use super::living::Living;
use crate::address::{Choice, NodeIps, follow};
use crate::certificates::terms::{Serving, Terms};
use crate::cluster;
use crate::config::{Component, Config};
use crate::node;
use crate::parts::leading::{identity, work_while_leading};
use crate::parts::signing::SecretTokens;
use crate::shown;
use crate::supervise::Supervisor;
use coracle_apiserver::metrics::Metrics;
use coracle_apiserver::pki::{Pki, Signer};
use coracle_client::beat::{self, Patience};
use coracle_client::leader::{Candidate, Times};
use coracle_client::{Context, Informers};
use coracle_controllers::certificates::{KUBELET_SERVING, Reserved};
use coracle_kubelet::simulate::{Family, SimulateConfig, run_simulated};
use coracle_proxy::AsNode;
use coracle_proxy::policy::metrics::Metrics as PolicyMetrics;
use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

/// Between servers on one store: whoever leads is followed within 15 seconds of its death.
const LEADING: Times =
    Times { lease: Duration::from_secs(12), renew: Duration::from_secs(8), retry: Duration::from_secs(2) };

/// What a component's start needs; one for all components.
#[derive(Clone)]
struct Base {
    clients: Clients,
    informers: Informers,
    /// Who this server is among those on one store; `None` where there are no others.
    candidate: Option<String>,
    /// The node's, of now.
    addresses: Receiver<NodeIps>,
    policy_metrics: Arc<PolicyMetrics>,
}

impl Base {
    /// Runs `work` where this is the only server, or while it holds the Lease.
    async fn lead<R, E>(
        &self,
        lease: &str,
        client: kube::Client,
        stop: CancellationToken,
        work: impl FnOnce(CancellationToken) -> R,
    ) -> Result<(), String>
    where
        R: Future<Output = Result<(), E>>,
        E: std::error::Error,
    {
        let candidate = self.candidate.clone().map(|identity| Candidate {
            client,
            namespace: "kube-system".to_owned(),
            lease: lease.to_owned(),
            identity,
            times: LEADING,
        });
        let leading = AtomicBool::default();
        let done = |stop| async move { work(stop).await.map_err(|error| coracle_api::error::chain(&error)) };
        work_while_leading(candidate, &leading, &stop, done).await
    }

    fn context(&self, client: kube::Client, stop: CancellationToken) -> Context {
        Context { client, informers: self.informers.clone(), stop }
    }
}

/// Starts everything that is not disabled.
pub fn spawn_all(supervisor: &mut Supervisor, control_plane: &ControlPlane, config: &Config) {
    let clients = Clients::new(control_plane.api.clone());
    let informers =
        Informers::new(clients.privileged("system:coracle:informers"), control_plane.api.stop().clone());
    let candidate = config.backend.is_shared().then(identity);
    let addresses = control_plane.following.addresses.subscribe();
    let base = Base { clients, informers, candidate, addresses, policy_metrics: Arc::default() };
    let metrics = control_plane.api.metrics();
    metrics.collect_as("clients", coracle_client::metrics::render);
    crate::cert::metrics::show(metrics, &config.data_dir, &config.kubeconfig);
    let drivers = coracle_storage::csi::Drivers::default();
    api(supervisor, control_plane);
    cluster_ips(supervisor, base.clone());
    if base.candidate.is_some() {
        living(supervisor, base.clone(), control_plane.following.port);
    }
    if let Some(choice) = config.address_choice.clone() {
        node_address(supervisor, control_plane.following.clone(), choice);
    }
    if config.runs(Component::Scheduler) {
        scheduler(supervisor, base.clone(), metrics);
    }
    if config.runs(Component::Controllers) {
        controllers(supervisor, base.clone(), control_plane, config);
        volume_controllers(supervisor, base.clone(), control_plane, config);
    }
    if config.runs(Component::Storage) && config.runs(Component::Kubelet) {
        local_path(supervisor, base.clone(), config);
        nfs(supervisor, base.clone(), config);
        csi(supervisor, base.clone(), drivers.clone());
    }
    if config.simulate_nodes > 0 {
        simulated_nodes(supervisor, base.clone(), config);
    }
    if config.runs(Component::Proxy) {
        proxy(supervisor, base.clone(), config);
    }
    if config.runs(Component::Network) && runs_a_node(config) {
        network(supervisor, base.clone(), config);
    }
    if config.runs(Component::Manifests) {
        manifests(supervisor, base.clone(), config);
    }
    if config.runs(Component::Dns) {
        dns(supervisor, base.clone(), config);
    }
    // The others are known by now, which it shows.
    if config.runs(Component::Kubelet) {
        kubelet(supervisor, base, control_plane, config, drivers);
    } else {
        shown::nothing();
    }
}

/// Between two beats of the API server.
const API_BEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Nothing is restarted by it: while it hangs `/livez` says so, and twice in a row the process ends.
fn api(supervisor: &mut Supervisor, control_plane: &ControlPlane) {
    let pulse = Arc::new(control_plane.pulse());
    supervisor.spawn("api", move |stop| {
        let pulse = pulse.clone();
        async move {
            while stop.run_until_cancelled(tokio::time::sleep(API_BEAT_INTERVAL)).await.is_some() {
                if let Err(why) = beat::working(Patience::Usual, pulse()).await {
                    tracing::debug!(%why, "the store does not read");
                }
            }
            Ok::<_, std::convert::Infallible>(())
        }
    });
}

/// The server's own work, whoever runs the controllers.
fn cluster_ips(supervisor: &mut Supervisor, base: Base) {
    supervisor.spawn("cluster-ips", move |stop| {
        let context = base.context(base.clients.privileged("system:apiserver"), stop);
        async move {
            coracle_controllers::clusterip::run(context).await;
            Ok::<_, std::convert::Infallible>(())
        }
    });
}

/// What the Service `kubernetes` leads to.
fn living(supervisor: &mut Supervisor, base: Base, port: u16) {
    supervisor.spawn("api-endpoints", move |stop| {
        let clients = base.clients.clone();
        follow::at_each(base.addresses.clone(), stop, move |ips, stop| {
            let client = clients.privileged("system:apiserver");
            let address = SocketAddr::new(ips.first, port);
            Living { client, address, identity: identity() }.run(stop)
        })
    });
}

/// Takes in that the machine has another address.
fn node_address(supervisor: &mut Supervisor, following: Arc<Following>, choice: Choice) {
    supervisor.spawn("node-address", move |stop| {
        let (following, choice) = (following.clone(), choice.clone());
        async move { following.run(&choice, stop).await }
    });
}

fn scheduler(supervisor: &mut Supervisor, base: Base, page: &Metrics) {
    let options = coracle_scheduler::Options {
        live: Some(base.clients.privileged("system:coracle:scheduler-config")),
        ..coracle_scheduler::Options::default()
    };
    let metrics = options.metrics.clone();
    page.collect_as("scheduler", move |text| {
        metrics.render(text);
    });
    let pods = crate::parts::scheduler::pods(base.informers.clone());
    page.serve_at(coracle_scheduler::metrics::resources::PATH, move |text| pods(text));
    supervisor.spawn("scheduler", move |stop| {
        let (base, options) = (base.clone(), options.clone());
        async move {
            let client = base.clients.user("system:kube-scheduler");
            let work = |stop| coracle_scheduler::run(base.context(client.clone(), stop), options);
            base.lead("kube-scheduler", client.clone(), stop, work).await
        }
    });
}

fn controllers(supervisor: &mut Supervisor, base: Base, control_plane: &ControlPlane, config: &Config) {
    let accounts = base.clients.clone();
    let metrics = Arc::<coracle_controllers::metrics::Metrics>::default();
    let shown = metrics.clone();
    control_plane.api.metrics().collect_as("controllers", move |text| {
        shown.render(text);
    });
    let settings = coracle_controllers::Config {
        root_ca: control_plane.pki.ca_changes().into(),
        cluster_cidr: config.cluster_cidr.to_string().parse().ok(),
        client_for: Some(Arc::new(move |name: &str| accounts.service_account(name))),
        legacy_tokens: Some(Arc::new(SecretTokens(control_plane.tokens.clone()))),
        certificate_signer: Some(Arc::new(ClusterAuthority(control_plane.pki.clone()))),
        reserved_names: reserved(control_plane.pki.clone(), config),
        foreign_load_balancers: !config.runs(Component::LoadBalancers),
        lifecycle: config.lifecycle,
        metrics,
    };
    supervisor.spawn("controllers", move |stop| {
        let (base, settings) = (base.clone(), settings.clone());
        async move {
            let client = base.clients.user("system:kube-controller-manager");
            let work = |stop| coracle_controllers::run(base.context(client.clone(), stop), settings);
            base.lead("kube-controller-manager", client.clone(), stop, work).await
        }
    });
}

/// What no joining machine gets a certificate for.
fn reserved(pki: Arc<Pki>, config: &Config) -> Reserved {
    Reserved { networks: networks(config), api_server: Some(Arc::new(move || pki.server_names())) }
}

/// The addresses of pods and of Services.
fn networks(config: &Config) -> Vec<IpNet> {
    config.cluster_cidr.iter().chain(config.service_cidr.iter()).collect()
}

/// Upstream's controller manager has the binder and the protections, too: who puts it in the place of ours must find none
/// of them at work.
fn volume_controllers(
    supervisor: &mut Supervisor,
    base: Base,
    control_plane: &ControlPlane,
    config: &Config,
) {
    let accounts = base.clients.clone();
    let client_for: coracle_storage::ClientFor = Arc::new(move |name: &str| accounts.service_account(name));
    let metrics = Arc::<coracle_storage::metrics::Metrics>::default();
    let shown = metrics.clone();
    control_plane.api.metrics().collect_as("persistent-volumes", move |text| {
        shown.render(text);
    });
    let here = config
        .runs(Component::Kubelet)
        .then(|| coracle_storage::Here { node_name: config.node_name.clone(), nfs: shares(config) });
    supervisor.spawn("storage", move |stop| {
        let (base, client_for, here) = (base.clone(), client_for.clone(), here.clone());
        let metrics = metrics.clone();
        async move {
            let candidate = base.clients.privileged("system:coracle:storage");
            let client = base.clients.user("system:kube-controller-manager");
            let settings = coracle_storage::Config { client_for: Some(client_for), here, metrics };
            let work = |stop| coracle_storage::run_controllers(base.context(client, stop), settings);
            base.lead("coracle-storage", candidate, stop, work).await
        }
    });
}

/// Makes, moves and deletes directories of this node, and has other nodes do it for theirs.
fn local_path(supervisor: &mut Supervisor, base: Base, config: &Config) {
    let settings = coracle_storage::LocalPathConfig {
        node_name: config.node_name.clone(),
        root: coracle_storage::local_path_root(&config.data_dir),
        mounter: Arc::new(coracle_storage::volumes::LinuxMounter),
        carrier: None,
    };
    supervisor.spawn("local-path", move |stop| {
        let (base, settings) = (base.clone(), settings.clone());
        async move {
            let client = base.clients.privileged("system:coracle:local-path");
            let work = |stop| coracle_storage::run_local_path(base.context(client.clone(), stop), settings);
            base.lead("coracle-local-path", client.clone(), stop, work).await
        }
    });
}

/// How this machine mounts shares, to work in them.
fn shares(config: &Config) -> coracle_storage::NfsConfig {
    coracle_storage::NfsConfig {
        root: config.data_dir.join("nfs"),
        mounter: Arc::new(coracle_storage::volumes::LinuxMounter),
    }
}

/// Works for the whole cluster: directories of a share are the same from anywhere.
fn nfs(supervisor: &mut Supervisor, base: Base, config: &Config) {
    let settings = shares(config);
    supervisor.spawn("nfs-provisioner", move |stop| {
        let (base, settings) = (base.clone(), settings.clone());
        async move {
            let client = base.clients.privileged("system:coracle:nfs-provisioner");
            let work = |stop| coracle_storage::run_nfs(base.context(client.clone(), stop), settings);
            base.lead("coracle-nfs", client.clone(), stop, work).await
        }
    });
}

/// Makes, attaches and grows the volumes of drivers that are registered here and were handed over.
fn csi(supervisor: &mut Supervisor, base: Base, drivers: coracle_storage::csi::Drivers) {
    let settings = coracle_storage::CsiConfig::new(drivers);
    supervisor.spawn("csi-controller", move |stop| {
        let context = base.context(base.clients.privileged("system:coracle:csi-controller"), stop);
        coracle_storage::run_csi(context, settings.clone())
    });
}

fn simulated_nodes(supervisor: &mut Supervisor, base: Base, config: &Config) {
    let count = usize::try_from(config.simulate_nodes).unwrap_or(usize::MAX);
    let family = |range: IpNet| if range.addr().is_ipv6() { Family::V6 } else { Family::V4 };
    let families: Vec<Family> = config.cluster_cidr.iter().map(family).collect();
    supervisor.spawn("simulated-nodes", move |stop| {
        let context = base.context(base.clients.privileged("system:coracle:simulated-nodes"), stop);
        run_simulated(
            context,
            SimulateConfig { count, families: families.clone(), ..SimulateConfig::default() },
        )
    });
}

fn kubelet(
    supervisor: &mut Supervisor,
    base: Base,
    control_plane: &ControlPlane,
    config: &Config,
    drivers: coracle_storage::csi::Drivers,
) {
    let mut settings =
        coracle_kubelet::Config::new(&config.node_name, config.node_ip).with_second(config.second_ip);
    settings.data_dir.clone_from(&config.data_dir);
    settings.cluster_dns = vec![service_address(config, 10)];
    config.kubelet.apply(&mut settings);
    settings.program = config.program.clone();
    settings.drivers = drivers;
    if config.runs(Component::ShownPods) {
        shown::all(&mut settings, supervisor, true);
    } else {
        shown::nothing();
    }
    let pki = control_plane.pki.clone();
    supervisor.spawn("kubelet", move |stop| {
        let (base, settings, pki) = (base.clone(), settings.clone(), pki.clone());
        follow::at_each(base.addresses.clone(), stop, move |ips, stop| {
            let context = base.context(base.clients.node(&settings.node_name), stop);
            let pki = pki.clone();
            let certificate = move || {
                let pki = pki.clone();
                async move { port(&pki) }
            };
            let (node_ip, second_ip) = (ips.first, ips.second);
            let settings = coracle_kubelet::Config { node_ip, second_ip, ..settings.clone() };
            node::run_kubelet(context, settings, certificate)
        })
    });
}

fn port(pki: &Arc<Pki>) -> Result<node::Port, node::BoxError> {
    let verifier = pki.client_verifier()?;
    let judge = Arc::new(move |chain: &[CertificateDer<'_>]| verifier.verify(chain));
    // Towards the API it needs none: it calls within the process.
    let certificates =
        Terms { client: None, serving: Serving::Server(pki.clone()), failures: Arc::default() };
    Ok(node::Port { tls: pki.kubelet_server_tls()?, judge, certificates })
}

/// The pod network is a node's: where neither part of one is ours, it is whoever's they are.
fn runs_a_node(config: &Config) -> bool {
    config.runs(Component::Kubelet) || config.runs(Component::Proxy)
}

fn site<'a>(config: &'a Config, base: &Base) -> node::Site<'a> {
    let ips = config.node_ips();
    node::Site {
        node_name: &config.node_name,
        cluster_cidr: Some(config.cluster_cidr.to_string()),
        service_cidr: Some(config.service_cidr.to_string()),
        node_ips: ips,
        addresses: ips.all().collect(),
        cni_conf_dir: Path::new(node::CNI_CONF_DIR),
        data_dir: &config.data_dir,
        policy_metrics: base.policy_metrics.clone(),
        program: config.program.clone(),
        create: false,
    }
}

fn proxy(supervisor: &mut Supervisor, base: Base, config: &Config) {
    let mut settings = site(config, &base).proxy();
    settings.forget_policies |= !config.runs(Component::Network);
    settings.as_node = AsNode(Some(base.clients.node(&config.node_name)));
    supervisor.spawn("proxy", move |stop| {
        let (base, settings) = (base.clone(), settings.clone());
        follow::at_each(base.addresses.clone(), stop, move |ips, stop| {
            let context = base.context(base.clients.user("system:kube-proxy"), stop);
            let node_ips = ips.all().collect();
            coracle_proxy::run(context, coracle_proxy::Config { node_ips, ..settings.clone() })
        })
    });
}

fn network(supervisor: &mut Supervisor, base: Base, config: &Config) {
    let Some(settings) = site(config, &base).network() else { return };
    supervisor.spawn("network", move |stop| {
        let (base, settings) = (base.clone(), settings.clone());
        follow::at_each(base.addresses.clone(), stop, move |ips, stop| {
            let context = base.context(base.clients.user("system:kube-proxy"), stop);
            let kept = ips.all().map(|ip| ip.to_canonical()).collect();
            coracle_proxy::network::run(context, coracle_proxy::network::Config { kept, ..settings.clone() })
        })
    });
}

/// Who may write into the data directory owns the cluster anyway.
fn manifests(supervisor: &mut Supervisor, base: Base, config: &Config) {
    let settings = coracle_manifests::Config {
        directory: config.data_dir.join("manifests"),
        memory: config.data_dir.join("manifests-applied.json"),
        kubeconfig: config.kubeconfig.clone(),
        helm_home: config.data_dir.join("helm"),
    };
    supervisor.spawn("manifests", move |stop| {
        let context = base.context(base.clients.privileged("system:coracle:manifests"), stop);
        coracle_manifests::run(context, settings.clone())
    });
}

fn dns(supervisor: &mut Supervisor, base: Base, config: &Config) {
    let settings = coracle_dns::Config {
        listen: SocketAddr::new(config.node_ip, cluster::DNS_PORT),
        node_name: config.node_name.clone(),
        cluster_dns: service_address(config, 10),
        domain: cluster::DOMAIN.to_owned(),
        clients: networks(config),
    };
    supervisor.spawn("dns", move |stop| {
        let (base, settings) = (base.clone(), settings.clone());
        follow::at_each(base.addresses.clone(), stop, move |ips, stop| {
            let context = base.context(base.clients.service_account("coredns"), stop);
            let listen = SocketAddr::new(ips.first, cluster::DNS_PORT);
            let settings = coracle_dns::Config { listen, ..settings.clone() };
            coracle_dns::run(context, settings, coracle_dns::Publication::Endpoints)
        })
    });
}

/// Signs certificate requests with the cluster's own authorities.
struct ClusterAuthority(Arc<Pki>);

impl coracle_controllers::CertificateSigner for ClusterAuthority {
    fn sign(
        &self,
        signer_name: &str,
        request_pem: &[u8],
        usages: &[&str],
        life: Duration,
    ) -> Result<String, String> {
        let serving = signer_name == KUBELET_SERVING;
        let signer = if serving { Signer::KubeletServing } else { Signer::Cluster };
        self.0.sign_request(signer, request_pem, usages, life).map_err(|e| e.to_string())
    }
}
