//! Pods that the node or the cluster cannot do without.

use super::labels::is_static;
use k8s_openapi::api::core::v1::Pod;

/// From here on a pod is critical to the node or the cluster.
pub const SYSTEM_CRITICAL: i32 = 2_000_000_000;

pub fn priority(pod: &Pod) -> Option<i32> {
    pod.spec.as_ref()?.priority
}

/// A critical pod makes room for itself, and is not evicted.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || priority(pod).is_some_and(|p| p >= SYSTEM_CRITICAL)
}

/// Critical to this very node: the kernel is to spare it whatever happens.
pub fn is_node_critical(pod: &Pod) -> bool {
    let class = pod.spec.as_ref().and_then(|s| s.priority_class_name.as_deref());
    is_critical(pod) && class == Some("system-node-critical")
}
