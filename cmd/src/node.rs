//! What makes a machine a node, in the server's process and in a joined machine's alike.

use coracle_client::Context;
use coracle_kubelet::server::Judge;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PROXY_HEALTH_PORT: u16 = 10_256;
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
    let configz = configz(&settings);
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
            configz,
        };
        Ok(coracle_kubelet::server::run(context, server, pods).await?)
    };
    tokio::select! {
        served = serve => served,
        () = built.run() => Ok(()),
    }
}

/// The settings in force, under the names of upstream's KubeletConfiguration.
fn configz(settings: &coracle_kubelet::Config) -> serde_json::Value {
    let mut configuration = serde_json::json!({
        "clusterDNS": settings.cluster_dns,
        "clusterDomain": settings.cluster_domain,
        "containerRuntimeEndpoint": settings.runtime_endpoint,
        "maxPods": settings.max_pods,
        "port": settings.port,
        "staticPodPath": settings.static_pods_dir(),
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

/// The proxy's settings, and those of the pod network that goes with it where that is ours. `create`: a machine without
/// any pod network gets ours, its addresses noted below `data_dir`; otherwise scripts/up has written it, if anybody.
pub fn network(
    node_name: &str,
    cluster_cidr: &str,
    cni_conf_dir: &Path,
    data_dir: &Path,
    create: bool,
) -> (coracle_proxy::Config, Option<coracle_proxy::network::Config>) {
    let ours = coracle_proxy::network::is_ours(cni_conf_dir, create);
    let proxy = coracle_proxy::Config {
        node_name: node_name.to_owned(),
        cluster_cidr: cluster_cidr.to_owned(),
        // Others' networks see to it themselves.
        masquerade_pods: ours,
        health_address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PROXY_HEALTH_PORT),
    };
    let network = ours.then(|| coracle_proxy::network::Config {
        node_name: node_name.to_owned(),
        cni_conf_dir: cni_conf_dir.to_owned(),
        addresses_dir: create.then(|| data_dir.join("cni")),
        create,
    });
    (proxy, network)
}
