//! What the kubelet is told when it starts.

pub use crate::eviction::settings::{EvictionConfiguration, Settings as EvictionSettings};
pub use crate::settings::{NodeConfiguration, NodeSettings};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Upstream's default, in force where nobody chooses.
pub const STREAMING_CONNECTION_IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// Plain data; every field has upstream's default except those that name this node.
#[derive(Clone, Debug)]
pub struct Config {
    /// `metadata.name` of the Node, lower case.
    pub node_name: String,
    /// The address reported as InternalIP, and the host IP of every pod.
    pub node_ip: IpAddr,
    /// The CRI socket, `unix:///run/containerd/containerd.sock`.
    pub runtime_endpoint: String,
    /// The root of Coracle's data, `/var/lib/coracle`; pods live in its `kubelet/pods`.
    pub data_dir: PathBuf,
    /// Where `<namespace>_<name>_<uid>/<container>/<n>.log` are written.
    pub log_dir: PathBuf,
    /// Addresses that pods with `dnsPolicy: ClusterFirst` ask.
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// Directory of static pod manifests; `None` means `<data_dir>/static-pods`.
    pub static_pod_path: Option<PathBuf>,
    /// The port of the kubelet's own server, for `status.daemonEndpoints`.
    pub port: u16,
    /// Labels beside the well-known ones.
    pub node_labels: Vec<(String, String)>,
    /// How often the Lease in kube-node-lease is renewed; upstream: a quarter of 40 s.
    pub lease_renew_interval: Duration,
    /// How often node status is written though nothing changed; upstream's nodeStatusReportFrequency.
    pub status_report_interval: Duration,
    /// The resolv.conf that `dnsPolicy: Default` copies.
    pub resolv_conf: PathBuf,
    /// Name of the sandbox image, imported when the runtime lacks it.
    pub pause_image: String,
    /// Bytes after which a container's log is rotated, and how many files are kept; upstream's defaults.
    pub container_log_max_bytes: u64,
    pub container_log_max_files: u32,
    /// When the node reports pressure, takes no new pods and evicts some.
    pub eviction: EvictionSettings,
    /// How pods are confined.
    pub node: NodeSettings,
    /// How long a runtime that answered before may be silent until the node is not ready; upstream's 30 s.
    pub runtime_patience: Duration,
    /// After so long without a byte exec, attach and port-forward are ended; zero is never.
    pub streaming_connection_idle_timeout: Duration,
}

impl Config {
    /// The defaults for a node of this name and address.
    pub fn new(node_name: impl Into<String>, node_ip: IpAddr) -> Self {
        Self {
            node_name: node_name.into(),
            node_ip,
            runtime_endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
            data_dir: PathBuf::from("/var/lib/coracle"),
            log_dir: PathBuf::from("/var/log/pods"),
            cluster_dns: vec![IpAddr::from([10, 43, 0, 10])],
            cluster_domain: "cluster.local".to_owned(),
            static_pod_path: None,
            port: 10250,
            node_labels: Vec::new(),
            lease_renew_interval: Duration::from_secs(10),
            status_report_interval: Duration::from_secs(300),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            pause_image: "coracle.local/pause:1".to_owned(),
            container_log_max_bytes: 10 * 1024 * 1024,
            container_log_max_files: 5,
            eviction: EvictionSettings::default(),
            node: NodeSettings::default(),
            runtime_patience: Duration::from_secs(30),
            streaming_connection_idle_timeout: STREAMING_CONNECTION_IDLE_TIMEOUT,
        }
    }

    pub fn pods_dir(&self) -> PathBuf {
        self.data_dir.join("kubelet/pods")
    }

    pub fn static_pods_dir(&self) -> PathBuf {
        self.static_pod_path.clone().unwrap_or_else(|| self.data_dir.join("static-pods"))
    }
}
