//! CPU and memory of a container as the kernel takes them.

use crate::cri::api;
use crate::pod::qos;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::HashMap;

/// The kernel's CFS period in microseconds; upstream's default.
const PERIOD: i64 = 100_000;
/// The least quota that the kernel takes, in microseconds.
const MIN_QUOTA: i64 = 1000;
/// The least weight that the kernel takes.
const MIN_SHARES: i64 = 2;
/// The greatest weight that the kernel takes.
const MAX_SHARES: i64 = 262_144;

/// What the node's cgroups and memory are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeResources {
    pub cgroup_v2: bool,
    pub memory_bytes: i64,
}

fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

fn quota(milli_cpu: i64) -> i64 {
    if milli_cpu == 0 { 0 } else { (milli_cpu.saturating_mul(PERIOD) / 1000).max(MIN_QUOTA) }
}

pub fn linux(pod: &Pod, container: &Container, node: NodeResources) -> api::LinuxContainerResources {
    let cpu = |limits| qos::amount(container, limits, "cpu").milli();
    let (request, limit) = (cpu(false), cpu(true));
    let memory = qos::amount(container, true, "memory").units();
    let weight = if request == 0 { limit } else { request };
    let mut unified = HashMap::new();
    let mut swap = 0;
    if node.cgroup_v2 {
        // All processes of a container die together, as with one cgroup per container they share one fate.
        unified.insert("memory.oom.group".to_owned(), "1".to_owned());
        // No swap for containers with a limit; upstream's NoSwap.
        swap = memory;
    }
    api::LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota(limit),
        cpu_shares: shares(weight),
        memory_limit_in_bytes: memory,
        memory_swap_limit_in_bytes: swap,
        oom_score_adj: qos::oom_score_adj(pod, container, node.memory_bytes),
        hugepage_limits: hugepages(container),
        unified,
        ..api::LinuxContainerResources::default()
    }
}

/// What a running container is told: zero would leave a limit as it was, so that none is written as -1.
pub fn update(pod: &Pod, container: &Container, node: NodeResources) -> api::LinuxContainerResources {
    let none = |amount: i64| if amount == 0 { -1 } else { amount };
    let start = linux(pod, container, node);
    api::LinuxContainerResources {
        cpu_quota: none(start.cpu_quota),
        memory_limit_in_bytes: none(start.memory_limit_in_bytes),
        memory_swap_limit_in_bytes: if node.cgroup_v2 { none(start.memory_swap_limit_in_bytes) } else { 0 },
        hugepage_limits: Vec::new(),
        ..start
    }
}

/// `hugepages-2Mi: 4Mi` in limits becomes `2MB: 4194304`.
fn hugepages(container: &Container) -> Vec<api::HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let pages = limits.into_iter().flatten().filter_map(|(name, _)| {
        let size = name.strip_prefix("hugepages-")?;
        let page_size = size.strip_suffix('i').map(|s| format!("{s}B"))?;
        let limit = u64::try_from(qos::amount(container, true, name).units()).ok()?;
        Some(api::HugepageLimit { page_size, limit })
    });
    pages.collect()
}

/// The cgroup below which all of a pod's lie (cgroupfs naming): `/kubepods[/<qos>]/pod<uid>`.
pub fn cgroup_parent(pod: &Pod) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    match qos::class(pod) {
        qos::QosClass::Guaranteed => format!("/kubepods/pod{uid}"),
        qos::QosClass::Burstable => format!("/kubepods/burstable/pod{uid}"),
        qos::QosClass::BestEffort => format!("/kubepods/besteffort/pod{uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limits_become_kernel_numbers() {
        let pod: Pod = serde_json::from_value(
            json!({ "metadata": { "uid": "u" }, "spec": { "containers": [{ "name": "c",
            "resources": { "limits": { "cpu": "250m", "memory": "64Mi", "hugepages-2Mi": "4Mi" },
                "requests": { "memory": "32Mi" } } }] } }),
        )
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let node = NodeResources { cgroup_v2: true, memory_bytes: 1 << 30 };
        let linux = linux(&pod, container, node);
        assert_eq!((linux.cpu_quota, linux.cpu_period, linux.cpu_shares), (25_000, 100_000, 256));
        assert_eq!((linux.memory_limit_in_bytes, linux.memory_swap_limit_in_bytes), (64 << 20, 64 << 20));
        assert_eq!(linux.hugepage_limits[0].page_size, "2MB");
        assert_eq!(linux.oom_score_adj, 1000 - 31);
        assert_eq!(cgroup_parent(&pod), "/kubepods/burstable/podu");
        assert_eq!(shares(0), 2);
        assert_eq!(quota(1), 1000);
        let free: Container = serde_json::from_value(json!({ "name": "c" })).unwrap();
        let told = update(&pod, &free, node);
        assert_eq!(
            (told.cpu_quota, told.memory_limit_in_bytes, told.memory_swap_limit_in_bytes),
            (-1, -1, -1)
        );
        assert_eq!((told.cpu_shares, told.cpu_period), (2, 100_000));
        assert_eq!(update(&pod, container, node).memory_limit_in_bytes, 64 << 20);
    }
}
