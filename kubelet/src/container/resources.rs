//! CPU and memory of a container as the kernel takes them.

use super::swap::{self, Swap};
use crate::cri::api;
use crate::pod_facts::qos;
use crate::pod_facts::resources::effective;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::HashMap;

/// The least quota that the kernel takes, in microseconds.
const MIN_QUOTA: i64 = 1000;
/// The least weight that the kernel takes.
const MIN_SHARES: i64 = 2;
/// The greatest weight that the kernel takes.
const MAX_SHARES: i64 = 262_144;

/// What the node's cgroups and memory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeResources {
    pub cgroup_v2: bool,
    pub memory_bytes: i64,
    /// The kernel's CFS period in microseconds.
    pub cfs_period: i64,
    /// Whether limits of CPU are kept.
    pub cfs_quota: bool,
    /// Whether the kernel kills a container's processes one by one, where it could kill them all.
    pub single_process_oom_kill: bool,
    /// From which part of its limit on, in thousandths, a container gives memory back; 0 for none (cgroup v2).
    pub throttling_thousandths: u32,
    /// Whether memory is kept for who asked for it (cgroup v2).
    pub keeps_memory: bool,
    pub swap: Swap,
}

impl Default for NodeResources {
    fn default() -> Self {
        Self {
            cgroup_v2: false,
            memory_bytes: 0,
            cfs_period: 100_000,
            cfs_quota: true,
            single_process_oom_kill: false,
            throttling_thousandths: 0,
            keeps_memory: false,
            swap: Swap::Uncounted,
        }
    }
}

pub fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// In microseconds of each `period` of microseconds; 0 is no limit.
pub fn quota(milli_cpu: i64, period: i64) -> i64 {
    if milli_cpu == 0 { 0 } else { (milli_cpu.saturating_mul(period) / 1000).max(MIN_QUOTA) }
}

/// What a container of the pod is started with. Where it has no limit of its own, its pod's is its.
pub fn linux(pod: &Pod, container: &Container, node: NodeResources) -> api::LinuxContainerResources {
    let own = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let swap = swap::most(pod, container, node);
    let all = effective(container.resources.as_ref(), own);
    let container = &Container { resources: Some(all), ..container.clone() };
    let cpu = |limits| qos::amount(container, limits, "cpu").milli();
    let (request, limit) = (cpu(false), cpu(true));
    let memory = qos::amount(container, true, "memory").units();
    let weight = if request == 0 { limit } else { request };
    let mut unified = HashMap::new();
    if node.cgroup_v2 {
        // All processes of a container die together, as with one cgroup per container they share one fate.
        let together = if node.single_process_oom_kill { "0" } else { "1" };
        unified.insert("memory.oom.group".to_owned(), together.to_owned());
        memory_qos(pod, container, node, &mut unified);
        unified.extend(swap.map(|bytes| ("memory.swap.max".to_owned(), bytes.to_string())));
    }
    // Version 1 counts memory and swap together: so little more that nothing is swapped out for the container's own limit.
    let with_swap = if swap.is_some() && !node.cgroup_v2 { memory } else { 0 };
    api::LinuxContainerResources {
        cpu_period: node.cfs_period,
        cpu_quota: if node.cfs_quota { quota(limit, node.cfs_period) } else { 0 },
        cpu_shares: shares(weight),
        memory_limit_in_bytes: memory,
        memory_swap_limit_in_bytes: with_swap,
        oom_score_adj: qos::oom_score_adj(pod, container, node.memory_bytes),
        hugepage_limits: hugepages(container),
        unified,
        ..api::LinuxContainerResources::default()
    }
}

/// What cgroup v2 keeps for the container, and from when on it slows it down (KEP-2570).
fn memory_qos(pod: &Pod, container: &Container, node: NodeResources, unified: &mut HashMap<String, String>) {
    /// The kernel rounds down to pages.
    const PAGE: i128 = 4096;
    let bytes = |limits| i128::from(qos::amount(container, limits, "memory").units());
    let (request, limit) = (bytes(false), bytes(true));
    let class = qos::class(pod);
    if node.keeps_memory && request > 0 {
        let file = if class == qos::QosClass::Guaranteed { "memory.min" } else { "memory.low" };
        unified.insert(file.to_owned(), request.to_string());
    }
    let most = if limit > 0 { limit } else { i128::from(node.memory_bytes) };
    if node.throttling_thousandths > 0 && class != qos::QosClass::Guaranteed && most > request {
        let high = request + (most - request) * i128::from(node.throttling_thousandths) / 1000;
        unified.insert("memory.high".to_owned(), (high / PAGE * PAGE).to_string());
    }
}

/// What a running container is told: zero would leave a limit as it was, so that none is written as -1.
pub fn update(pod: &Pod, container: &Container, node: NodeResources) -> api::LinuxContainerResources {
    let none = |amount: i64| if amount == 0 { -1 } else { amount };
    let start = linux(pod, container, node);
    let says_swap = !node.cgroup_v2 && node.swap != Swap::Uncounted;
    api::LinuxContainerResources {
        cpu_quota: none(start.cpu_quota),
        memory_limit_in_bytes: none(start.memory_limit_in_bytes),
        memory_swap_limit_in_bytes: if says_swap { none(start.memory_swap_limit_in_bytes) } else { 0 },
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
        let node = NodeResources { cgroup_v2: true, memory_bytes: 1 << 30, ..NodeResources::default() };
        let linux = linux(&pod, container, node);
        assert_eq!((linux.cpu_quota, linux.cpu_period, linux.cpu_shares), (25_000, 100_000, 256));
        assert_eq!(linux.memory_limit_in_bytes, 64 << 20);
        assert_eq!(linux.hugepage_limits[0].page_size, "2MB");
        assert_eq!(linux.oom_score_adj, 1000 - 31);
        assert_eq!(shares(0), 2);
        assert_eq!(quota(1, 100_000), 1000);
        let other = NodeResources { cfs_period: 10_000, single_process_oom_kill: true, ..node };
        let linux = super::linux(&pod, container, other);
        assert_eq!((linux.cpu_quota, linux.cpu_period), (2500, 10_000));
        assert_eq!(linux.unified["memory.oom.group"], "0");
        let kept = NodeResources { keeps_memory: true, throttling_thousandths: 900, ..node };
        let unified = super::linux(&pod, container, kept).unified;
        let expected = ((32 << 20) + (32 << 20) / 10 * 9) / 4096 * 4096;
        assert_eq!(
            (unified["memory.low"].as_str(), unified["memory.high"].clone()),
            ("33554432", i32::to_string(&expected))
        );
        let unlimited = NodeResources { cfs_quota: false, ..node };
        assert_eq!(super::linux(&pod, container, unlimited).cpu_quota, 0);
        let free: Container = serde_json::from_value(json!({ "name": "c" })).unwrap();
        let told = update(&pod, &free, node);
        assert_eq!((told.cpu_quota, told.memory_limit_in_bytes), (-1, -1));
        assert_eq!((told.cpu_shares, told.cpu_period), (2, 100_000));
        assert_eq!(update(&pod, container, node).memory_limit_in_bytes, 64 << 20);
    }
}
