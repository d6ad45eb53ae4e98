//! The server's settings: defaults, then the configuration file, then flags; checked whole, all mistakes at once.

mod networks;

use crate::access::AccessArgs;
use crate::address::{Choice, NodeIps};
use crate::args::ServerArgs;
use crate::authorization::AuthorizationArgs;
use crate::cidrs::Cidrs;
use crate::edge::EdgeArgs;
use crate::encryption::EncryptionArgs;
use crate::etcd::EtcdArgs;
use crate::join::{Join, JoinArgs};
use crate::kubelet::{KubeletSettings, Said};
use crate::lifecycle::LifecycleArgs;
use crate::scheduled::ScheduleArgs;
use crate::settings::{DEFAULT_DATA_DIR, admin_conf, node_name, or_note};
use crate::time::Time;
use coracle_apiserver::store::etcd::EtcdOptions;
use coracle_controllers::Lifecycle;
use coracle_kubelet::config::{STREAMING_CONNECTION_IDLE_TIMEOUT, Written};
use coracle_listen::zpages::Program;
use networks::Networks;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Far more than anybody simulates on one machine; it keeps a slip of the finger from filling the memory.
const MAX_SIMULATED_NODES: u32 = 100_000;

/// The parts that `--disable` can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Kubelet,
    Proxy,
    Dns,
    Scheduler,
    /// Those of upstream's controller manager: the binder of claims and the protections of what is in use are among them.
    Controllers,
    /// The built-in provisioner and its storage class, which is the default one.
    Storage,
    /// The pod network's range and the routes to other nodes, where `scripts/up` or an agent made the network.
    Network,
    /// Of the controllers, the one that gives Services of type LoadBalancer the nodes' addresses.
    LoadBalancers,
    /// The pods of kube-system that show the other components.
    ShownPods,
    /// Applies what lies in the data directory's `manifests`.
    Manifests,
    /// The status page at `/ui/`.
    Ui,
}

impl Component {
    const ALL: [(&'static str, Self); 11] = [
        ("kubelet", Self::Kubelet),
        ("proxy", Self::Proxy),
        ("network", Self::Network),
        ("dns", Self::Dns),
        ("scheduler", Self::Scheduler),
        ("controllers", Self::Controllers),
        ("storage", Self::Storage),
        ("load-balancers", Self::LoadBalancers),
        ("component-pods", Self::ShownPods),
        ("manifests", Self::Manifests),
        ("ui", Self::Ui),
    ];

    pub fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, c)| *c).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|(n, _)| *n).collect();
            format!("disable: unknown component \"{name}\", known are {}", known.join(", "))
        })
    }
}

#[derive(Clone, Debug)]
pub enum Backend {
    Sled,
    Memory,
    Etcd(EtcdOptions),
}

impl Backend {
    /// Whether other servers may write to it, too.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Etcd(_))
    }
}

/// What the configuration file may say. Unknown keys are mistakes.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    data_dir: Option<PathBuf>,
    bind_address: Option<IpAddr>,
    https_port: Option<u16>,
    write_kubeconfig: Option<PathBuf>,
    node_name: Option<String>,
    node_ip: Option<NodeIps>,
    disable: Option<Vec<String>>,
    storage_backend: Option<String>,
    upgrade_store_without_copy: Option<bool>,
    etcd_servers: Option<Vec<String>>,
    etcd_cafile: Option<PathBuf>,
    etcd_certfile: Option<PathBuf>,
    etcd_keyfile: Option<PathBuf>,
    etcd_prefix: Option<String>,
    join: Option<String>,
    token: Option<String>,
    discovery_token_ca_cert_hash: Option<Vec<String>>,
    container_runtime_endpoint: Option<String>,
    cluster_cidr: Option<String>,
    service_cidr: Option<String>,
    simulate_nodes: Option<u32>,
    enable_admission_plugins: Option<Vec<String>>,
    disable_admission_plugins: Option<Vec<String>>,
    authentication: Option<AccessArgs>,
    authorization: Option<AuthorizationArgs>,
    api_server: Option<EdgeArgs>,
    encryption: Option<EncryptionArgs>,
    node_lifecycle: Option<LifecycleArgs>,
    backup: Option<ScheduleArgs>,
    streaming_connection_idle_timeout: Option<Time>,
    /// Fields of KubeletConfiguration. Those of a node's limits may stand beside the server's own, too.
    kubelet: Option<Written>,
    eviction_hard: Option<Value>,
    eviction_soft: Option<Value>,
    eviction_soft_grace_period: Option<Value>,
    eviction_minimum_reclaim: Option<Value>,
    eviction_max_pod_grace_period: Option<Value>,
    eviction_pressure_transition_period: Option<Value>,
    max_pods: Option<Value>,
    pod_pids_limit: Option<Value>,
    seccomp_default: Option<Value>,
    protect_kernel_defaults: Option<Value>,
    image_pull_credentials_verification_policy: Option<Value>,
    preloaded_images_verification_allowlist: Option<Value>,
}

