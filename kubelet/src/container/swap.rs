//! What a container gets of the machine's swap (KEP-2400,
//! <https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/>).

use super::resources::NodeResources;
use crate::pod_facts::critical::is_critical;
use crate::pod_facts::qos::{self, QosClass};
use k8s_openapi::api::core::v1::{Container, Pod};

/// What containers of a node get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swap {
    /// The kernel does not count swap by cgroup: nothing can be said of it.
    #[default]
    Uncounted,
    Nothing,
    /// Of so many bytes, those whose requests say how much they are owed (cgroup v2).
    Limited(i64),
}

/// Whether the container may have any: it is burstable, can be told from others by what it asks for, and nobody depends on
/// its answering at once.
pub fn may_have(pod: &Pod, container: &Container, node: NodeResources) -> bool {
    let memory = |limits| qos::amount(container, limits, "memory");
    matches!(node.swap, Swap::Limited(_))
        && node.cgroup_v2
        && !is_critical(pod)
        && qos::class(pod) == QosClass::Burstable
        && !(memory(false).is_zero() && memory(true).is_zero())
        && memory(false) != memory(true)
}

/// Bytes, at most; `None` where the kernel does not count them. As large a part of the swap as the container's request is
/// of the machine's memory.
pub fn most(pod: &Pod, container: &Container, node: NodeResources) -> Option<i64> {
    let all = match node.swap {
        Swap::Uncounted => return None,
        Swap::Limited(all) if may_have(pod, container, node) => all,
        Swap::Limited(_) | Swap::Nothing => return Some(0),
    };
    let request = qos::amount(container, false, "memory").units();
    if node.memory_bytes <= 0 || request > node.memory_bytes {
        return Some(0);
    }
    let part = i128::from(request) * i128::from(all) / i128::from(node.memory_bytes);
    Some(i64::try_from(part).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::resources::{linux, update};
    use serde_json::{Value, json};

    const GIB: i64 = 1 << 30;

    fn node(swap: Swap) -> NodeResources {
        NodeResources { cgroup_v2: true, memory_bytes: 80 * GIB, swap, ..NodeResources::default() }
    }

    fn pod(priority: i32, resources: Value) -> Pod {
        let container = json!({ "name": "c", "resources": resources });
        let spec = json!({ "priority": priority, "containers": [container] });
        serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": spec })).unwrap()
    }

    /// What the container is started with, and told when it is resized.
    fn written(pod: &Pod, node: NodeResources) -> Option<String> {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let file = |all: crate::cri::api::LinuxContainerResources| {
            assert_eq!(all.memory_swap_limit_in_bytes, 0, "version 2 has a file of its own for it");
            all.unified.get("memory.swap.max").cloned()
        };
        let started = file(linux(pod, container, node));
        assert_eq!(file(update(pod, container, node)), started);
        started
    }

    #[test]
    fn burstable_containers_get_their_part_and_others_none() {
        let asks = json!({ "requests": { "memory": "1Gi" } });
        let limited = node(Swap::Limited(4 * GIB));
        let some = |bytes: i64| Some(bytes.to_string());
        assert_eq!(written(&pod(0, asks.clone()), limited), some(53_687_091));
        let cases = [
            ("critical to the cluster", pod(2_000_000_000, asks.clone())),
            ("best effort", pod(0, json!({}))),
            ("guaranteed", pod(0, json!({ "limits": { "memory": "1Gi", "cpu": "1" } }))),
            ("asks for no memory", pod(0, json!({ "requests": { "cpu": "1" } }))),
            (
                "all of what it may have",
                pod(0, json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "1024Mi" } })),
            ),
            ("more than there is", pod(0, json!({ "requests": { "memory": "81Gi" } }))),
        ];
        for (what, pod) in cases {
            assert_eq!(written(&pod, limited), some(0), "{what}");
        }
        assert_eq!(written(&pod(0, asks.clone()), node(Swap::Nothing)), some(0));
        assert_eq!(written(&pod(0, asks), node(Swap::Uncounted)), None);
    }

    #[test]
    fn version_one_counts_memory_and_swap_together() {
        let pod = pod(0, json!({ "limits": { "memory": "1Gi" } }));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let of = |swap| NodeResources { cgroup_v2: false, ..node(swap) };
        let both = |node| {
            let (started, told) = (linux(&pod, container, node), update(&pod, container, node));
            assert!(started.unified.is_empty());
            (started.memory_swap_limit_in_bytes, told.memory_swap_limit_in_bytes)
        };
        assert_eq!(both(of(Swap::Nothing)), (GIB, GIB));
        assert_eq!(both(of(Swap::Uncounted)), (0, 0));
        let free: Container = serde_json::from_value(json!({ "name": "c" })).unwrap();
        assert_eq!(update(&pod, &free, of(Swap::Nothing)).memory_swap_limit_in_bytes, -1);
    }
}
