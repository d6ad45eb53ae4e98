//! The command lines of the parts, under the names of upstream's flags.

use crate::address::NodeIps;
use crate::eviction::EvictionArgs;
use crate::kubelet::KubeletArgs;
use crate::lifecycle::LifecycleArgs;
use crate::time::Time;
use clap::{Args, ValueEnum};
use coracle_client::leader::Times;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub struct SchedulerArgs {
    /// Whom to ask, and as whom
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/etc/coracle/admin.conf")]
    pub kubeconfig: PathBuf,
    /// KubeSchedulerConfiguration [default: upstream's default profile]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Port of /healthz, /livez, /readyz and /metrics, over HTTPS; 0 for none [default: 10259, if nobody has it]
    #[arg(long, value_name = "PORT")]
    pub secure_port: Option<u16>,
    /// Where that port listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
}

#[derive(Args)]
pub struct ControllersArgs {
    /// Whom to ask, and as whom: system:kube-controller-manager. Each controller acts as its own service account in
    /// kube-system, by tokens that are asked for with this identity
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/etc/coracle/admin.conf")]
    pub kubeconfig: PathBuf,
    #[command(flatten)]
    pub election: ElectionArgs,
    #[command(flatten)]
    pub signing: SigningArgs,
    #[command(flatten)]
    pub lifecycle: LifecycleArgs,
    /// PEM of the authority that namespaces get in the ConfigMap kube-root-ca.crt [default: the kubeconfig's]
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,
    /// Addresses of pods: each node gets a range of them [default: nodes get none]
    #[arg(long, value_name = "CIDR")]
    pub cluster_cidr: Option<String>,
    /// Addresses of Services, which no node's certificate may name
    #[arg(long, value_name = "CIDR")]
    pub service_cluster_ip_range: Option<String>,
    /// Controllers to leave out: load-balancers
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub disable: Vec<String>,
    /// Port of /healthz, /livez, /readyz and /metrics, over HTTPS; 0 for none [default: 10257, if nobody has it]
    #[arg(long, value_name = "PORT")]
    pub secure_port: Option<u16>,
    /// Where that port listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// More of the log: 3 shows requests, 4 what components do, 6 everything [default: 2]
    #[arg(long, short = 'v', value_name = "LEVEL")]
    pub v: Option<u8>,
}

#[derive(Args)]
pub struct ElectionArgs {
    /// Whether to work only while holding the lease kube-controller-manager in kube-system
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// After how long without renewal another may take the lease [default: 15s]
    #[arg(long, value_name = "DURATION")]
    pub leader_elect_lease_duration: Option<Time>,
    /// After how long without renewal the leader ends; shorter than that [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub leader_elect_renew_deadline: Option<Time>,
    /// Between two attempts [default: 2s]
    #[arg(long, value_name = "DURATION")]
    pub leader_elect_retry_period: Option<Time>,
}

impl ElectionArgs {
    /// By client-go's rules: a leader gives up before anybody else may take over, and tries more than once until then.
    pub fn times(&self, mistakes: &mut Vec<String>) -> Times {
        let default = Times::default();
        let or = |asked: Option<Time>, default: Duration| asked.map_or(default, |time| time.0);
        let times = Times {
            lease: or(self.leader_elect_lease_duration, default.lease),
            renew: or(self.leader_elect_renew_deadline, default.renew),
            retry: or(self.leader_elect_retry_period, default.retry),
        };
        if times.lease <= times.renew {
            mistakes
                .push("leader-elect-lease-duration: must be longer than leader-elect-renew-deadline".into());
        }
        if times.retry.is_zero() || times.renew <= times.retry * 6 / 5 {
            mistakes.push(
                "leader-elect-renew-deadline: must be longer than 1.2 times leader-elect-retry-period, which is not 0"
                    .into(),
            );
        }
        if times.lease < Duration::from_secs(1) {
            mistakes.push("leader-elect-lease-duration: must be at least 1s".into());
        }
        times
    }
}

#[derive(Args, Default)]
pub struct SigningArgs {
    /// Authority that signs approved certificate requests [default: they wait]
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// Authority for kubernetes.io/kubelet-serving alone [default: the other one]
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_serving_key_file")]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_serving_cert_file")]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// Key that signs the tokens of Secrets of type kubernetes.io/service-account-token: EC P-256 [default: they stay
    /// empty]
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
}

