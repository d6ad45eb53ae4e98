//! What a kubelet counts, under upstream's names, for `/metrics`.

pub mod probes;
mod startup;

use coracle_metrics::Text;
use coracle_storage::csi::{CallListener, Called};
use probes::Counts;
use startup::Startup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Prometheus' own.
pub(crate) const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const POD_START: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const CLAIMS: &[f64] =
    &[0.1, 0.15, 0.25, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 4.0, 5.0, 7.5, 10.0, 15.0, 25.0, 40.0];
const PULLS: &[f64] =
    &[1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 180.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0];
const STATUS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
const VOLUMES: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

coracle_metrics::metric_families! { "";
    StartedPods = counter "kubelet_started_pods_total" [], "Cumulative number of pods started";
    StartedPodsErrors = counter "kubelet_started_pods_errors_total" [],
        "Cumulative number of errors when starting pods";
    StartedContainers = counter "kubelet_started_containers_total" ["container_type"],
        "Cumulative number of containers started";
    StartedContainersErrors = counter "kubelet_started_containers_errors_total" ["code", "container_type"],
        "Cumulative number of errors when starting containers";
    TerminatedContainers = counter "kubelet_terminated_containers_total" ["container_type", "exit_code", "reason"],
        "Cumulative number of containers that ended";
    RuntimeCalls = counter "kubelet_runtime_operations_total" ["operation_type"],
        "Cumulative number of calls to the runtime";
    RuntimeErrors = counter "kubelet_runtime_operations_errors_total" ["operation_type"],
        "Cumulative number of calls to the runtime that failed";
    RuntimeDuration = histogram(0.005, 2.5, 14) "kubelet_runtime_operations_duration_seconds" ["operation_type"],
        "Duration in seconds of calls to the runtime";
    Evictions = counter "kubelet_evictions" ["eviction_signal"],
        "Cumulative number of pods evicted, by eviction signal";
    EvictionStatsAge = histogram{DEFAULT} "kubelet_eviction_stats_age_seconds" ["eviction_signal"],
        "Duration in seconds from when the node was found short to when a pod was evicted for it";
    AdmissionRejections = counter "kubelet_admission_rejections_total" ["reason"],
        "Cumulative number of pods that the node refused";
    PodStart = histogram{POD_START} "kubelet_pod_start_duration_seconds" [],
        "Duration in seconds from when the kubelet first saw a pod to when all its containers ran";
    PodStartTotal = histogram{POD_START} "kubelet_pod_start_total_duration_seconds" [],
        "Duration in seconds from when a pod was created to when all its containers ran";
    PodStartSli = histogram{POD_START} "kubelet_pod_start_sli_duration_seconds" [],
        "The same without pulling images and without init containers";
    ContainersPerPod = histogram(1.0, 2.0, 5) "kubelet_containers_per_pod_count" [],
        "Number of containers of the pods that came";
    StatusSync = histogram{STATUS} "kubelet_pod_status_sync_duration_seconds" [],
        "Duration in seconds from when a pod's status changed to when the API server had it";
    Sandbox = histogram{DEFAULT} "kubelet_run_podsandbox_duration_seconds" ["runtime_handler"],
        "Duration in seconds of making a sandbox, by handler";
    SandboxErrors = counter "kubelet_run_podsandbox_errors_total" ["runtime_handler"],
        "Cumulative number of sandboxes that could not be made, by handler";
    UserPods = counter "kubelet_started_user_namespaced_pods_total" [],
        "Cumulative number of pods started with users of their own";
    UserPodsErrors = counter "kubelet_started_user_namespaced_pods_errors_total" [],
        "Cumulative number of errors when starting pods with users of their own";
    OrphanedPods = counter "kubelet_orphaned_runtime_pods_total" [],
        "Cumulative number of pods that the runtime had and nobody knew";
    Preemptions = counter "kubelet_preemptions" ["preemption_signal"],
        "Cumulative number of pods that made room for critical ones, by what was short";
    WorkerStart = histogram{DEFAULT} "kubelet_pod_worker_start_duration_seconds" [],
        "Duration in seconds from when the kubelet saw a pod to when its worker began";
    PodWorker = histogram{DEFAULT} "kubelet_pod_worker_duration_seconds" ["operation_type"],
        "Duration in seconds of one step of a pod's worker";
    PlegRelist = histogram{DEFAULT} "kubelet_pleg_relist_duration_seconds" [],
        "Duration in seconds of asking the runtime for all sandboxes and containers";
    PlegInterval = histogram{DEFAULT} "kubelet_pleg_relist_interval_seconds" [],
        "Interval in seconds between two such questions";
    EventsLatency = histogram{DEFAULT} "kubelet_evented_pleg_connection_latency_seconds" [],
        "Duration in seconds from when the runtime made an event to when it was heard";
    RestartedPods = counter "kubelet_restarted_pods_total" ["static"],
        "Cumulative number of pods that came back with the UID that they had before they went";
    OrphansCleaned = gauge "kubelet_orphan_pod_cleaned_volumes" [],
        "Number of pods that are gone and whose volumes were taken away when the kubelet began";
    OrphansLeft = gauge "kubelet_orphan_pod_cleaned_volumes_errors" [],
        "Number of pods that are gone and whose volumes could not be taken away yet";
    PlegSeen = gauge "kubelet_pleg_last_seen_seconds" [],
        "When they were answered last, in seconds since 1970";
    Cgroup = histogram{DEFAULT} "kubelet_cgroup_manager_duration_seconds" ["operation_type"],
        "Duration in seconds of writing the cgroup of a pod";
    ImagePull = histogram{PULLS} "kubelet_image_pull_duration_seconds" ["image_size_in_bytes"],
        "Duration in seconds of pulling an image, by its size";
    ImagesRemoved = counter "kubelet_image_garbage_collected_total" ["reason"],
        "Cumulative number of images removed for space, or for their age";
    EnsureImage = counter "kubelet_image_manager_ensure_image_requests_total" ["pull_policy", "present_locally", "pull_required"],
        "Cumulative number of times that an image was to be there";
    MustPull = counter "kubelet_imagemanager_image_mustpull_checks_total" ["result"],
        "Cumulative number of judgements whether a pod may use an image that is there";
    PullRecords = gauge "kubelet_imagemanager_ondisk_pulledrecords" [],
        "Number of images of which it is noted who has pulled them";
    PullIntents = gauge "kubelet_imagemanager_ondisk_pullintents" [],
        "Number of pulls whose end is not noted yet";
    ImageVolumes = counter "kubelet_image_volume_requested_total" [],
        "Cumulative number of images that containers were to mount";
    ImageVolumesMounted = counter "kubelet_image_volume_mounted_succeed_total" [],
        "Cumulative number of images that containers have mounted";
    ImageVolumesFailed = counter "kubelet_image_volume_mounted_errors_total" [],
        "Cumulative number of images that containers could not mount";
    InFlight = gauge "kubelet_http_inflight_requests" ["method", "path", "server_type", "long_running"],
        "Number of requests that are being answered";
    Requests = counter "kubelet_http_requests_total" ["method", "path", "server_type", "long_running"],
        "Cumulative number of requests that were answered";
    RequestDuration = histogram{DEFAULT} "kubelet_http_requests_duration_seconds" ["method", "path", "server_type", "long_running"],
        "Duration in seconds until requests are answered; what is streamed comes later";
    RequestedResizes = counter "kubelet_container_requested_resizes_total" ["resource", "requirement", "operation"],
        "Cumulative number of changes to the resources of containers that were asked for";
    InfeasibleResizes = counter "kubelet_pod_infeasible_resizes_total" ["reason_detail"],
        "Cumulative number of resizes that the node can never grant";
    DeferredResizes = counter "kubelet_pod_deferred_accepted_resizes_total" ["retry_trigger"],
        "Cumulative number of resizes that were granted after they had to wait";
    ResizeDuration = histogram(10.0, 2.0, 15) "kubelet_pod_resize_duration_milliseconds" ["success"],
        "Duration in milliseconds from when a resize was granted to when it was carried out";
    VolumeOperations = histogram{VOLUMES} "storage_operation_duration_seconds" ["migrated", "operation_name", "status", "volume_plugin"],
        "Duration in seconds of work on volumes";
    VolumeMeasurements = histogram{DEFAULT} "kubelet_volume_metric_collection_duration_seconds" ["metric_source"],
        "Duration in seconds of finding out what a volume holds, by who was asked";
    CsiOperations = histogram{VOLUMES} "csi_operations_seconds" ["driver_name", "method_name", "grpc_status_code", "migrated"],
        "Duration in seconds of calls to CSI drivers";
    Plugins = gauge "plugin_manager_total_plugins" ["socket_path", "state"],
        "Number of plugins that offer themselves, and that are registered";
    DraCalls = histogram{CLAIMS} "dra_grpc_operations_duration_seconds" ["driver_name", "method_name", "grpc_status_code"],
        "Duration in seconds of calls to drivers of claims";
    Dra = histogram{CLAIMS} "dra_operations_duration_seconds" ["operation_name", "is_error"],
        "Duration in seconds of preparing the claims of a pod, or giving them back";
    DeviceAllocation = histogram{DEFAULT} "kubelet_device_plugin_alloc_duration_seconds" ["resource_name"],
        "Duration in seconds of a device plugin's answer to an allocation";
    PluginRegistrations = counter "kubelet_device_plugin_registration_total" ["resource_name"],
        "Cumulative number of registrations of device plugins";
    CpuPinningRequests = counter "kubelet_cpu_manager_pinning_requests_total" [],
        "Cumulative number of containers that asked for CPUs of their own";
    CpuPinningErrors = counter "kubelet_cpu_manager_pinning_errors_total" [],
        "Cumulative number of containers that did not get them";
    Aligned = counter "kubelet_container_aligned_compute_resources_count" ["scope", "boundary"],
        "Cumulative number of allocations that were sure to be within a boundary, and are";
    AlignedFailures = counter "kubelet_container_aligned_compute_resources_failure_count" ["scope", "boundary"],
        "Cumulative number of allocations that were sure to be within a boundary, and could not be";
    CpuSharedPool = gauge "kubelet_cpu_manager_shared_pool_size_millicores" [],
        "CPUs that containers share, in thousandths";
    CpuExclusive = gauge "kubelet_cpu_manager_exclusive_cpu_allocation_count" [],
        "CPUs that containers have as their own";
    CpuPerNode = gauge "kubelet_cpu_manager_allocation_per_numa" ["numa_node"],
        "CPUs that containers have as their own, by NUMA node";
    MemoryPinningRequests = counter "kubelet_memory_manager_pinning_requests_total" [],
        "Cumulative number of containers that asked for memory of their own";
    MemoryPinningErrors = counter "kubelet_memory_manager_pinning_errors_total" [],
        "Cumulative number of containers that did not get it";
    TopologyRequests = counter "kubelet_topology_manager_admission_requests_total" [],
        "Cumulative number of pods whose resources had to agree on NUMA nodes";
    TopologyErrors = counter "kubelet_topology_manager_admission_errors_total" [],
        "Cumulative number of pods whose resources did not agree";
    TopologyAdmission = histogram(0.05, 2.0, 15) "kubelet_topology_manager_admission_duration_ms" [],
        "Duration in milliseconds of placing the resources of a pod";
    PodResourcesRequests = counter "kubelet_pod_resources_endpoint_requests_total" ["server_api_version"],
        "Cumulative number of requests to the pod-resources API";
    PodResourcesList = counter "kubelet_pod_resources_endpoint_requests_list" ["server_api_version"],
        "Cumulative number of its List requests";
    PodResourcesGet = counter "kubelet_pod_resources_endpoint_requests_get" ["server_api_version"],
        "Cumulative number of its Get requests";
    PodResourcesAllocatable = counter "kubelet_pod_resources_endpoint_requests_get_allocatable" ["server_api_version"],
        "Cumulative number of its GetAllocatableResources requests";
    PodResourcesListErrors = counter "kubelet_pod_resources_endpoint_errors_list" ["server_api_version"],
        "Cumulative number of List requests that failed";
    PodResourcesGetErrors = counter "kubelet_pod_resources_endpoint_errors_get" ["server_api_version"],
        "Cumulative number of Get requests that failed";
    PodResourcesAllocatableErrors = counter "kubelet_pod_resources_endpoint_errors_get_allocatable" ["server_api_version"],
        "Cumulative number of GetAllocatableResources requests that failed";
    EventsErrors = counter "kubelet_evented_pleg_connection_error_count" [],
        "Cumulative number of failures to follow the runtime's events";
    EventsConnections = counter "kubelet_evented_pleg_connection_success_count" [],
        "How often the runtime's events began to be followed";
    HttpFallbacks = counter "kubelet_lifecycle_handler_http_fallbacks_total" [],
        "Cumulative number of hooks that were to be heard by TLS, and were without it";
    SleepsCut = counter "kubelet_sleep_action_terminated_early_total" [],
        "Cumulative number of sleeping hooks that were ended before their time";
    ShutdownStart = gauge "kubelet_graceful_shutdown_start_time_seconds" [],
        "When pods were told last that the machine ends, in seconds since 1970";
    ShutdownEnd = gauge "kubelet_graceful_shutdown_end_time_seconds" [],
        "When the last of them had ended, in seconds since 1970";
}

