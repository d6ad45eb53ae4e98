//! The command line. Flags carry Kubernetes' own names where Kubernetes has one.

mod data;
mod volume;

pub use data::{
    BackupAction, BackupArgs, BackupListArgs, DbArgs, DbCommand, MigrateArgs, RepairArgs, RestoreArgs,
    StoreKind,
};
pub use volume::{VolumeAction, VolumeArgs, VolumeMoveArgs};

use crate::access::AccessArgs;
use crate::address::NodeIps;
use crate::authorization::AuthorizationArgs;
use crate::edge::EdgeArgs;
use crate::encryption::{EncryptionArgs, SecretsArgs};
use crate::etcd::EtcdArgs;
use crate::eviction::EvictionArgs;
use crate::join::JoinArgs;
use crate::kubelet::{ConfigArgs, KubeletArgs};
use crate::lifecycle::LifecycleArgs;
use crate::parts::args::{ControllersArgs, KubeconfigArgs, KubeletPartArgs, ProxyArgs, SchedulerArgs};
use crate::scheduled::ScheduleArgs;
use crate::time::Time;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Parser)]
#[command(
    name = "coracle",
    version,
    about = "Kubernetes in one small binary",
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a node: API server, scheduler, controllers, kubelet, proxy and DNS in one process
    Server(Box<ServerArgs>),
    /// Join this machine to a cluster as a node: kubelet, proxy and pod network
    Agent(Box<AgentArgs>),
    /// Run a server or an agent, and start it again when it ends by itself or gives no sign of life: coracle supervise --
    /// server --config FILE. For machines without systemd
    Supervise(SuperviseArgs),
    /// Make, list and delete the tokens by which machines join
    Token(TokenArgs),
    /// Show, renew, make and revoke certificates
    Cert(CertArgs),
    /// Run one command with a throw-away cluster in memory around it
    Ci(CiArgs),
    /// Say what this machine lacks and how to mend it; with --fix, mend it
    Check(CheckArgs),
    /// Show how the cluster is: nodes, pods, warnings, disk, certificates, backup. Exit code 0: all is well, 1: something
    /// is wrong, 2: no answer
    Status(StatusArgs),
    /// Look at the store of a server that is stopped, and repair one that does not open
    Db(DbArgs),
    /// Write the server's state into one file: objects, authorities and keys, configuration; and look at such files
    Backup(BackupArgs),
    /// Make a data directory of a backup
    Restore(RestoreArgs),
    /// Move a cluster's objects from this machine's store to etcd, or back
    Migrate(Box<MigrateArgs>),
    /// Take this node's pods, mounts, packet rules, keys and certificates away, after the server has ended
    Reset(ResetArgs),
    /// Run a scheduler as its own process, beside or instead of the server's own
    Scheduler(SchedulerArgs),
    /// Run the controllers as their own process, instead of the server's own
    Controllers(Box<ControllersArgs>),
    /// Run a node's kubelet as its own process
    Kubelet(Box<KubeletPartArgs>),
    /// Run a node's proxy as its own process
    Proxy(ProxyArgs),
    /// Make a kubeconfig for a scheduler, a controller manager, a kubelet or a proxy, on the server's machine
    Kubeconfig(KubeconfigArgs),
    /// Say why a pod is where it is, or nowhere
    Why(WhyArgs),
    /// Move volumes of the built-in provisioner to other nodes
    Volume(VolumeArgs),
    /// Show and change the keys of --secrets-encryption, on the server's machine
    Secrets(SecretsArgs),
    /// Print the definitions of VolumeSnapshots, to be applied: coracle snapshots | kubectl apply -f -
    Snapshots,
    /// Print what makes a shell complete the words of this command: source <(coracle completion bash)
    Completion(CompletionArgs),
    /// Print a page of the book (install, first-hour, configuration, operating, recovery, ...) or a command's help
    Help(HelpArgs),
    /// Write the manual pages, one for each command, into a folder
    #[command(hide = true)]
    Manual(ManualArgs),
}

