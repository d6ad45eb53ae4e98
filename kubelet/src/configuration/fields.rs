//! Every field of upstream's KubeletConfiguration (kubelet.config.k8s.io/v1beta1, Kubernetes 1.36), and what becomes of it:
//! none is accepted and then ignored.

use serde_json::{Map, Value};

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// A change in the cluster's ConfigMap is in force at once.
    Live,
    /// A change in the cluster's ConfigMap is in force after the kubelet has begun anew, which it does by itself, and which
    /// no container notices.
    Anew,
    /// Only values that say what is done anyway (as JSON; what is empty says nothing), the rest is refused for the reason.
    Only(&'static [&'static str], &'static str),
}

use Becomes::{Anew, Live, Only};

const NO_PROFILER: &str = "there is no profiler";
const OWN_TLS: &str = "the port speaks TLS 1.2 and 1.3 with the suites and curves of rustls";

/// By name, in upstream's order.
pub const FIELDS: &[(&str, Becomes)] = &[
    ("enableServer", Anew),
    ("staticPodPath", Anew),
    ("podLogsDir", Anew),
    (
        "syncFrequency",
        Only(&["\"1m0s\"", "\"1m\""], "pods are looked at when something changes, not by the clock"),
    ),
    ("fileCheckFrequency", Anew),
    ("httpCheckFrequency", Anew),
    ("staticPodURL", Anew),
    ("staticPodURLHeader", Anew),
    ("address", Anew),
    ("port", Anew),
    ("readOnlyPort", Only(&[], "nothing of a node is shown to strangers")),
    ("tlsCertFile", Anew),
    ("tlsPrivateKeyFile", Anew),
    ("tlsCipherSuites", Only(&[], OWN_TLS)),
    ("tlsCurvePreferences", Only(&[], OWN_TLS)),
    ("tlsMinVersion", Only(&["\"VersionTLS12\""], OWN_TLS)),
    ("rotateCertificates", Only(&["true"], "the kubelet's certificate is always renewed before it ends")),
    (
        "serverTLSBootstrap",
        Only(&["true"], "the port's certificate is always asked for, unless tlsCertFile has one"),
    ),
    ("authentication", Anew),
    ("authorization", Anew),
    ("registryPullQPS", Anew),
    ("registryBurst", Anew),
    ("imagePullCredentialsVerificationPolicy", Anew),
    ("preloadedImagesVerificationAllowlist", Anew),
    ("eventRecordQPS", Anew),
    ("eventBurst", Anew),
    ("enableDebuggingHandlers", Anew),
    ("enableContentionProfiling", Only(&["false"], NO_PROFILER)),
    ("healthzPort", Anew),
    ("healthzBindAddress", Anew),
    ("oomScoreAdj", Anew),
    ("clusterDomain", Live),
    ("clusterDNS", Live),
    ("streamingConnectionIdleTimeout", Anew),
    ("nodeStatusUpdateFrequency", Live),
    ("nodeStatusReportFrequency", Live),
    ("nodeLeaseDurationSeconds", Anew),
    ("imageMinimumGCAge", Live),
    ("imageMaximumGCAge", Live),
    ("imageGCHighThresholdPercent", Live),
    ("imageGCLowThresholdPercent", Live),
    (
        "volumeStatsAggPeriod",
        Only(&["\"1m0s\"", "\"1m\""], "what volumes hold is counted once a minute at the most"),
    ),
    ("kubeletCgroups", Only(&[], "the kubelet stays in the cgroup that it was started in")),
    ("systemCgroups", Only(&[], "processes of the system stay in their cgroups")),
    ("cgroupRoot", Only(&["\"/\""], "the cgroups of pods lie below the root")),
    ("cgroupsPerQOS", Only(&["true"], "pods always have cgroups by their quality of service")),
    ("cgroupDriver", Anew),
    ("cpuManagerPolicy", Anew),
    ("singleProcessOOMKill", Anew),
    ("cpuManagerPolicyOptions", Anew),
    ("cpuManagerReconcilePeriod", Anew),
    (
        "draManagerReconcilePeriod",
        Only(&["\"1m0s\"", "\"60s\""], "devices of resource claims are not prepared by this kubelet"),
    ),
    ("memoryManagerPolicy", Anew),
    ("topologyManagerPolicy", Anew),
    ("topologyManagerScope", Anew),
    ("topologyManagerPolicyOptions", Anew),
    ("qosReserved", Only(&[], "memory is kept for pods by memoryReservationPolicy alone")),
    ("runtimeRequestTimeout", Anew),
    (
        "hairpinMode",
        Only(
            &["\"hairpin-veth\""],
            "the pod network's configuration (CNI) sets the hairpin flag of the pods' interfaces",
        ),
    ),
    ("maxPods", Anew),
    ("podCIDR", Only(&[], "the pod network's configuration (CNI) has the addresses of pods")),
    ("podPidsLimit", Anew),
    ("resolvConf", Live),
    ("runOnce", Only(&["false"], "the kubelet runs until it is told to end")),
    ("cpuCFSQuota", Anew),
    ("cpuCFSQuotaPeriod", Anew),
    ("nodeStatusMaxImages", Live),
    ("maxOpenFiles", Only(&["1000000"], "the process takes as many descriptors as its hard limit allows")),
    ("contentType", Only(&["\"application/json\""], "the kubelet speaks JSON with the API server")),
    ("kubeAPIQPS", Only(&["-1"], "the API server's priority and fairness bounds the kubelet's requests")),
    ("kubeAPIBurst", Only(&[], "the API server's priority and fairness bounds the kubelet's requests")),
    ("serializeImagePulls", Anew),
    ("maxParallelImagePulls", Anew),
    ("evictionHard", Anew),
    ("evictionSoft", Anew),
    ("evictionSoftGracePeriod", Anew),
    ("evictionPressureTransitionPeriod", Anew),
    ("evictionMaxPodGracePeriod", Anew),
    ("evictionMinimumReclaim", Anew),
    ("mergeDefaultEvictionSettings", Anew),
    ("podsPerCore", Anew),
    ("enableControllerAttachDetach", Only(&["true"], "volumes are attached by the cluster's controller")),
    ("protectKernelDefaults", Anew),
    ("makeIPTablesUtilChains", Only(&["false"], "the proxy makes whatever chains there are")),
    ("iptablesMasqueradeBit", Only(&["14"], "the field has no effect any more, upstream neither")),
    ("iptablesDropBit", Only(&["15"], "the field has no effect any more, upstream neither")),
    ("featureGates", Only(&[], "features cannot be switched")),
    ("failSwapOn", Anew),
    ("memorySwap", Anew),
    ("containerLogMaxSize", Live),
    ("containerLogMaxFiles", Live),
    ("containerLogMaxWorkers", Live),
    ("containerLogMonitorInterval", Live),
    (
        "configMapAndSecretChangeDetectionStrategy",
        Only(&["\"Watch\""], "config maps and secrets are always watched"),
    ),
    ("systemReserved", Anew),
    ("kubeReserved", Anew),
    ("reservedSystemCPUs", Anew),
    ("showHiddenMetricsForVersion", Only(&[], "no metrics are hidden")),
    ("systemReservedCgroup", Anew),
    ("kubeReservedCgroup", Anew),
    ("enforceNodeAllocatable", Anew),
    ("allowedUnsafeSysctls", Anew),
    ("volumePluginDir", Only(&[], "FlexVolume drivers are not run; CSI drivers are")),
    ("providerID", Anew),
    ("kernelMemcgNotification", Only(&["false"], "memory is looked at every ten seconds")),
    ("logging", Only(&[], "the log is as -v and RUST_LOG want it")),
    ("enableSystemLogHandler", Anew),
    ("enableSystemLogQuery", Only(&["false"], "the machine's journal is not searched for clients")),
    ("shutdownGracePeriod", Anew),
    ("shutdownGracePeriodCriticalPods", Anew),
    ("shutdownGracePeriodByPodPriority", Anew),
    ("crashLoopBackOff", Anew),
    ("reservedMemory", Anew),
    ("enableProfilingHandler", Only(&["false"], NO_PROFILER)),
    ("enableDebugFlagsHandler", Only(&["false"], "the log's level is not changed over the port")),
    ("seccompDefault", Anew),
    ("memoryThrottlingFactor", Anew),
    ("memoryReservationPolicy", Anew),
    ("registerWithTaints", Anew),
    ("registerNode", Anew),
    ("tracing", Only(&[], "the kubelet exports no traces")),
    ("localStorageCapacityIsolation", Only(&["true"], "limits of ephemeral storage are always kept")),
    ("containerRuntimeEndpoint", Anew),
    ("imageServiceEndpoint", Anew),
    ("failCgroupV1", Anew),
    ("userNamespaces", Only(&[r#"{"idsPerPod":65536}"#], "a pod's users are always 65536")),
];

/// What becomes of a field; `None` if upstream has none of that name.
pub fn becomes(name: &str) -> Option<Becomes> {
    FIELDS.iter().find(|(known, _)| *known == name).map(|(_, becomes)| *becomes)
}

/// All fields that are not known, or whose values cannot be had, each with the reason.
pub fn refused(written: &Map<String, Value>) -> Vec<String> {
    let refuse = |(name, value): (&String, &Value)| match becomes(name) {
        None => Some(format!("{name}: KubeletConfiguration has no such field")),
        Some(Only(values, why)) if !says_nothing(value) && !values.contains(&value.to_string().as_str()) => {
            Some(format!("{name}: {value} cannot be had: {why}"))
        }
        Some(_) => None,
    };
    written.iter().filter_map(refuse).collect()
}

/// Upstream takes an empty value for none, and writes so out of its own types.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => matches!(text.as_str(), "" | "0" | "0s"),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}
