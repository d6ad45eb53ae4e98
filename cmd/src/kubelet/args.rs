//! The kubelet's flags, under upstream's names.

use super::labels;
use clap::Args;
use coracle_kubelet::config::Written;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Where the kubelet's settings are, of a process that is more than a kubelet.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// KubeletConfiguration (kubelet.config.k8s.io/v1beta1); flags win
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,
    /// Directory of such files, *.conf, which are laid over it in the order of their names
    #[arg(long, value_name = "DIR")]
    pub kubelet_config_dir: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, Default)]
pub struct KubeletArgs {
    /// Pods that the node takes [default: 110]
    #[arg(long, value_name = "N")]
    pub max_pods: Option<i64>,
    /// Pods that the node takes for each CPU; 0 for no limit but --max-pods [default: 0]
    #[arg(long, value_name = "N")]
    pub pods_per_core: Option<i64>,
    /// Processes and threads that one pod may have; -1 for no limit [default: 4096]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pod_max_pids: Option<i64>,
    /// Whether containers whose pod names no seccomp profile get the runtime's default one [default: true where the kernel
    /// has seccomp]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub seccomp_default: Option<bool>,
    /// Refuse to start where kernel settings differ from what the kubelet wants, instead of setting them [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub protect_kernel_defaults: Option<bool>,
    /// When a pod needs credentials for an image that is there already: NeverVerify, NeverVerifyPreloadedImages,
    /// NeverVerifyAllowlistedImages or AlwaysVerify [default: NeverVerifyPreloadedImages]
    #[arg(long, value_name = "POLICY")]
    pub image_pull_credentials_verification_policy: Option<String>,
    /// Images that pods may use without credentials with NeverVerifyAllowlistedImages: registry/name or registry/path/*
    #[arg(long, value_name = "IMAGE,...", value_delimiter = ',')]
    pub preloaded_images_verification_allowlist: Option<Vec<String>>,
    /// What is kept from pods for the system: cpu, memory, ephemeral-storage, pid
    #[arg(long, value_name = "NAME=AMOUNT,...", value_delimiter = ',')]
    pub system_reserved: Option<Vec<String>>,
    /// The same for Kubernetes' own processes
    #[arg(long, value_name = "NAME=AMOUNT,...", value_delimiter = ',')]
    pub kube_reserved: Option<Vec<String>>,
    /// What is held to it by cgroups: pods, system-reserved, kube-reserved, or none [default: pods]
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',')]
    pub enforce_node_allocatable: Option<Vec<String>>,
    /// The cgroup of the system's processes
    #[arg(long, value_name = "CGROUP")]
    pub system_reserved_cgroup: Option<String>,
    /// The cgroup of Kubernetes' own processes
    #[arg(long, value_name = "CGROUP")]
    pub kube_reserved_cgroup: Option<String>,
    /// cgroupfs or systemd [default: what the runtime says]
    #[arg(long, value_name = "DRIVER")]
    pub cgroup_driver: Option<String>,
    /// Labels of the Node
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',')]
    pub node_labels: Option<Vec<String>>,
    /// Taints of a Node that the kubelet makes
    #[arg(long, value_name = "KEY=VALUE:EFFECT,...", value_delimiter = ',')]
    pub register_with_taints: Option<Vec<String>>,
    /// Whether the kubelet makes the Node where there is none [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub register_node: Option<bool>,
    /// Directory of static pods' manifests, or one manifest [default: static-pods in the data directory]
    #[arg(long, value_name = "PATH")]
    pub pod_manifest_path: Option<String>,
    /// Where static pods' manifests are asked for
    #[arg(long, value_name = "URL")]
    pub manifest_url: Option<String>,
    /// What pods without cluster DNS get [default: /etc/resolv.conf]
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<String>,
    /// The domain of Services' names [default: cluster.local]
    #[arg(long, value_name = "DOMAIN")]
    pub cluster_domain: Option<String>,
    /// Whether images are pulled one at a time [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub serialize_image_pulls: Option<bool>,
    /// Percent of the images' disk in use from which on unused images are removed [default: 85]
    #[arg(long, value_name = "PERCENT")]
    pub image_gc_high_threshold: Option<i64>,
    /// And down to which [default: 80]
    #[arg(long, value_name = "PERCENT")]
    pub image_gc_low_threshold: Option<i64>,
    /// Size at which a container's log is rotated [default: 10Mi]
    #[arg(long, value_name = "SIZE")]
    pub container_log_max_size: Option<String>,
    /// Log files that are kept of a container [default: 5]
    #[arg(long, value_name = "N")]
    pub container_log_max_files: Option<i64>,
    /// Where the kubelet keeps pods' files [default: kubelet in the data directory]
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Port of the kubelet's /healthz, for this machine; 0 for none [default: 10248]
    #[arg(long, value_name = "PORT")]
    pub healthz_port: Option<i64>,
    /// Where that port listens [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub healthz_bind_address: Option<String>,
}