impl File {
    fn etcd(&mut self) -> EtcdArgs {
        EtcdArgs {
            etcd_servers: self.etcd_servers.take(),
            etcd_cafile: self.etcd_cafile.take(),
            etcd_certfile: self.etcd_certfile.take(),
            etcd_keyfile: self.etcd_keyfile.take(),
            etcd_prefix: self.etcd_prefix.take(),
        }
    }

    fn join(&mut self) -> JoinArgs {
        JoinArgs {
            join: self.join.take(),
            token: self.token.take(),
            discovery_token_ca_cert_hash: self.discovery_token_ca_cert_hash.take(),
        }
    }

    /// What it says of the kubelet.
    fn kubelet(&mut self) -> Written {
        let beside = [
            ("evictionHard", self.eviction_hard.take()),
            ("evictionSoft", self.eviction_soft.take()),
            ("evictionSoftGracePeriod", self.eviction_soft_grace_period.take()),
            ("evictionMinimumReclaim", self.eviction_minimum_reclaim.take()),
            ("evictionMaxPodGracePeriod", self.eviction_max_pod_grace_period.take()),
            ("evictionPressureTransitionPeriod", self.eviction_pressure_transition_period.take()),
            ("maxPods", self.max_pods.take()),
            ("podPidsLimit", self.pod_pids_limit.take()),
            ("seccompDefault", self.seccomp_default.take()),
            ("protectKernelDefaults", self.protect_kernel_defaults.take()),
            (
                "imagePullCredentialsVerificationPolicy",
                self.image_pull_credentials_verification_policy.take(),
            ),
            ("preloadedImagesVerificationAllowlist", self.preloaded_images_verification_allowlist.take()),
        ];
        let mut all = self.kubelet.take().unwrap_or_default();
        all.extend(beside.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))));
        all
    }
}

/// Everything `coracle server` needs to know, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration file, where one was given.
    pub file: Option<PathBuf>,
    pub data_dir: PathBuf,
    pub bind_address: IpAddr,
    /// 0 lets the system choose.
    pub https_port: u16,
    pub kubeconfig: PathBuf,
    pub node_name: String,
    pub node_ip: IpAddr,
    /// Of the other family, in a cluster of both.
    pub second_ip: Option<IpAddr>,
    /// How these are chosen, and followed as they change; `None` where somebody says them.
    pub address_choice: Option<Choice>,
    pub disabled: BTreeSet<Component>,
    pub backend: Backend,
    /// Whether a store of an earlier layout is changed without a copy of it.
    pub upgrade_store_without_copy: bool,
    /// Whose cluster it joins.
    pub join: Option<Join>,
    pub cluster_cidr: Cidrs,
    pub service_cidr: Cidrs,
    pub simulate_nodes: u32,
    pub enable_admission_plugins: Vec<String>,
    pub disable_admission_plugins: Vec<String>,
    pub edge: EdgeArgs,
    pub access: AccessArgs,
    pub authorization: AuthorizationArgs,
    pub encryption: EncryptionArgs,
    pub backup: ScheduleArgs,
    pub streaming_connection_idle_timeout: Duration,
    pub kubelet: KubeletSettings,
    pub lifecycle: Lifecycle,
    /// What `/statusz` and `/flagz` tell.
    pub program: Arc<Program>,
}

impl Config {
    /// All mistakes, one a line.
    pub fn load(args: ServerArgs) -> Result<Self, String> {
        let file = match &args.config {
            Some(path) => read_file(path)?,
            None => File::default(),
        };
        let mut mistakes = Vec::new();
        let config = merge(args, file, &mut mistakes);
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes.join("\n")) }
    }

    /// Remembers what the command line and the file, which was read before, say in their own words.
    pub fn show_flags(&mut self, arguments: &[String], file: Option<&Path>) {
        let text = file.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let said = serde_saphyr::from_str(&text).unwrap_or_default();
        self.program = crate::flags::program(arguments, &said);
    }

    pub fn node_ips(&self) -> NodeIps {
        NodeIps { first: self.node_ip, second: self.second_ip }
    }

    /// The same of a node that has these addresses.
    pub fn at(&self, ips: NodeIps) -> Self {
        Self { node_ip: ips.first, second_ip: ips.second, ..self.clone() }
    }

    pub fn runs(&self, component: Component) -> bool {
        !self.disabled.contains(&component)
    }
}

