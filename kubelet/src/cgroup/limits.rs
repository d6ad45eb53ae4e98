//! What a cgroup is limited to: pure decisions, as upstream's kubelet makes them
//! (<https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>, KEP-2837 for pod-level resources, KEP-2570 for memory).

use crate::configuration::kernel::{KernelSettings, MemoryReservation};
use crate::container::resources::{quota, shares};
use crate::pod_facts::qos::{self, QosClass};
use crate::pod_facts::resources::{limits, requests};
use coracle_api::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// The least weight, of pods that ask for no CPU.
const LEAST_SHARES: i64 = 2;

/// So much, as the kernel's files of either version take it. `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The weight among the cgroups beside it, as version 1 counts; `None` leaves it as it is.
    pub cpu_shares: Option<i64>,
    /// Microseconds of CPU in each period of so many; 0 for no limit.
    pub cpu_quota: Option<(i64, i64)>,
    pub memory_max: Option<u64>,
    /// Bytes that are never taken back, and that are taken back last (version 2).
    pub memory_min: u64,
    pub memory_low: u64,
    pub pids_max: Option<u64>,
    /// Bytes by the kernel's names of sizes: `2MB`.
    pub huge_pages: BTreeMap<String, u64>,
}

/// What all pods of a node share.
#[derive(Clone, Debug)]
pub struct Policy {
    pub kernel: KernelSettings,
    pub pod_pids: Option<u64>,
    /// Of the machine's sizes of huge pages, as the Node names them: `2Mi`.
    pub page_sizes: Vec<String>,
}

fn bytes(amount: Quantity) -> u64 {
    u64::try_from(amount.units()).unwrap_or_default()
}

/// Of one pod: its containers together, with overhead, or what the pod as a whole is given. Who has CPUs of its own
/// (`own_cpus`) may use all of their time.
pub fn of_pod(pod: &Pod, own_cpus: bool, policy: &Policy) -> Limits {
    let class = qos::class(pod);
    let limit = |resource: &str| limited(pod, resource).then(|| limits(pod, resource));
    let period = i64::try_from(policy.kernel.cfs_period.as_micros()).unwrap_or(i64::MAX);
    let keeps_quota = policy.kernel.cfs_quota && !own_cpus;
    let cpu = limit("cpu").filter(|_| keeps_quota).map_or(0, |limit| quota(limit.milli(), period));
    let kept = match policy.kernel.reservation {
        MemoryReservation::Tiered => bytes(requests(pod, "memory")),
        MemoryReservation::None => 0,
    };
    Limits {
        cpu_shares: Some(if class == QosClass::BestEffort {
            LEAST_SHARES
        } else {
            shares(requests(pod, "cpu").milli())
        }),
        cpu_quota: Some((cpu, period)),
        memory_max: limit("memory").map(bytes),
        memory_min: if class == QosClass::Guaranteed { kept } else { 0 },
        memory_low: if class == QosClass::Burstable { kept } else { 0 },
        pids_max: policy.pod_pids,
        huge_pages: huge_pages(pod, policy),
    }
}

/// Whether the pod as a whole, or every one of its containers, has a limit.
fn limited(pod: &Pod, resource: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let own = !qos::amount_of(spec.resources.as_ref(), true, resource).is_zero();
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    own || all.all(|container: &Container| !qos::amount(container, true, resource).is_zero())
}

/// None may be used that nobody asked for.
fn huge_pages(pod: &Pod, policy: &Policy) -> BTreeMap<String, u64> {
    let limit = |size: &String| {
        let name = size.strip_suffix('i').map(|size| format!("{size}B"))?;
        Some((name, bytes(limits(pod, &format!("hugepages-{size}")))))
    };
    policy.page_sizes.iter().filter_map(limit).collect()
}

/// Of all pods of a class together. Burstable ones weigh what they ask for; the others are each for themselves.
pub fn of_class<'p>(class: QosClass, pods: impl Iterator<Item = &'p Pod>, kernel: &KernelSettings) -> Limits {
    if class == QosClass::BestEffort {
        return Limits { cpu_shares: Some(LEAST_SHARES), ..Limits::default() };
    }
    let (mut cpu, mut memory) = (Quantity::default(), Quantity::default());
    for pod in pods.filter(|pod| qos::class(*pod) == class) {
        cpu += requests(pod, "cpu");
        memory += requests(pod, "memory");
    }
    let kept = if kernel.reservation == MemoryReservation::Tiered { bytes(memory) } else { 0 };
    let cpu_shares = Some(shares(cpu.milli()));
    Limits { cpu_shares, memory_low: kept, ..Limits::default() }
}

/// So much of the machine: for all pods what is not reserved, for others what is reserved for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub cpu_millis: u64,
    pub memory_bytes: Option<u64>,
    pub pids: Option<u64>,
}