/// Flags of `coracle completion`.
#[derive(Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `coracle help`.
#[derive(Args)]
pub struct HelpArgs {
    /// A page, or a command; without it, which pages there are
    #[arg(value_name = "TOPIC")]
    pub topic: Vec<String>,
}

/// Flags of `coracle manual`.
#[derive(Args)]
pub struct ManualArgs {
    /// A folder that exists
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Flags of `coracle server`. A flag that is not given leaves the configuration file's value, and that the default.
#[derive(Args, Default)]
pub struct ServerArgs {
    /// YAML file with the same settings as these flags, in camelCase; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where state lives [default: /var/lib/coracle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to listen on [default: 0.0.0.0, of both families where the node has an IPv6 address]
    #[arg(long, value_name = "ADDRESS")]
    pub bind_address: Option<IpAddr>,
    /// Port of the API [default: 6443]
    #[arg(long, value_name = "PORT")]
    pub https_port: Option<u16>,
    /// Where the administrator's kubeconfig is written
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Address of this node, or one of each family: A,B [default: of the interface with the default route]
    #[arg(long, value_name = "ADDRESS")]
    pub node_ip: Option<NodeIps>,
    /// Components to leave out: kubelet, proxy, network, dns, scheduler, controllers, storage, load-balancers,
    /// component-pods, manifests, ui
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub disable: Option<Vec<String>>,
    /// sled, memory, or etcd, which several servers can share [default: sled]
    #[arg(long, value_name = "BACKEND")]
    pub storage_backend: Option<String>,
    /// Change the layout of a store that an earlier version has made without a copy of it, where there is no room for one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub upgrade_store_without_copy: Option<bool>,
    #[command(flatten)]
    pub etcd: EtcdArgs,
    #[command(flatten)]
    pub join: JoinArgs,
    /// Socket of the container runtime [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URL")]
    pub container_runtime_endpoint: Option<String>,
    /// Addresses of pods; of both families: A,B [default: 10.42.0.0/16]
    #[arg(long, value_name = "CIDR")]
    pub cluster_cidr: Option<String>,
    /// Addresses of Services; of both families: A,B, the first is a Service's unasked [default: 10.43.0.0/16]
    #[arg(long, value_name = "CIDR")]
    pub service_cidr: Option<String>,
    #[command(flatten)]
    pub eviction: EvictionArgs,
    /// How long nothing may move on exec, attach and port-forward until they are ended; 0 is for ever [default: 4h0m0s]
    #[arg(long, value_name = "DURATION")]
    pub streaming_connection_idle_timeout: Option<Time>,
    #[command(flatten)]
    pub kubelet_files: ConfigArgs,
    #[command(flatten)]
    pub kubelet: KubeletArgs,
    #[command(flatten)]
    pub lifecycle: LifecycleArgs,
    #[command(flatten)]
    pub edge: EdgeArgs,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub encryption: EncryptionArgs,
    #[command(flatten)]
    pub backup: ScheduleArgs,
    /// More of the log: 3 shows requests, 4 what components do, 6 everything [default: 2]
    #[arg(long, short = 'v', value_name = "LEVEL")]
    pub v: Option<u8>,
    /// Admission plugins to turn on beside upstream's default set
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub enable_admission_plugins: Option<Vec<String>>,
    /// Admission plugins to turn off
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub disable_admission_plugins: Option<Vec<String>>,
    /// Keep so many simulated nodes Ready, whose pods run by themselves [default: 0]
    #[arg(long, value_name = "N")]
    pub simulate_nodes: Option<u32>,
}

/// Flags of `coracle agent`.
#[derive(Args, Default)]
pub struct AgentArgs {
    /// The server to join, such as https://192.0.2.1:6443
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// Of `coracle token create`; needed for the first start only
    #[arg(long, value_name = "TOKEN", env = "CORACLE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Join only a cluster whose CA has this public key: sha256:HEX, as kubeadm writes it. Without it whoever knows the
    /// token is believed to be the server
    #[arg(long, value_name = "HASH,...", value_delimiter = ',')]
    pub discovery_token_ca_cert_hash: Vec<String>,
    /// Where state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Name of this node [default: the one that it joined as, else the host's name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Address of this node, or one of each family: A,B [default: of the interface with the default route]
    #[arg(long, value_name = "ADDRESS")]
    pub node_ip: Option<NodeIps>,
    /// Components to leave out: proxy, network, dns, component-pods
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub disable: Vec<String>,
    /// Socket of the container runtime [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URL")]
    pub container_runtime_endpoint: Option<String>,
    /// Where the runtime reads CNI configuration; one is written where there is none
    #[arg(long, value_name = "DIR", default_value = crate::node::CNI_CONF_DIR)]
    pub cni_conf_dir: PathBuf,
    #[command(flatten)]
    pub eviction: EvictionArgs,
    /// How long nothing may move on exec, attach and port-forward until they are ended; 0 is for ever [default: 4h0m0s]
    #[arg(long, value_name = "DURATION")]
    pub streaming_connection_idle_timeout: Option<Time>,
    #[command(flatten)]
    pub kubelet_files: ConfigArgs,
    #[command(flatten)]
    pub kubelet: KubeletArgs,
    /// More of the log: 3 shows requests, 4 what components do, 6 everything [default: 2]
    #[arg(long, short = 'v', value_name = "LEVEL")]
    pub v: Option<u8>,
}

#[derive(Args)]
pub struct SuperviseArgs {
    /// Write the process id of what is run here, while it runs
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Without a sign of life for so long it is killed and started again
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub watchdog: Time,
    /// What to run: server or agent, and its flags
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub action: TokenAction,
    /// Whom to ask, and as whom
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBECONFIG",
        default_value = "/etc/coracle/admin.conf",
        global = true
    )]
    pub kubeconfig: PathBuf,
}

