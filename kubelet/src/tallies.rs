//! Counters and gauges with labels of their own, by the names that dashboards know, for `/metrics`.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A family of upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tally {
    PluginRegistrations,
    CpuPinningRequests,
    CpuPinningErrors,
    CpuSharedPool,
    CpuExclusive,
    CpuPerNode,
    MemoryPinningRequests,
    MemoryPinningErrors,
    TopologyRequests,
    TopologyErrors,
    PodResourcesRequests,
    PodResourcesList,
    PodResourcesGet,
    PodResourcesAllocatable,
    PodResourcesListErrors,
    PodResourcesGetErrors,
    PodResourcesAllocatableErrors,
    ShutdownStart,
    ShutdownEnd,
}

use Tally::*;

/// Name, kind, the name of its label if it has one, and what it counts.
type Family = (Tally, &'static str, &'static str, Option<&'static str>, &'static str);

const VERSION: Option<&str> = Some("server_api_version");

pub const FAMILIES: [Family; 19] = [
    (
        PluginRegistrations,
        "kubelet_device_plugin_registration_total",
        "counter",
        Some("resource_name"),
        "Cumulative number of registrations of device plugins",
    ),
    (
        CpuPinningRequests,
        "kubelet_cpu_manager_pinning_requests_total",
        "counter",
        None,
        "Cumulative number of containers that asked for CPUs of their own",
    ),
    (
        CpuPinningErrors,
        "kubelet_cpu_manager_pinning_errors_total",
        "counter",
        None,
        "Cumulative number of containers that did not get them",
    ),
    (
        CpuSharedPool,
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "gauge",
        None,
        "CPUs that containers share, in thousandths",
    ),
    (
        CpuExclusive,
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "gauge",
        None,
        "CPUs that containers have as their own",
    ),
    (
        CpuPerNode,
        "kubelet_cpu_manager_allocation_per_numa",
        "gauge",
        Some("numa_node"),
        "CPUs that containers have as their own, by NUMA node",
    ),
    (
        MemoryPinningRequests,
        "kubelet_memory_manager_pinning_requests_total",
        "counter",
        None,
        "Cumulative number of containers that asked for memory of their own",
    ),
    (
        MemoryPinningErrors,
        "kubelet_memory_manager_pinning_errors_total",
        "counter",
        None,
        "Cumulative number of containers that did not get it",
    ),
    (
        TopologyRequests,
        "kubelet_topology_manager_admission_requests_total",
        "counter",
        None,
        "Cumulative number of pods whose resources had to agree on NUMA nodes",
    ),
    (
        TopologyErrors,
        "kubelet_topology_manager_admission_errors_total",
        "counter",
        None,
        "Cumulative number of pods whose resources did not agree",
    ),
    (
        PodResourcesRequests,
        "kubelet_pod_resources_endpoint_requests_total",
        "counter",
        VERSION,
        "Cumulative number of requests to the pod-resources API",
    ),
    (
        PodResourcesList,
        "kubelet_pod_resources_endpoint_requests_list",
        "counter",
        VERSION,
        "Cumulative number of its List requests",
    ),
    (
        PodResourcesGet,
        "kubelet_pod_resources_endpoint_requests_get",
        "counter",
        VERSION,
        "Cumulative number of its Get requests",
    ),
    (
        PodResourcesAllocatable,
        "kubelet_pod_resources_endpoint_requests_get_allocatable",
        "counter",
        VERSION,
        "Cumulative number of its GetAllocatableResources requests",
    ),
    (
        PodResourcesListErrors,
        "kubelet_pod_resources_endpoint_errors_list",
        "counter",
        VERSION,
        "Cumulative number of List requests that failed",
    ),
    (
        PodResourcesGetErrors,
        "kubelet_pod_resources_endpoint_errors_get",
        "counter",
        VERSION,
        "Cumulative number of Get requests that failed",
    ),
    (
        PodResourcesAllocatableErrors,
        "kubelet_pod_resources_endpoint_errors_get_allocatable",
        "counter",
        VERSION,
        "Cumulative number of GetAllocatableResources requests that failed",
    ),
    (
        ShutdownStart,
        "kubelet_graceful_shutdown_start_time_seconds",
        "gauge",
        None,
        "When pods were told last that the machine ends, in seconds since 1970",
    ),
    (
        ShutdownEnd,
        "kubelet_graceful_shutdown_end_time_seconds",
        "gauge",
        None,
        "When the last of them had ended, in seconds since 1970",
    ),
];

static ALL: Mutex<BTreeMap<(Tally, String), u64>> = Mutex::new(BTreeMap::new());

/// `label` is empty for families without.
pub fn count(what: Tally, label: &str) {
    *ALL.lock().entry((what, label.to_owned())).or_default() += 1;
}

pub fn set(what: Tally, label: &str, value: u64) {
    ALL.lock().insert((what, label.to_owned()), value);
}

pub fn all() -> BTreeMap<(Tally, String), u64> {
    ALL.lock().clone()
}
