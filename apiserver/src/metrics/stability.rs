//! How far upstream promises to keep a metric (<https://kubernetes.io/docs/concepts/cluster-administration/system-metrics/>),
//! which its pages tell in the help of each.

use super::text::Text;

/// Of an API server, in 1.36.
pub(super) const STABLE: &[&str] = &[
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

pub(super) const BETA: &[&str] = &[
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

/// `None` for metrics that are not upstream's.
pub(super) fn level(name: &str) -> Option<&'static str> {
    const UPSTREAM: [&str; 6] =
        ["apiserver_", "authenticat", "authorization_", "etcd_", "kubernetes_", "watch_cache_"];
    match name {
        name if STABLE.contains(&name) => Some("STABLE"),
        name if BETA.contains(&name) => Some("BETA"),
        name if UPSTREAM.iter().any(|prefix| name.starts_with(prefix)) => Some("ALPHA"),
        _ => None,
    }
}

/// How many metrics there are, by level, counted on the page itself; none is hidden or turned off here.
pub(super) fn render(text: &mut Text) {
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