/// The figures of a kubelet. Cloning shares them: whoever makes kubelets one after the other hands the same to each, and
/// counters go on.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    families: Arc<coracle_metrics::Metrics<Metric>>,
    /// How the probes of containers have ended.
    pub probes: Arc<Counts>,
    pub health_checks: Arc<HealthChecks>,
    /// How the node came to be Ready.
    pub startup: Arc<Startup>,
}

impl Metrics {
    /// Adds one to a counter.
    pub fn add(&self, metric: Metric, labels: &[&str]) {
        self.families.add(metric, labels, 1);
    }

    /// Adds to a gauge, or takes from it.
    pub fn change(&self, metric: Metric, labels: &[&str], by: i64) {
        self.families.add(metric, labels, by);
    }

    /// Sets a gauge.
    pub fn set(&self, metric: Metric, labels: &[&str], to: usize) {
        self.families.set(metric, labels, i64::try_from(to).unwrap_or(i64::MAX));
    }

    pub fn took(&self, metric: Metric, labels: &[&str], time: Duration) {
        self.families.observe(metric, labels, time);
    }

    /// For families of other things than times.
    pub fn counted(&self, metric: Metric, labels: &[&str], amount: f64) {
        self.families.observe_number(metric, labels, amount);
    }

    /// For families in milliseconds.
    pub fn took_millis(&self, metric: Metric, labels: &[&str], time: Duration) {
        self.families.observe_number(metric, labels, time.as_secs_f64() * 1000.0);
    }

