//! What makes a machine a node, in the server's process and in a joined machine's alike.

use coracle_client::Context;
use coracle_kubelet::server::Judge;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where container runtimes look for their network.
pub const CNI_CONF_DIR: &str = "/etc/cni/net.d";

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the kubelet's own port needs.
pub struct Port {
    pub tls: Arc<rustls::ServerConfig>,
    pub judge: Judge,
}

/// Runs the kubelet at once, and its port as soon as `port` is there: a joining machine's certificate names the addresses
/// of the Node that the kubelet registers. Both end together: a port without pods would answer nonsense.
pub async fn run_kubelet(
    context: Context,
    settings: coracle_kubelet::Config,
    port: impl Future<Output = Result<Port, BoxError>>,
) -> Result<(), BoxError> {
    // There from the start, so that people find where manifests go.
    std::fs::create_dir_all(settings.static_pods_dir())?;
    let addresses = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), settings.port)];
    let (node_name, pods_dir) = (settings.node_name.clone(), settings.pods_dir());
    let (configz, stream_idle) = (configz(&settings), settings.streaming_connection_idle_timeout);
    coracle_kubelet::prepare_kernel(&settings)?;
    let parts = coracle_kubelet::Parts::real(&settings);
    let built = coracle_kubelet::build(&context, settings, parts)?;
    let pods = built.pods_api();
    let serve = async {
        let Port { tls, judge } = port.await?;
        let log_root = PathBuf::from("/var/log");
        let server = coracle_kubelet::server::ServerConfig {
            addresses,
            tls,
            judge,
            node_name,
            log_root,
            pods_dir,
            stream_idle,
            configz,
        };
        Ok(coracle_kubelet::server::run(context, server, pods).await?)
    };
    let mut run = std::pin::pin!(built.run());
    tokio::select! {
        served = serve => {
            if served.is_ok() {
                // Told to stop, as the kubelet is, which has calls to bring to their end.
                run.await;
            }
            served
        }
        () = &mut run => Ok(()),
    }
}

/// The settings in force, under the names of upstream's KubeletConfiguration.
fn configz(settings: &coracle_kubelet::Config) -> serde_json::Value {
    let mut configuration = serde_json::json!({
        "clusterDNS": settings.cluster_dns,
        "clusterDomain": settings.cluster_domain,
        "containerRuntimeEndpoint": settings.runtime_endpoint,
        "port": settings.port,
        "staticPodPath": settings.static_pods_dir(),
        "streamingConnectionIdleTimeout": coracle_api::duration::written(settings.streaming_connection_idle_timeout),
    });
    let parts = [
        serde_json::json!(settings.eviction.configuration()),
        serde_json::json!(settings.node.configuration()),
    ];
    for part in parts {
        if let (Some(all), serde_json::Value::Object(part)) = (configuration.as_object_mut(), part) {
            all.extend(part);
        }
    }
    configuration
}

/// What the proxy and the pod network of a machine are told.
pub struct Site<'a> {
    pub node_name: &'a str,
    /// The addresses of all pods, where they are known.
    pub cluster_cidr: Option<&'a str>,
    /// The addresses of all Services, where they are known.
    pub service_cidr: Option<&'a str>,
    /// This machine's address and its API server's.
    pub addresses: Vec<IpAddr>,
    pub cni_conf_dir: &'a Path,
    /// Addresses of pods are noted below it, where `create`.
    pub data_dir: &'a Path,
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
            node_ips: self.addresses.iter().take(1).copied().collect(),
            cluster_cidr: self.cluster_cidr.map(str::to_owned),
            // Others' networks see to it themselves.
            masquerade_pods: self.network_is_ours(),
            ..coracle_proxy::Config::default()
        }
    }

    /// `None` where the pod network is somebody else's, or has no IPv4 addresses to give to nodes.
    pub fn network(&self) -> Option<coracle_proxy::network::Config> {
        if !self.network_is_ours() {
            return None;
        }
        let v4 = |address: &IpAddr| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(address) => address.to_ipv4_mapped(),
        };
        Some(coracle_proxy::network::Config {
            node_name: self.node_name.to_owned(),
            cluster_cidr: self.cluster_cidr?.parse().ok()?,
            service_cidr: self.service_cidr.and_then(|range| range.parse().ok()),
            kept: self.addresses.iter().filter_map(v4).collect(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            cni_conf_dir: self.cni_conf_dir.to_owned(),
            addresses_dir: self.create.then(|| self.data_dir.join("cni")),
            create: self.create,
        })
    }
}
