//! What follows from a pod by Kubernetes' own rules, computed in one place for every component: what the pod requests
//! and may use, its quality of service, whether it has ended. The rules read a pod through [`PodView`], so that typed
//! pods and pods as JSON give the same answers.

mod qos;
mod resources;
#[cfg(test)]
mod tests;
mod typed;
mod untyped;
mod view;

pub use qos::{QosClass, qos_class};
pub use resources::{Counted, ResourceList, has_pod_level_requests, is_pod_level_resource, limits, requests};
pub use view::{ActualResources, ContainerView, PodView, QuantityMap, Requirements};

/// Whether a pod in this phase has ended for good: its containers will not start again, and it uses nothing of its
/// node any more.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Whether the pod has ended for good, by its `status.phase`.
pub fn is_terminal(pod: &impl PodView) -> bool {
    is_terminal_phase(pod.phase())
}

/// Whether an init container with this `restartPolicy` is a sidecar: it keeps running beside the containers
/// (<https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>).
pub fn restarts_as_sidecar(restart_policy: Option<&str>) -> bool {
    restart_policy == Some("Always")
}
