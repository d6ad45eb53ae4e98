//! Counts what was given within a boundary that the settings make sure of: one NUMA node, whole cores, one cache.

use super::Allocation;
use crate::metrics::Metric;
use crate::placement::topology::{Policy, Scope};

impl Allocation {
    /// Counts what the policy makes sure of, or why a pod cannot run.
    pub(super) fn on_one_node(&self, metric: Metric) {
        if self.settings.topology.policy == Policy::SingleNumaNode {
            let scope = match self.settings.topology.scope {
                Scope::Container => "container",
                Scope::Pod => "pod",
            };
            self.metrics.add(metric, &[scope, "numa_node"]);
        }
    }

    /// Counts CPUs that are whole cores, and those that share one cache, where containers are to have such.
    pub(super) fn count_aligned(&self, taken: bool, one_cache: bool) {
        let Some(options) = self.settings.cpus else { return };
        if options.full_pcpus_only {
            let metric = if taken { Metric::Aligned } else { Metric::AlignedFailures };
            self.metrics.add(metric, &["container", "physical_cpu"]);
        }
        if options.prefer_align_cpus_by_uncorecache && taken && one_cache {
            self.metrics.add(Metric::Aligned, &["container", "uncore_cache"]);
        }
    }
}
