//! What a scheduler is told: its profiles and how hard it looks.

use std::time::Duration;

/// A named set of plugins, chosen by a pod's `spec.schedulerName`.
#[derive(Clone, Debug)]
pub struct Profile {
    pub scheduler_name: String,
    /// Plugin and the weight of its score, in the order in which plugins run.
    pub plugins: Vec<(String, i64)>,
}

/// Upstream's defaults: the plugins that exist here, with the weights of upstream's default profile.
pub const DEFAULT_PLUGINS: &[(&str, i64)] = &[
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeBinding", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("DefaultBinder", 0),
];

impl Default for Profile {
    fn default() -> Self {
        let plugins = DEFAULT_PLUGINS.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
        Self { scheduler_name: "default-scheduler".to_owned(), plugins }
    }
}

/// Plain data; upstream's `KubeSchedulerConfiguration` is turned into it.
#[derive(Clone, Debug)]
pub struct Config {
    pub profiles: Vec<Profile>,
    /// 0 adapts to the cluster's size as upstream does; else the percentage of nodes after which filtering stops.
    pub percentage_of_nodes_to_score: usize,
    /// First and longest pause of a pod that could not be scheduled.
    pub backoff: (Duration, Duration),
    /// Bindings under way at once. Bound so that a burst of pods does not hold a request each in memory.
    pub parallel_bindings: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default()],
            percentage_of_nodes_to_score: 0,
            backoff: (Duration::from_secs(1), Duration::from_secs(10)),
            parallel_bindings: 64,
        }
    }
}