#[derive(Args)]
pub struct KubeletPartArgs {
    /// Whom to ask, and as whom: system:node:NAME in the group system:nodes; without it static pods are all that runs
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of this node [default: the kubeconfig's, else the host's name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Address of this node [default: of the interface with the default route]
    #[arg(long, value_name = "ADDRESS")]
    pub node_ip: Option<NodeIps>,
    /// KubeletConfiguration (kubelet.config.k8s.io/v1beta1); flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of such files, *.conf, which are laid over it in the order of their names
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Socket of the container runtime [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URL")]
    pub container_runtime_endpoint: Option<String>,
    /// Where state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Where pods ask for names [default: the address of the Service kube-dns in kube-system]
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// Certificate of the kubelet's port [default: one that is asked for by way of the certificates API]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// PEM of the authority by which the port knows its clients [default: the kubeconfig's]
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub eviction: EvictionArgs,
    /// How long nothing may move on exec, attach and port-forward until they are ended; 0 is for ever [default: 4h0m0s]
    #[arg(long, value_name = "DURATION")]
    pub streaming_connection_idle_timeout: Option<Time>,
    #[command(flatten)]
    pub kubelet: KubeletArgs,
    /// More of the log: 3 shows requests, 4 what components do, 6 everything [default: 2]
    #[arg(long, short = 'v', value_name = "LEVEL")]
    pub v: Option<u8>,
}

#[derive(Args)]
pub struct ProxyArgs {
    /// Whom to ask, and as whom: system:kube-proxy
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    pub node_name: Option<String>,
    /// Address of this node, which no route of the pod network leads away from [default: of the interface with the default
    /// route]
    #[arg(long, value_name = "ADDRESS")]
    pub node_ip: Option<NodeIps>,
    /// KubeProxyConfiguration to work by, followed as it changes [default: config.conf of the ConfigMap kube-proxy in
    /// kube-system]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: ProxySettingsArgs,
    /// Components to leave out: network
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub disable: Vec<String>,
    /// Where the runtime reads CNI configuration
    #[arg(long, value_name = "DIR", default_value = crate::node::CNI_CONF_DIR)]
    pub cni_conf_dir: PathBuf,
    /// More of the log: 3 shows requests, 4 what components do, 6 everything [default: 2]
    #[arg(long, short = 'v', value_name = "LEVEL")]
    pub v: Option<u8>,
}

/// Fields of KubeProxyConfiguration. What is given here wins over file and ConfigMap.
#[derive(Args, Default)]
pub struct ProxySettingsArgs {
    /// How Services are brought about: iptables, nftables or userspace
    #[arg(long, value_name = "MODE")]
    pub proxy_mode: Option<String>,
    /// Addresses of pods
    #[arg(long, value_name = "CIDR")]
    pub cluster_cidr: Option<String>,
    /// How pods' traffic is known: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix
    #[arg(long, value_name = "MODE")]
    pub detect_local_mode: Option<String>,
    /// Whether everything to Services' addresses leaves under the node's address
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub masquerade_all: Option<bool>,
    /// Bit of the packet mark that asks for that
    #[arg(long, value_name = "BIT")]
    pub iptables_masquerade_bit: Option<i32>,
    /// How often the rules are looked at, whatever the kernel tells
    #[arg(long, value_name = "DURATION")]
    pub iptables_sync_period: Option<Time>,
    /// How long changes are gathered before they are written
    #[arg(long, value_name = "DURATION")]
    pub iptables_min_sync_period: Option<Time>,
    /// Where node ports answer: networks, or the one word primary
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub nodeport_addresses: Option<Vec<String>>,
    /// Where /healthz answers
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub healthz_bind_address: Option<String>,
    /// Where /metrics and /proxyMode answer
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_bind_address: Option<String>,
}

impl ProxySettingsArgs {
    pub fn flags(self) -> coracle_proxy::Flags {
        coracle_proxy::Flags {
            proxy_mode: self.proxy_mode,
            cluster_cidr: self.cluster_cidr,
            masquerade_all: self.masquerade_all,
            iptables_masquerade_bit: self.iptables_masquerade_bit,
            iptables_sync_period: self.iptables_sync_period.map(|time| time.0),
            iptables_min_sync_period: self.iptables_min_sync_period.map(|time| time.0),
            nodeport_addresses: self.nodeport_addresses,
            detect_local_mode: self.detect_local_mode,
            healthz_bind_address: self.healthz_bind_address,
            metrics_bind_address: self.metrics_bind_address,
        }
    }
}

/// Whose kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Scheduler,
    ControllerManager,
    Kubelet,
    Proxy,
}

#[derive(Args)]
pub struct KubeconfigArgs {
    /// For whom: an identity that upstream's default roles are written for
    #[arg(long = "for", value_name = "PART")]
    pub part: Part,
    /// The kubelet's node
    #[arg(long, value_name = "NAME", required_if_eq("part", "kubelet"))]
    pub node: Option<String>,
    /// Where the server's state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// How long its certificate is good
    #[arg(long, value_name = "DURATION", default_value = "8760h")]
    pub ttl: String,
    /// URL of the API [default: that of the administrator's kubeconfig]
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The administrator's kubeconfig
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Write it here, readable by nobody else [default: to standard output]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
}