impl KubeletArgs {
    /// What was given, by the names of KubeletConfiguration's fields. Mistakes go to `mistakes`.
    pub fn written(self, mistakes: &mut Vec<String>) -> Written {
        let system_reserved = self.system_reserved.map(|all| amounts("system-reserved", &all, mistakes));
        let kube_reserved = self.kube_reserved.map(|all| amounts("kube-reserved", &all, mistakes));
        let taints = self.register_with_taints.map(|all| taints(&all, mistakes));
        let given: [(&str, Option<Value>); 26] = [
            ("maxPods", self.max_pods.map(Value::from)),
            ("podsPerCore", self.pods_per_core.map(Value::from)),
            ("podPidsLimit", self.pod_max_pids.map(Value::from)),
            ("seccompDefault", self.seccomp_default.map(Value::from)),
            ("protectKernelDefaults", self.protect_kernel_defaults.map(Value::from)),
            (
                "imagePullCredentialsVerificationPolicy",
                self.image_pull_credentials_verification_policy.map(Value::from),
            ),
            (
                "preloadedImagesVerificationAllowlist",
                self.preloaded_images_verification_allowlist.map(Value::from),
            ),
            ("systemReserved", system_reserved),
            ("kubeReserved", kube_reserved),
            ("enforceNodeAllocatable", self.enforce_node_allocatable.map(Value::from)),
            ("systemReservedCgroup", self.system_reserved_cgroup.map(Value::from)),
            ("kubeReservedCgroup", self.kube_reserved_cgroup.map(Value::from)),
            ("cgroupDriver", self.cgroup_driver.map(Value::from)),
            ("registerWithTaints", taints),
            ("registerNode", self.register_node.map(Value::from)),
            ("staticPodPath", self.pod_manifest_path.map(Value::from)),
            ("staticPodURL", self.manifest_url.map(Value::from)),
            ("resolvConf", self.resolv_conf.map(Value::from)),
            ("clusterDomain", self.cluster_domain.map(Value::from)),
            ("serializeImagePulls", self.serialize_image_pulls.map(Value::from)),
            ("imageGCHighThresholdPercent", self.image_gc_high_threshold.map(Value::from)),
            ("imageGCLowThresholdPercent", self.image_gc_low_threshold.map(Value::from)),
            ("containerLogMaxSize", self.container_log_max_size.map(Value::from)),
            ("containerLogMaxFiles", self.container_log_max_files.map(Value::from)),
            ("healthzPort", self.healthz_port.map(Value::from)),
            ("healthzBindAddress", self.healthz_bind_address.map(Value::from)),
        ];
        given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))).collect()
    }
}

fn amounts(flag: &str, given: &[String], mistakes: &mut Vec<String>) -> Value {
    let mut all = Written::new();
    for text in given {
        match text.split_once('=') {
            Some((name, amount)) => drop(all.insert(name.to_owned(), json!(amount))),
            None => mistakes.push(format!("{flag}: \"{text}\" is not of the form NAME=AMOUNT")),
        }
    }
    Value::Object(all)
}

fn taints(given: &[String], mistakes: &mut Vec<String>) -> Value {
    let read = given.iter().filter_map(|text| {
        let taint = labels::taint(text);
        if taint.is_none() {
            let why = "is no taint such as KEY=VALUE:NoSchedule";
            mistakes.push(format!("register-with-taints: \"{text}\" {why}"));
        }
        taint
    });
    read.collect()
}
