//! What this kubelet can, of what not every kubelet of a cluster may be able to do (KEP-5328).

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// As `status.declaredFeatures` of the Node has them, in the order of names. The scheduler sends pods that need such a
/// feature to nodes that declare it; upstream's API server judges updates of pods by it, and hands on WebSockets as they are.
pub const DECLARED: [&str; 3] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "RestartAllContainersOnContainerExits",
];

/// Whether a pod needs the feature before it runs.
type Needs = fn(&PodSpec) -> bool;

/// What a pod can need that is not declared. What is declared, no pod lacks.
const ABSENT: [(&str, Needs); 1] = [("UserNamespacesHostNetworkSupport", maps_users_of_host_network)];

fn maps_users_of_host_network(spec: &PodSpec) -> bool {
    spec.host_network == Some(true) && spec.host_users == Some(false)
}

/// What the pod needs and this kubelet cannot do.
pub fn missing(pod: &Pod) -> Vec<&'static str> {
    let needed =
        |spec: &PodSpec| ABSENT.iter().filter(|(_, needs)| needs(spec)).map(|(name, _)| *name).collect();
    pod.spec.as_ref().map(needed).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_none_is_declared_and_absent() {
        assert!(DECLARED.is_sorted());
        assert!(ABSENT.iter().all(|(name, _)| !DECLARED.contains(name)));
    }
}