impl Part {
    pub fn limits(self) -> Limits {
        let shares =
            (self.cpu_millis > 0).then(|| shares(i64::try_from(self.cpu_millis).unwrap_or(i64::MAX)));
        Limits { cpu_shares: shares, memory_max: self.memory_bytes, pids_max: self.pids, ..Limits::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": spec })).unwrap()
    }

    fn policy() -> Policy {
        Policy { kernel: KernelSettings::default(), pod_pids: Some(100), page_sizes: vec!["2Mi".to_owned()] }
    }

    fn of_pod(pod: &Pod, policy: &Policy) -> Limits {
        super::of_pod(pod, false, policy)
    }

    fn container(resources: Value) -> Value {
        json!({ "name": "c", "resources": resources })
    }

    #[test]
    fn a_pods_containers_count_together_with_its_overhead() {
        let limits = json!({ "cpu": "500m", "memory": "64Mi" });
        let two = [
            container(json!({ "limits": limits, "requests": limits })),
            container(json!({ "limits": limits, "requests": limits })),
        ];
        let guaranteed = of_pod(
            &pod(json!({ "containers": two, "overhead": { "cpu": "100m", "memory": "16Mi" } })),
            &policy(),
        );
        assert_eq!(guaranteed.cpu_shares, Some(1126));
        assert_eq!(guaranteed.cpu_quota, Some((110_000, 100_000)));
        assert_eq!(guaranteed.memory_max, Some(144 << 20));
        assert_eq!((guaranteed.pids_max, guaranteed.huge_pages["2MB"]), (Some(100), 0));
        let one = json!({ "containers": [two[0], container(json!({ "requests": { "cpu": "250m" } }))] });
        let burstable = of_pod(&pod(one), &policy());
        assert_eq!(burstable.cpu_shares, Some(768));
        assert_eq!(
            (burstable.cpu_quota, burstable.memory_max),
            (Some((0, 100_000)), None),
            "one has no limit"
        );
        let free = of_pod(&pod(json!({ "containers": [container(json!({}))] })), &policy());
        assert_eq!((free.cpu_shares, free.memory_max), (Some(2), None));
    }

    #[test]
    fn who_has_cpus_of_its_own_has_all_of_their_time() {
        let limits = json!({ "cpu": "2", "memory": "64Mi" });
        let pod = pod(json!({ "containers": [container(json!({ "limits": limits, "requests": limits }))] }));
        let of = |own_cpus| super::of_pod(&pod, own_cpus, &policy());
        assert_eq!(of(false).cpu_quota, Some((200_000, 100_000)));
        assert_eq!(of(true), Limits { cpu_quota: Some((0, 100_000)), ..of(false) });
    }

    #[test]
    fn what_the_pod_as_a_whole_is_given_wins() {
        let resources = json!({ "limits": { "cpu": "1", "memory": "128Mi", "hugepages-2Mi": "4Mi" }, "requests": { "cpu": "200m" } });
        let limits = of_pod(
            &pod(
                json!({ "containers": [container(json!({ "requests": { "cpu": "100m" } }))], "resources": resources }),
            ),
            &policy(),
        );
        assert_eq!(limits.cpu_quota, Some((100_000, 100_000)));
        assert_eq!((limits.cpu_shares, limits.memory_max), (Some(204), Some(128 << 20)));
        assert_eq!(limits.huge_pages["2MB"], 4 << 20);
    }

    #[test]
    fn memory_is_kept_where_it_is_asked_for() {
        let kernel = KernelSettings {
            reservation: MemoryReservation::Tiered,
            cfs_quota: false,
            ..KernelSettings::default()
        };
        let policy = Policy { kernel: kernel.clone(), ..policy() };
        let limits = json!({ "cpu": "1", "memory": "64Mi" });
        let guaranteed =
            pod(json!({ "containers": [container(json!({ "limits": limits, "requests": limits }))] }));
        let burstable = pod(
            json!({ "containers": [container(json!({ "requests": { "cpu": "300m", "memory": "32Mi" } }))] }),
        );
        let kept = |pod: &Pod| (of_pod(pod, &policy).memory_min, of_pod(pod, &policy).memory_low);
        assert_eq!(kept(&guaranteed), (64 << 20, 0));
        assert_eq!(kept(&burstable), (0, 32 << 20));
        assert_eq!(of_pod(&guaranteed, &policy).cpu_quota, Some((0, 100_000)), "no quota");
        let class = of_class(QosClass::Burstable, [&guaranteed, &burstable, &burstable].into_iter(), &kernel);
        assert_eq!((class.cpu_shares, class.memory_low), (Some(614), 64 << 20));
        assert_eq!(of_class(QosClass::BestEffort, [&burstable].into_iter(), &kernel).cpu_shares, Some(2));
    }
}
