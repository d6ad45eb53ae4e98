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

/// Of the other components.
const STABLE_PARTS: &[&str] = &[
    "container_cpu_usage_seconds_total",
    "container_memory_working_set_bytes",
    "container_start_time_seconds",
    "cronjob_controller_job_creation_skew_duration_seconds",
    "job_controller_job_pods_finished_total",
    "job_controller_job_sync_duration_seconds",
    "job_controller_job_syncs_total",
    "job_controller_jobs_finished_total",
    "kube_pod_resource_limit",
    "kube_pod_resource_request",
    "node_collector_evictions_total",
    "node_cpu_usage_seconds_total",
    "node_memory_working_set_bytes",
    "pod_cpu_usage_seconds_total",
    "pod_memory_working_set_bytes",
    "resource_scrape_error",
    "scheduler_framework_extension_point_duration_seconds",
    "scheduler_pending_pods",
    "scheduler_pod_scheduling_attempts",
    "scheduler_preemption_attempts_total",
    "scheduler_preemption_victims",
    "scheduler_queue_incoming_pods_total",
    "scheduler_schedule_attempts_total",
    "scheduler_scheduling_attempt_duration_seconds",
];

/// Of all components, and of an API server where they say something only with certain settings.
const BETA_PARTS: &[&str] = &[
    "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authentication_config_controller_automatic_reloads_total",
    "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authorization_config_controller_automatic_reloads_total",
    "apiserver_storage_events_received_total",
    "apiserver_watch_list_duration_seconds",
    "kubelet_image_volume_mounted_errors_total",
    "kubelet_image_volume_mounted_succeed_total",
    "kubelet_image_volume_requested_total",
    "kubernetes_build_info",
    "prober_probe_total",
    "running_managed_controllers",
    "scheduler_goroutines",
    "scheduler_permit_wait_duration_seconds",
    "scheduler_plugin_evaluation_total",
    "scheduler_pod_scheduling_sli_duration_seconds",
    "scheduler_unschedulable_pods",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds",
];

/// Of families of upstream's, which promises nothing of the rest of them.
const ALPHA: &[&str] = &[
    "aggregator_",
    "apiserver_",
    "authenticat",
    "authorization_",
    "container_swap_",
    "csi_operations_",
    "dra_",
    "etcd_",
    "kubelet_",
    "kubeproxy_",
    "kubernetes_",
    "node_swap_",
    "plugin_manager_",
    "pod_security_",
    "pod_swap_",
    "prober_",
    "rest_client_",
    "scheduler_",
    "serviceaccount_",
    "storage_operation_",
    "volume_manager_",
    "watch_cache_",
];

/// Named like upstream's, which has none of them.
const OURS: &[&str] =
    &["kubeproxy_configuration_refused_total", "kubeproxy_entries", "kubeproxy_repairs_total"];

/// `None` for metrics that are not upstream's.
pub(crate) fn level(name: &str) -> Option<&'static str> {
    match name {
        name if STABLE.contains(&name) || STABLE_PARTS.contains(&name) => Some("STABLE"),
        name if BETA.contains(&name) || BETA_PARTS.contains(&name) => Some("BETA"),
        name if OURS.contains(&name) => None,
        name if ALPHA.iter().any(|prefix| name.starts_with(prefix)) => Some("ALPHA"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_says_how_far_its_metrics_are_promised() {
        for (name, expected) in [
            ("kubelet_running_pods", Some("ALPHA")),
            ("kubelet_image_volume_requested_total", Some("BETA")),
            ("prober_probe_total", Some("BETA")),
            ("prober_probe_duration_seconds", Some("ALPHA")),
            ("node_cpu_usage_seconds_total", Some("STABLE")),
            ("workqueue_depth", Some("BETA")),
            ("kubelet_terminated_containers_total", Some("ALPHA")),
            ("scheduler_unschedulable_pods", Some("BETA")),
            ("kubeproxy_sync_proxy_rules_duration_seconds", Some("ALPHA")),
            ("kubeproxy_entries", None),
            ("coracle_store_objects", None),
            ("process_open_fds", None),
        ] {
            assert_eq!(level(name), expected, "{name}");
        }
    }

    #[test]
    fn pages_that_others_have_made_promise_nothing() {
        let name = "container_start_time_seconds";
        let page = |mut text: Text| {
            text.single(name, "Start.", "gauge", 1);
            text.finish()
        };
        assert!(page(Text::default()).starts_with("# HELP container_start_time_seconds [STABLE] Start."));
        assert!(page(Text::without_levels()).starts_with("# HELP container_start_time_seconds Start."));
    }
}
