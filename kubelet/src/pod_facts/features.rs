//! What this kubelet can, of what not every kubelet of a cluster may be able to do (KEP-5328).

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// What every kubelet of this version can, in the order of names.
const ALWAYS: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// CPUs of pods of class Guaranteed are resized while no container has CPUs of its own.
const SHARED_CPUS: &str = "GuaranteedQoSPodCPUResize";

/// As `status.declaredFeatures` of the Node has them, in the order of names; `own_cpus`: whether the policy `static` gives
/// containers CPUs of their own. The scheduler sends pods that need such a feature to nodes that declare it; the API server
/// judges updates of pods by it, and upstream's hands on WebSockets as they are.
pub fn declared(own_cpus: bool) -> Vec<&'static str> {
    let mut names: Vec<_> = ALWAYS.into_iter().chain((!own_cpus).then_some(SHARED_CPUS)).collect();
    names.sort_unstable();
    names
}

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
        let all = declared(false);
        assert!(all.is_sorted() && all.contains(&SHARED_CPUS) && !declared(true).contains(&SHARED_CPUS));
        assert!(ABSENT.iter().all(|(name, _)| !all.contains(name)));
    }
}
