//! Names that Kubernetes gives a meaning: labels, annotations, taints, finalizers, signers
//! (<https://kubernetes.io/docs/reference/labels-annotations-taints/>). Those stand here that more than one component
//! knows.

// Labels of nodes.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const OS: &str = "kubernetes.io/os";
pub const ARCH: &str = "kubernetes.io/arch";
pub const BETA_OS: &str = "beta.kubernetes.io/os";
pub const BETA_ARCH: &str = "beta.kubernetes.io/arch";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

// Taints of nodes.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
pub const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
pub const PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";

// Annotations.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// The source of mirror pods that show a part of a node's own process; they take nothing of the node.
pub const COMPONENT_SOURCE: &str = "component";
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
pub const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
pub const TOPOLOGY_AWARE_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// Of a Node, by its kubelet: the kinds of volumes that it can mount, with commas between them. Ours; others say nothing.
pub const VOLUME_KINDS: &str = "coracle.io/volume-kinds";

// Labels of other objects.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub const ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub const HEADLESS: &str = "service.kubernetes.io/headless";
pub const IP_ADDRESS_MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
pub const IP_ADDRESS_FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
pub const LEGACY_TOKEN_LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
pub const LEGACY_TOKEN_INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

// Finalizers.
pub const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
pub const VAC_PROTECTION: &str = "kubernetes.io/vac-protection";
pub const RESOURCE_CLAIM_PROTECTION: &str = "resource.kubernetes.io/delete-protection";

// Types of Secrets.
pub const BOOTSTRAP_TOKEN: &str = "bootstrap.kubernetes.io/token";
pub const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

// Signers of certificates.
pub const SIGNER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const SIGNER_KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const SIGNER_KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub const SIGNER_LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";