    /// Sets a gauge of a time, in seconds since 1970.
    pub fn happened(&self, metric: Metric) {
        self.families.set(metric, &[], jiff::Timestamp::now().as_second());
    }

    /// Replaces all gauges of a family.
    pub fn replace<'l>(&self, metric: Metric, samples: impl IntoIterator<Item = (Vec<&'l str>, usize)>) {
        self.families.set_all(metric, samples);
    }

    /// Counts what a CSI driver is asked.
    pub fn of_csi(&self, driver: &str) -> CallListener {
        let (this, driver) = (self.clone(), driver.to_owned());
        CallListener::new(move |Called { path, code, time }| {
            this.took(Metric::CsiOperations, &[&driver, path, code, "false"], time);
        })
    }

    /// Counts what a driver of claims is asked.
    pub fn of_dra(&self, driver: &str) -> CallListener {
        let (this, driver) = (self.clone(), driver.to_owned());
        CallListener::new(move |Called { path, code, time }| {
            this.took(Metric::DraCalls, &[&driver, path, code], time);
        })
    }

    /// Writes what `/metrics` shows of them.
    pub fn render(&self, text: &mut Text) {
        self.families.render(text);
        self.startup.render(text);
    }
}

/// The checks behind `/healthz`, by upstream's names. All three hold as long as this process answers at all.
const CHECKS: [&str; 3] = ["log", "ping", "syncloop"];