#[derive(Subcommand)]
pub enum TokenAction {
    /// Make a token and print it
    Create {
        /// Of the form [a-z0-9]{6}.[a-z0-9]{16} [default: a random one]
        #[arg(value_name = "TOKEN")]
        token: Option<String>,
        /// How long it is good, such as 1h30m; 0 is for ever [default: 24h, of a server's token 2h]
        #[arg(long, value_name = "DURATION")]
        ttl: Option<String>,
        /// What it is for
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Print the whole command for the machine that is to join
        #[arg(long)]
        print_join_command: bool,
        /// For a further server: it is given authorities and keys, sealed by the token. On a server's machine
        #[arg(long)]
        server: bool,
        /// Where that server's state lives
        #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR, requires = "server")]
        data_dir: PathBuf,
    },
    /// List the tokens
    List,
    /// Delete tokens, by themselves or by their ids
    Delete {
        #[arg(value_name = "TOKEN", required = true)]
        tokens: Vec<String>,
    },
}

#[derive(Args)]
pub struct CertArgs {
    #[command(subcommand)]
    pub action: CertAction,
}

#[derive(Subcommand)]
pub enum CertAction {
    /// Show every certificate of this machine, and fail if one of them is over
    Check {
        /// Where state lives
        #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
        data_dir: PathBuf,
        /// Kubeconfigs to look into [default: the administrator's]
        #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
        kubeconfig: Vec<PathBuf>,
    },
    /// Have the server make all its certificates anew, and the administrator's kubeconfig; its authorities stay
    Renew {
        /// Where state lives
        #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
        data_dir: PathBuf,
    },
    /// Replace the cluster's authorities while everything runs; without a flag new ones are made, and trusted beside the old ones
    RotateCa(RotateCaArgs),
    /// Make a kubeconfig for an administrator; needs the authority's key, so it works on the server's machine alone
    Admin(CertAdminArgs),
    /// Take certificates back: the API server does not accept them from now on
    Revoke {
        /// A fingerprint (SHA-256), or a file: PEM or a kubeconfig
        #[arg(value_name = "FINGERPRINT|FILE", conflicts_with = "admin")]
        certificate: Option<String>,
        /// The certificate of the kubeconfig that asks; on the server's machine it gets another one at once
        #[arg(long)]
        admin: bool,
        /// Whom to ask, and as whom
        #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/etc/coracle/admin.conf")]
        kubeconfig: PathBuf,
    },
    /// List the certificates that were taken back
    Revoked {
        /// Whom to ask, and as whom
        #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/etc/coracle/admin.conf")]
        kubeconfig: PathBuf,
    },
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("step"))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag, and but for --force one at a time")]
pub struct RotateCaArgs {
    /// Where state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// The new authorities sign from now on, and the server's certificates are made anew; the old ones are trusted yet
    #[arg(long, group = "step")]
    pub issue: bool,
    /// The old authorities are trusted no more: what they have signed ends
    #[arg(long, group = "step")]
    pub finish: bool,
    /// Drop new authorities that sign nothing yet
    #[arg(long, group = "step")]
    pub abandon: bool,
    /// Say how far it has come, and change nothing
    #[arg(long, group = "step")]
    pub status: bool,
    /// With --issue and --finish: also where a node is not as far, which has to join anew then
    #[arg(long, conflicts_with_all = ["abandon", "status"])]
    pub force: bool,
}

