//! What makes a machine a node, in the server's process and in a joined machine's alike.

use crate::address::NodeIps;
use crate::certificates::terms::Terms;
use coracle_apiserver::metrics;
use coracle_client::Context;
use coracle_kubelet::Ended;
use coracle_kubelet::server::{Configz, Judge};
use coracle_listen::zpages::Program;
use coracle_proxy::policy::metrics::Metrics as PolicyMetrics;
use coracle_storage::transfer::NodeVolumes;
use coracle_storage::volumes::LinuxMounter;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where collectors look for containers' logs.
const LOG_LINKS: &str = "/var/log/containers";
/// Where container runtimes look for their network.
pub const CNI_CONF_DIR: &str = "/etc/cni/net.d";

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The Node of this machine, as events name it: it need not be there yet.
pub fn regarding(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

/// What the kubelet's own port needs.
pub struct Port {
    pub tls: Arc<rustls::ServerConfig>,
    pub judge: Judge,
    pub certificates: Terms,
}

/// Runs the kubelet with what the cluster says below its settings, and anew when that takes another one: containers outlive
/// it. `port` is asked for the port's certificate each time.
pub async fn run_kubelet<F>(
    context: Context,
    mut local: coracle_kubelet::Config,
    port: impl Fn() -> F,
) -> Result<(), BoxError>
where
    F: Future<Output = Result<Port, BoxError>>,
{
    local.log_links = Some(PathBuf::from(LOG_LINKS));
    if local.standalone {
        return Box::pin(run_once(&context, local, port())).await.map(drop);
    }
    loop {
        let configured = coracle_kubelet::config::configured(&context.client, local.clone());
        let Some(settings) = context.stop.run_until_cancelled(Box::pin(configured)).await else {
            return Ok(());
        };
        match Box::pin(run_once(&context, settings, port())).await? {
            Ended::Stopped => return Ok(()),
            Ended::Reconfigured => tracing::info!("the kubelet begins anew with other settings"),
        }
    }
}

/// Runs the kubelet at once, and its port as soon as `port` is there: a joining machine's certificate names the addresses
/// of the Node that the kubelet registers. Both end together: a port without pods would answer nonsense.
async fn run_once(
    context: &Context,
    settings: coracle_kubelet::Config,
    port: impl Future<Output = Result<Port, BoxError>>,
) -> Result<Ended, BoxError> {
    let stop = context.stop.child_token();
    let _ends = stop.clone().drop_guard();
    let context = Context { stop: stop.clone(), ..context.clone() };
    if settings.static_pods.path.is_none() {
        // There from the start, so that people find where manifests go.
        std::fs::create_dir_all(settings.static_pods_dir())?;
    }
    coracle_kubelet::prepare_kernel(&settings)?;
    let parts = coracle_kubelet::Parts::real(&settings);
    let (healthz, metrics) = (settings.port.healthz, settings.metrics.clone());
    let server = ServerParts::of(&settings);
    let built = coracle_kubelet::build(&context, settings, parts)?;
    let (pods, configz) = (built.pods_api(), built.configz());
    let serve = async {
        // Nobody could say who may ask.
        if !server.port.serve || server.standalone {
            stop.cancelled().await;
            return Ok(());
        }
        let server = server.with(port.await?, configz);
        Ok::<_, BoxError>(coracle_kubelet::server::run(context.clone(), server, pods).await?)
    };
    if let Some(address) = healthz {
        tokio::spawn(coracle_kubelet::server::healthz(address, metrics, stop.clone()));
    }
    let mut run = std::pin::pin!(built.run());
    tokio::select! {
        served = serve => {
            served?;
            // Told to stop, as the kubelet is, which has calls to bring to their end.
            Ok(run.await)
        }
        ended = &mut run => Ok(ended),
    }
}

/// What the port needs of the settings.
struct ServerParts {
    port: coracle_kubelet::config::PortSettings,
    node_name: String,
    pods_dir: PathBuf,
    volumes: NodeVolumes,
    stream_idle: std::time::Duration,
    standalone: bool,
    metrics: coracle_kubelet::metrics::Metrics,
    program: Arc<Program>,
}

impl ServerParts {
    fn of(settings: &coracle_kubelet::Config) -> Self {
        Self {
            port: settings.port.clone(),
            node_name: settings.node_name.clone(),
            pods_dir: settings.pods_dir(),
            volumes: NodeVolumes::new(settings.local_path(), Arc::new(LinuxMounter)),
            stream_idle: settings.streaming_connection_idle_timeout,
            standalone: settings.standalone,
            metrics: settings.metrics.clone(),
            program: settings.program.clone(),
        }
    }

    fn with(
        self,
        Port { tls, judge, certificates }: Port,
        configz: Configz,
    ) -> coracle_kubelet::server::ServerConfig {
        let Self { port, node_name, pods_dir, volumes, stream_idle, metrics: own, program, .. } = self;
        let log_root = PathBuf::from("/var/log");
        coracle_kubelet::server::ServerConfig {
            port,
            tls,
            judge,
            node_name,
            log_root,
            pods_dir,
            volumes,
            stream_idle,
            configz,
            program,
            metrics: own,
            process_metrics: Arc::new(move || {
                metrics::render_process(|page| {
                    coracle_client::metrics::render(page);
                    certificates.render(page, Timestamp::now());
                })
            }),
        }
    }
}

/// What the proxy and the pod network of a machine are told.
pub struct Site<'a> {
    pub node_name: &'a str,
    /// The addresses of all pods, where they are known; of both families with a comma between.
    pub cluster_cidr: Option<String>,
    /// The addresses of all Services, where they are known.
    pub service_cidr: Option<String>,
    pub node_ips: NodeIps,
    /// This machine's addresses and its API server's.
    pub addresses: Vec<IpAddr>,
    pub cni_conf_dir: &'a Path,
    /// Addresses of pods are noted below it, where `create`.
    pub data_dir: &'a Path,
    /// What the keeping of NetworkPolicies counts, for the proxy to show.
    pub policy_metrics: Arc<PolicyMetrics>,
    pub program: Arc<Program>,
    /// Whether a machine without any pod network gets ours; otherwise scripts/up has written it, if anybody.
    pub create: bool,
}