/// The data directory, and what is said of backups: by these flags, else by the file.
pub fn backup_of(
    file: Option<&Path>,
    data_dir: Option<PathBuf>,
    said: ScheduleArgs,
) -> Result<(PathBuf, ScheduleArgs), String> {
    let file = file.map_or_else(|| Ok(File::default()), read_file)?;
    let data_dir = data_dir.or(file.data_dir).unwrap_or_else(|| DEFAULT_DATA_DIR.into());
    Ok((data_dir, said.or(file.backup.unwrap_or_default())))
}

fn read_file(path: &Path) -> Result<File, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    serde_saphyr::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn simulated(asked: Option<u32>, mistakes: &mut Vec<String>) -> u32 {
    let count = asked.unwrap_or(0);
    if count > MAX_SIMULATED_NODES {
        mistakes.push(format!("simulate-nodes: {count} is more than {MAX_SIMULATED_NODES}"));
    }
    count
}

/// What is said of the kubelet, by flags and by the file; `args` keep what others need of it.
fn kubelet_of(args: &mut ServerArgs, file: &mut File, mistakes: &mut Vec<String>) -> KubeletSettings {
    let streaming_idle = args.streaming_connection_idle_timeout.or(file.streaming_connection_idle_timeout);
    args.streaming_connection_idle_timeout = streaming_idle;
    let runtime_endpoint = args.container_runtime_endpoint.take().or(file.container_runtime_endpoint.take());
    let said = Said {
        kubelet: std::mem::take(&mut args.kubelet),
        eviction: std::mem::take(&mut args.eviction),
        streaming_idle: streaming_idle.map(|time| time.0),
        runtime_endpoint,
        config: args.kubelet_files.kubelet_config.as_deref(),
        config_dir: args.kubelet_files.kubelet_config_dir.as_deref(),
        file: file.kubelet(),
    };
    let kubelet = KubeletSettings::read(said, mistakes);
    kubelet.refuse_foreign_certificates(mistakes);
    kubelet
}

/// As [`Config`] has it, checked by what knows its own rules.
fn checked<T>(said: T, check: impl FnOnce(&T, &mut Vec<String>), mistakes: &mut Vec<String>) -> T {
    check(&said, mistakes);
    said
}

fn merge(mut args: ServerArgs, mut file: File, mistakes: &mut Vec<String>) -> Config {
    let (etcd_in_file, join_in_file) = (file.etcd(), file.join());
    let kubelet = kubelet_of(&mut args, &mut file, mistakes);
    let networks = Networks::of(&mut args, &mut file, mistakes);
    let data_dir = args.data_dir.or(file.data_dir).unwrap_or_else(|| DEFAULT_DATA_DIR.into());
    let kubeconfig = args.write_kubeconfig.or(file.write_kubeconfig).unwrap_or_else(|| admin_conf(&data_dir));
    let disabled = args.disable.or(file.disable).unwrap_or_default();
    let backend =
        backend_of(args.storage_backend.or(file.storage_backend), &args.etcd.or(etcd_in_file), mistakes);
    let join = args.join.or(join_in_file).checked(backend.is_shared(), mistakes);
    let simulate_nodes = simulated(args.simulate_nodes.or(file.simulate_nodes), mistakes);
    let edge = checked(args.edge.or(file.api_server.unwrap_or_default()), EdgeArgs::check, mistakes);
    let access =
        checked(args.access.or(file.authentication.unwrap_or_default()), AccessArgs::check, mistakes);
    let authorization = args.authorization.or(file.authorization.unwrap_or_default());
    let authorization = checked(authorization, AuthorizationArgs::check, mistakes);
    let encryption = args.encryption.or(file.encryption.unwrap_or_default());
    let encryption = checked(encryption, EncryptionArgs::check, mistakes);
    let backup = args.backup.or(file.backup.unwrap_or_default());
    backup.check(&data_dir, mistakes);
    let lifecycle = args.lifecycle.or(file.node_lifecycle.unwrap_or_default()).checked(mistakes);
    let Networks { cluster_cidr, service_cidr, node_ips, address_choice } = networks;
    Config {
        kubeconfig,
        bind_address: args.bind_address.or(file.bind_address).unwrap_or_else(|| node_ips.anywhere()),
        https_port: args.https_port.or(file.https_port).unwrap_or(6443),
        node_name: node_name(args.node_name.or(file.node_name), mistakes),
        node_ip: node_ips.first,
        second_ip: node_ips.second,
        address_choice,
        disabled: disabled.iter().filter_map(|name| or_note(Component::parse(name), mistakes)).collect(),
        backend,
        upgrade_store_without_copy: args
            .upgrade_store_without_copy
            .or(file.upgrade_store_without_copy)
            .unwrap_or(false),
        join,
        cluster_cidr,
        service_cidr,
        simulate_nodes,
        enable_admission_plugins: args
            .enable_admission_plugins
            .or(file.enable_admission_plugins)
            .unwrap_or_default(),
        disable_admission_plugins: args
            .disable_admission_plugins
            .or(file.disable_admission_plugins)
            .unwrap_or_default(),
        edge,
        program: Arc::default(),
        access,
        authorization,
        encryption,
        backup,
        streaming_connection_idle_timeout: streaming_idle(args.streaming_connection_idle_timeout),
        file: None,
        kubelet,
        lifecycle,
        data_dir,
    }
}

