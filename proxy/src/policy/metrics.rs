//! What the keeping of NetworkPolicies counts, on the proxy's page.

/// Whoever starts the proxy and the pod network hands the same to both: one shows what the other counts.
pub type Metrics = coracle_metrics::Metrics<Metric>;

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
