//! What the keeping of NetworkPolicies counts, on the proxy's page.

use coracle_metrics::{Metrics, Text};
use std::sync::LazyLock;

coracle_metrics::metric_families! { "coracle_network_policy_";
    Syncs = counter "syncs_total" [],
        "How often policies were brought into force.";
    Failures = counter "sync_failures_total" [],
        "Failed attempts to bring policies into force.";
    Repairs = counter "repairs_total" [],
        "How often a table that somebody changed was written again.";
    Duration = histogram(0.001, 2.0, 15) "sync_duration_seconds" [],
        "Time of planning, and of writing what changed.";
    Policies = gauge "policies" [],
        "NetworkPolicies of the cluster.";
    Judged = gauge "judged_pods" [],
        "Addresses of this node's pods whose traffic is judged while there are policies.";
}

static ALL: LazyLock<Metrics<Metric>> = LazyLock::new(Metrics::default);

pub(super) fn all() -> &'static Metrics<Metric> {
    &ALL
}

/// Writes everything.
pub fn render(text: &mut Text) {
    ALL.render(text);
}
