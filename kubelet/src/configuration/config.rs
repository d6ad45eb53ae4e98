//! What the kubelet is told when it starts.

pub use super::cluster::configured;
use super::components::Component;
pub use super::documents::{Written, load};
pub use super::eviction::{EvictionConfiguration, Settings as EvictionSettings};
pub use super::images::ImageSettings;
pub use super::kernel::KernelSettings;
pub use super::logs::LogSettings;
pub use super::node::Registration;
pub use super::port::PortSettings;
pub use super::reserved::Reserved;
pub use super::settings::{NodeConfiguration, NodeSettings};
pub use super::shutdown::{ShutdownPeriod, ShutdownSettings};
pub use super::static_pods::StaticPods;
pub use crate::cri::CgroupDriver;
use crate::metrics::Metrics;
use crate::placement::settings::Settings as PlacementSettings;
use coracle_client::events::Pace;
use coracle_listen::zpages::Program;
use coracle_storage::csi::Drivers;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
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
    /// The address of the other family, where the node has one; see [`Config::with_second`].
    pub second_ip: Option<IpAddr>,
    /// What `/statusz` and `/flagz` tell.
    pub program: Arc<Program>,
    /// The CRI socket, `unix:///run/containerd/containerd.sock`.
    pub runtime_endpoint: String,
    /// Another socket for images. `None`: the same.
    pub image_endpoint: Option<String>,
    /// How long a call to the runtime may take that only reads or starts something; upstream's two minutes.
    pub runtime_request_timeout: Duration,
    /// The root of Coracle's data, `/var/lib/coracle`.
    pub data_dir: PathBuf,
    /// The kubelet's own directory, in which pods have theirs. `None`: `<data_dir>/kubelet`.
    pub root_dir: Option<PathBuf>,
    /// Where `<namespace>_<name>_<uid>/<container>/<n>.log` are written.
    pub log_dir: PathBuf,
    /// Where a link to each container's log is kept for collectors; `None`: nowhere.
    pub log_links: Option<PathBuf>,
    /// Addresses that pods with `dnsPolicy: ClusterFirst` ask.
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    pub static_pods: StaticPods,
    pub port: PortSettings,
    /// Labels beside the well-known ones.
    pub node_labels: Vec<(String, String)>,
    pub registration: Registration,
    /// The resolv.conf that `dnsPolicy: Default` copies; an empty path is an empty file.
    pub resolv_conf: PathBuf,
    /// Name of the sandbox image, imported when the runtime lacks it.
    pub pause_image: String,
    pub logs: LogSettings,
    pub images: ImageSettings,
    /// When the node reports pressure, takes no new pods and evicts some.
    pub eviction: EvictionSettings,
    /// What of the machine is kept from pods.
    pub reserved: Reserved,
    /// How pods are confined.
    pub node: NodeSettings,
    pub kernel: KernelSettings,
    /// Which containers get CPUs and memory of their own.
    pub placement: PlacementSettings,
    /// How long pods have to end when the machine is shut down.
    pub shutdown: ShutdownSettings,
    /// How many events are written; `None`: as many as come.
    pub events: Option<Pace>,
    /// The longest pause before a container that keeps ending is started anew; upstream's five minutes.
    pub max_restart_period: Duration,
    /// How long a runtime that answered before may be silent until the node is not ready; upstream's 30 s.
    pub runtime_patience: Duration,
    /// Where the CSI drivers are noted that offer themselves, for others of the process to see.
    pub drivers: Drivers,
    /// Where the kubelet counts what it does; another kubelet with a clone of these settings goes on counting there.
    pub metrics: Metrics,
    /// How long a DRA driver may stay away before its ResourceSlices are removed; upstream's. Less, and a driver that is
    /// replaced loses them; more, and pods are sent here for devices that nobody prepares.
    pub dra_patience: Duration,
    /// After so long without a byte exec, attach and port-forward are ended; zero is never.
    pub streaming_connection_idle_timeout: Duration,
    /// There is no API server: static pods are all that runs.
    pub standalone: bool,
    /// Parts of this process that are shown as pods.
    pub components: Vec<Component>,
    /// What was laid together and applied, by the names of KubeletConfiguration's fields.
    pub written: Written,
    /// These settings without what the cluster says, where that is followed.
    pub local: Option<Arc<Config>>,
}

impl Config {
    /// With an address of the other family, too. The kubelet's port listens for both unless settings say otherwise.
    #[must_use]
    pub fn with_second(mut self, ip: Option<IpAddr>) -> Self {
        self.second_ip = ip;
        self.port.address = self.anywhere();
        self
    }

    /// All of the machine's addresses: of both families, where the node has one of IPv6.
    pub(super) fn anywhere(&self) -> IpAddr {
        let six = self.node_ips().any(|ip| ip.is_ipv6());
        if six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
    }

    /// The node's addresses, the primary one first.
    pub fn node_ips(&self) -> impl Iterator<Item = IpAddr> {
        std::iter::once(self.node_ip).chain(self.second_ip)
    }

    /// The same as statuses write them.
    pub fn host_ips(&self) -> Vec<String> {
        self.node_ips().map(|ip| ip.to_string()).collect()
    }

    /// The defaults for a node of this name and address.
    pub fn new(node_name: impl Into<String>, node_ip: IpAddr) -> Self {
        Self {
            node_name: node_name.into(),
            node_ip,
            second_ip: None,
            runtime_endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
            image_endpoint: None,
            runtime_request_timeout: Duration::from_secs(120),
            data_dir: PathBuf::from("/var/lib/coracle"),
            root_dir: None,
            log_dir: PathBuf::from("/var/log/pods"),
            log_links: None,
            cluster_dns: vec![IpAddr::from([10, 43, 0, 10])],
            cluster_domain: "cluster.local".to_owned(),
            static_pods: StaticPods::default(),
            port: PortSettings::default(),
            program: Arc::default(),
            node_labels: Vec::new(),
            registration: Registration::default(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            pause_image: "coracle.local/pause:1".to_owned(),
            logs: LogSettings::default(),
            images: ImageSettings::default(),
            eviction: EvictionSettings::default(),
            reserved: Reserved::default(),
            node: NodeSettings::default(),
            kernel: KernelSettings::default(),
            placement: PlacementSettings::default(),
            shutdown: ShutdownSettings::default(),
            events: Some(Pace::default()),
            max_restart_period: crate::pod_facts::backoff::MAX,
            runtime_patience: Duration::from_secs(30),
            drivers: Drivers::default(),
            metrics: Metrics::default(),
            dra_patience: Duration::from_secs(30),
            streaming_connection_idle_timeout: STREAMING_CONNECTION_IDLE_TIMEOUT,
            standalone: false,
            components: Vec::new(),
            written: Written::new(),
            local: None,
        }
    }

    /// The kubelet's own directory.
    pub fn root(&self) -> PathBuf {
        self.root_dir.clone().unwrap_or_else(|| self.data_dir.join("kubelet"))
    }

    /// Where this node keeps volumes of local-path.
    pub fn local_path(&self) -> PathBuf {
        coracle_storage::local_path_root(&self.data_dir)
    }

    pub fn pods_dir(&self) -> PathBuf {
        self.root().join("pods")
    }

    pub fn static_pods_dir(&self) -> PathBuf {
        self.static_pods.path.clone().unwrap_or_else(|| self.data_dir.join("static-pods"))
    }
}