/// How often each health check was asked.
#[derive(Debug, Default)]
pub struct HealthChecks([AtomicU64; CHECKS.len()]);

impl HealthChecks {
    /// A check was asked at this path, cut at its slashes; the path of no single check asks them all.
    pub fn asked(&self, path: &[&str]) {
        let alone = path.get(1).copied();
        for (name, asked) in CHECKS.iter().zip(&self.0) {
            if alone.is_none_or(|wanted| wanted == *name) {
                asked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The checks, and how often each was asked.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CHECKS.into_iter().zip(self.0.iter().map(|asked| asked.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_metrics::{Families, Kind};

    #[test]
    fn every_family_shows_what_was_counted() {
        let metrics = coracle_metrics::Metrics::default();
        for metric in Metric::ALL {
            let description = metric.description();
            let labels = vec!["test"; description.labels.len()];
            match description.kind {
                Kind::Counter => metrics.add(*metric, &labels, 1),
                Kind::Gauge => metrics.set(*metric, &labels, 1),
                Kind::Histogram => {
                    assert!(description.buckets.is_sorted() && !description.buckets.is_empty(), "{metric:?}");
                    metrics.observe_number(*metric, &labels, 1.0);
                }
            }
        }
        let mut text = Text::default();
        metrics.render(&mut text);
        let page = text.finish();
        for metric in Metric::ALL {
            let description = metric.description();
            let labels: Vec<String> =
                description.labels.iter().map(|label| format!("{label}=\"test\"")).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let suffix = if description.kind == Kind::Histogram { "_count" } else { "" };
            let line = format!("\n{}{suffix}{labels} 1\n", description.name);
            assert!(page.contains(&line), "{line} in\n{page}");
        }
    }
}