#[derive(Args)]
pub struct CertAdminArgs {
    /// Where state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// What the user is called, in the audit log too
    #[arg(long, value_name = "NAME", default_value = coracle_apiserver::pki::ADMIN)]
    pub user: String,
    /// How long it is good [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<String>,
    /// For emergencies: a member of system:masters, whom no role and no binding limits. Needs --ttl, at most 24h
    #[arg(long = "super")]
    pub super_: bool,
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

#[derive(Args)]
pub struct CiArgs {
    /// Simulated nodes of the cluster
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nodes: u32,
    /// Write the kubeconfig here too; CMD finds one in KUBECONFIG anyway
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Args)]
pub struct CheckArgs {
    /// Socket of the container runtime
    #[arg(long, value_name = "URL", default_value = crate::settings::DEFAULT_RUNTIME_ENDPOINT)]
    pub container_runtime_endpoint: String,
    /// Where state lives, or is going to: its disk is measured
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Mend what can be mended, now and for every later start of the machine; each step is printed. Needs root
    #[arg(long)]
    pub fix: bool,
}

#[derive(Args)]
pub struct StatusArgs {
    /// Who to ask, and as whom
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/etc/coracle/admin.conf")]
    pub kubeconfig: PathBuf,
    /// Wait at most so long for every node to be Ready; then only that counts for the exit code
    #[arg(long, value_name = "SECONDS")]
    pub wait: Option<u64>,
    /// Show it again whenever it changes, until ended
    #[arg(long, conflicts_with = "wait")]
    pub watch: bool,
    /// For programs
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = ["json"])]
    pub output: Option<String>,
}

#[derive(Args)]
pub struct ResetArgs {
    /// Yes, every pod of this machine's runtime, and its keys and certificates
    #[arg(long, required = true)]
    pub yes: bool,
    /// Socket of the container runtime
    #[arg(long, value_name = "URL", default_value = crate::settings::DEFAULT_RUNTIME_ENDPOINT)]
    pub container_runtime_endpoint: String,
    /// Where state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Where the kubelet kept pods' files [default: kubelet in the data directory]
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Leave the keys and certificates: the cluster's authorities, and a joined machine's identity
    #[arg(long)]
    pub keep_pki: bool,
}

#[derive(Args)]
pub struct WhyArgs {
    /// The pod, or NAMESPACE/POD
    #[arg(value_name = "POD")]
    pub pod: String,
    #[arg(long, short = 'n', value_name = "NAME", default_value = "default")]
    pub namespace: String,
    /// Whom to ask, and as whom
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/etc/coracle/admin.conf")]
    pub kubeconfig: PathBuf,
    /// Every node, not only the ten most interesting ones
    #[arg(long)]
    pub all: bool,
}
