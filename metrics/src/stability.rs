//! How far upstream promises to keep a metric (<https://kubernetes.io/docs/concepts/cluster-administration/system-metrics/>),
//! which its pages tell in the help of each.

use crate::Text;

/// Of an API server, in 1.36.
pub const STABLE: &[&str] = &[
    "apiserver_admission_controller_admission_duration_seconds",
    "apiserver_admission_step_admission_duration_seconds",
    "apiserver_admission_webhook_admission_duration_seconds",
    "apiserver_current_inflight_requests",
    "apiserver_longrunning_requests",
    "apiserver_request_duration_seconds",
    "apiserver_request_total",
    "apiserver_requested_deprecated_apis",
    "apiserver_response_sizes",
    "apiserver_storage_objects",
    "apiserver_storage_size_bytes",
    "kubernetes_healthcheck",
    "kubernetes_healthchecks_total",
];

pub const BETA: &[&str] = &[
    "apiserver_cel_compilation_duration_seconds",
    "apiserver_cel_evaluation_duration_seconds",
    "apiserver_flowcontrol_current_executing_requests",
    "apiserver_flowcontrol_current_executing_seats",
    "apiserver_flowcontrol_current_inqueue_requests",
    "apiserver_flowcontrol_dispatched_requests_total",
    "apiserver_flowcontrol_nominal_limit_seats",
    "apiserver_flowcontrol_rejected_requests_total",
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "apiserver_validating_admission_policy_check_duration_seconds",
    "apiserver_validating_admission_policy_check_total",
    "disabled_metrics_total",
    "hidden_metrics_total",
    "kubernetes_feature_enabled",
    "registered_metrics_total",
];

/// Of the scheduler and the controllers.
const STABLE_PARTS: &[&str] = &[
    "cronjob_controller_job_creation_skew_duration_seconds",
    "job_controller_job_pods_finished_total",
    "job_controller_job_sync_duration_seconds",
    "job_controller_job_syncs_total",
    "job_controller_jobs_finished_total",
    "kube_pod_resource_limit",
    "kube_pod_resource_request",
    "node_collector_evictions_total",
    "scheduler_framework_extension_point_duration_seconds",
    "scheduler_pending_pods",
    "scheduler_pod_scheduling_attempts",
    "scheduler_preemption_attempts_total",
    "scheduler_preemption_victims",
    "scheduler_queue_incoming_pods_total",
    "scheduler_schedule_attempts_total",
    "scheduler_scheduling_attempt_duration_seconds",
];

const BETA_PARTS: &[&str] = &["scheduler_pod_scheduling_sli_duration_seconds"];

/// `None` for metrics that are not upstream's.
pub(crate) fn level(name: &str) -> Option<&'static str> {
    const UPSTREAM: [&str; 7] =
        ["apiserver_", "authenticat", "authorization_", "etcd_", "kubernetes_", "scheduler_", "watch_cache_"];
    match name {
        name if STABLE.contains(&name) || STABLE_PARTS.contains(&name) => Some("STABLE"),
        name if BETA.contains(&name) || BETA_PARTS.contains(&name) => Some("BETA"),
        name if UPSTREAM.iter().any(|prefix| name.starts_with(prefix)) => Some("ALPHA"),
        _ => None,
    }
}

/// Writes how many metrics there are, by level, counted on the page itself; none is hidden or turned off here.
pub fn render(text: &mut Text) {
    let levels = ["ALPHA", "BETA", "STABLE"];
    let counts = levels.map(|level| {
        let mark = format!(" [{level}] ");
        text.so_far().lines().filter(|line| line.starts_with("# HELP ") && line.contains(&mark)).count()
    });
    text.single("disabled_metrics_total", "Metrics that are turned off.", "counter", 0);
    text.single("hidden_metrics_total", "Metrics that are hidden.", "counter", 0);
    let name = "registered_metrics_total";
    text.head(name, "Metrics by their level of stability.", "counter");
    for (level, count) in levels.iter().zip(counts) {
        text.sample(name, &[("deprecated_version", ""), ("stability_level", level)], count);
    }
}