impl Site<'_> {
    fn network_is_ours(&self) -> bool {
        coracle_proxy::network::is_ours(self.cni_conf_dir, self.create)
    }

    pub fn proxy(&self) -> coracle_proxy::Config {
        coracle_proxy::Config {
            node_name: self.node_name.to_owned(),
            node_ips: self.node_ips.all().collect(),
            cluster_cidr: self.cluster_cidr.clone(),
            // Others' networks see to it themselves.
            masquerade_pods: self.network_is_ours(),
            forget_policies: !self.network_is_ours(),
            policy_metrics: self.policy_metrics.clone(),
            program: self.program.clone(),
            ..coracle_proxy::Config::default()
        }
    }

    /// `None` where the pod network is somebody else's, or has no addresses to give to nodes.
    pub fn network(&self) -> Option<coracle_proxy::network::Config> {
        if !self.network_is_ours() {
            return None;
        }
        let ranges = |text: &Option<String>| -> Vec<IpNet> {
            text.iter()
                .flat_map(|text| text.split(','))
                .filter_map(|range| range.trim().parse().ok())
                .collect()
        };
        let cluster_cidrs = ranges(&self.cluster_cidr);
        if cluster_cidrs.is_empty() {
            return None;
        }
        Some(coracle_proxy::network::Config {
            node_name: self.node_name.to_owned(),
            cluster_cidrs,
            service_cidrs: ranges(&self.service_cidr),
            kept: self.addresses.iter().map(IpAddr::to_canonical).collect(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            cni_conf_dir: self.cni_conf_dir.to_owned(),
            addresses_dir: self.create.then(|| self.data_dir.join("cni")),
            policy_metrics: self.policy_metrics.clone(),
            create: self.create,
        })
    }
}