/// Upstream's default where nobody says.
pub fn streaming_idle(asked: Option<Time>) -> Duration {
    asked.map_or(STREAMING_CONNECTION_IDLE_TIMEOUT, |time| time.0)
}

fn backend_of(name: Option<String>, etcd: &EtcdArgs, mistakes: &mut Vec<String>) -> Backend {
    or_note(parse_backend(name.as_deref(), etcd, mistakes), mistakes).unwrap_or(Backend::Sled)
}

fn parse_backend(name: Option<&str>, etcd: &EtcdArgs, mistakes: &mut Vec<String>) -> Result<Backend, String> {
    match (name, etcd.given()) {
        (Some("etcd"), _) => Ok(Backend::Etcd(etcd.options(mistakes))),
        (Some("sled" | "memory") | None, Some(flag)) => {
            Err(format!("{flag}: only --storage-backend etcd takes it"))
        }
        (Some("memory"), None) => Ok(Backend::Memory),
        (Some("sled") | None, None) => Ok(Backend::Sled),
        (Some(other), _) => {
            Err(format!("storage-backend: unknown \"{other}\", known are sled, memory, etcd"))
        }
    }
}

/// The names that the file takes, at the top or in a section: what serde says of a name that it does not.
#[cfg(test)]
pub fn keys(section: Option<&str>) -> BTreeSet<String> {
    let nothing = serde_json::json!({ "?": null });
    let asked = section.map_or_else(|| nothing.clone(), |name| serde_json::json!({ name: nothing }));
    let said = serde_json::from_value::<File>(asked).err().expect("no such name").to_string();
    let (_, expected) = said.split_once("expected").expect("serde's words");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::EvictionArgs;

    fn args(node: &str) -> ServerArgs {
        ServerArgs { node_name: Some(node.to_owned()), ..ServerArgs::default() }
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = ServerArgs {
            disable: Some(vec!["kublet".to_owned()]),
            storage_backend: Some("redis".to_owned()),
            cluster_cidr: Some("10.42.0.0".to_owned()),
            simulate_nodes: Some(u32::MAX),
            eviction: EvictionArgs {
                eviction_hard: Some(vec!["nodefs.free<1".to_owned()]),
                ..EvictionArgs::default()
            },
            ..args("Node_1")
        };
        let text = Config::load(bad).expect_err("six mistakes");
        for word in ["kublet", "redis", "cluster-cidr", "simulate-nodes", "nodefs.free", "Node_1"] {
            assert!(text.contains(word), "{word} is missing from {text}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, "httpsPort: 7443\ndataDir: /somewhere\ndisable: [proxy]\nevictionHard:\n  nodefs.available: 1Gi\nevictionMaxPodGracePeriod: 7\nstreamingConnectionIdleTimeout: 1h30m\npodPidsLimit: 100\nkubelet: {podsPerCore: 9}\n").expect("write");
        let asked = ServerArgs { config: Some(path), https_port: Some(8443), ..args("n1") };
        let config = Config::load(asked).expect("valid");
        assert_eq!(config.https_port, 8443);
        assert_eq!(config.data_dir, Path::new("/somewhere"));
        assert_eq!(config.kubeconfig, Path::new("/somewhere/admin.conf"));
        assert!(!config.runs(Component::Proxy) && config.runs(Component::Dns));
        assert_eq!(config.streaming_connection_idle_timeout.as_secs(), 5400);
        let mut kubelet = coracle_kubelet::Config::new("n1", [192, 0, 2, 1].into());
        config.kubelet.apply(&mut kubelet);
        assert_eq!(kubelet.eviction.max_pod_grace.as_secs(), 7);
        assert_eq!(kubelet.streaming_connection_idle_timeout.as_secs(), 5400);
        assert_eq!((kubelet.node.pod_pids_limit, kubelet.node.pods_per_core), (Some(100), 9));
    }

    #[test]
    fn unknown_keys_of_the_file_are_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, "httpPort: 7443\n").expect("write");
        let text = Config::load(ServerArgs { config: Some(path), ..args("n1") }).expect_err("unknown key");
        assert!(text.contains("httpPort"), "{text}");
    }
}
