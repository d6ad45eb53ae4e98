//! What the scheduler counts, under upstream's names. It knows no server: whoever serves metrics hands a [`Page`].

pub use coracle_client::metrics::families::{Families, Page};
pub mod resources;

use coracle_client::metrics::families::{NONE, metric_families};

const MILLIS: (f64, f64, i32) = (0.001, 2.0, 15);

pub type Metrics = coracle_client::metrics::families::Metrics<Metric>;

metric_families! { "scheduler_";
    ScheduleAttempts = "schedule_attempts_total", "counter", ["result", "profile"], NONE,
        "Attempts to schedule a pod, by what came of them.";
    AttemptDuration = "scheduling_attempt_duration_seconds", "histogram", ["result", "profile"], MILLIS,
        "Time of an attempt, decision and binding.";
    AlgorithmDuration = "scheduling_algorithm_duration_seconds", "histogram", [], MILLIS,
        "Time of a decision.";
    PreemptionVictims = "preemption_victims", "histogram", [], (1.0, 2.0, 7), "Pods taken away for one other.";
    PreemptionAttempts = "preemption_attempts_total", "counter", [], NONE, "Attempts to take pods away.";
    PendingPods = "pending_pods", "gauge", ["queue"], NONE, "Pods without a node, by the queue they wait in.";
    SliDuration = "pod_scheduling_sli_duration_seconds", "histogram", ["attempts"], (0.01, 2.0, 20),
        "Time from a pod's coming into the queue to its node.";
    Attempts = "pod_scheduling_attempts", "histogram", [], (1.0, 2.0, 5), "Attempts until a pod got its node.";
    ExtensionPoint = "framework_extension_point_duration_seconds", "histogram",
        ["extension_point", "status", "profile"], (0.0001, 2.0, 12), "Time of all plugins of an extension point.";
    PluginExecution = "plugin_execution_duration_seconds", "histogram",
        ["plugin", "extension_point", "status"], (0.00001, 1.5, 20),
        "Time of one plugin at one extension point, of every tenth pod.";
    PluginEvaluation = "plugin_evaluation_total", "counter", ["plugin", "extension_point", "profile"], NONE,
        "Pods that a plugin was asked about at an extension point.";
    PreemptionDuration = "preemption_goroutines_duration_seconds", "histogram", ["result"], MILLIS,
        "Time until the victims of a pod were told.";
    PreemptionExecutions = "preemption_goroutines_execution_total", "counter", ["result"], NONE,
        "Pods whose victims were told, by what came of it.";
    IncomingPods = "queue_incoming_pods_total", "counter", ["queue", "event"], NONE,
        "Pods that came into a queue, by the event that brought them there.";
    AfterFlush = "pod_scheduled_after_flush_total", "counter", [], NONE,
        "Pods that got a node when they were tried because they had waited for too long.";
    Goroutines = "goroutines", "gauge", ["operation"], NONE, "Tasks at work beside the scheduling cycle.";
    PermitWait = "permit_wait_duration_seconds", "histogram", ["result"], MILLIS, "Time of waiting for permission.";
    CacheSize = "cache_size", "gauge", ["type"], NONE, "Nodes, pods, and assumed pods that the scheduler knows.";
    UnschedulablePods = "unschedulable_pods", "gauge", ["plugin", "profile"], NONE,
        "Pods that wait, by the plugins that refused them.";
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[derive(Default)]
    pub struct Lines(pub Vec<String>);

    impl Page for Lines {
        fn head(&mut self, name: &str, _help: &str, kind: &str) {
            self.0.push(format!("# {name} {kind}"));
        }
        fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
            self.0.push(format!("{name} {labels:?} {value}"));
        }
    }

    #[test]
    fn histograms_are_cumulative_and_gauges_are_replaced() {
        let metrics = Metrics::default();
        metrics.observe_number(Metric::PreemptionVictims, &[], 3.0);
        metrics.observe_number(Metric::PreemptionVictims, &[], 100.0);
        metrics.set_all(Metric::PendingPods, [(vec!["active"], 3)]);
        metrics.set_all(Metric::PendingPods, [(vec!["gated"], 1)]);
        let mut page = Lines::default();
        metrics.render(&mut page);
        let has = |line: &str| assert!(page.0.iter().any(|l| l == line), "{line} in {:#?}", page.0);
        has("scheduler_preemption_victims_bucket [(\"le\", \"2\")] 0");
        has("scheduler_preemption_victims_bucket [(\"le\", \"64\")] 1");
        has("scheduler_preemption_victims_bucket [(\"le\", \"+Inf\")] 2");
        has("scheduler_preemption_victims_sum [] 103");
        has("scheduler_pending_pods [(\"queue\", \"gated\")] 1");
        assert!(!page.0.iter().any(|l| l.contains("active")));
        assert_eq!(page.0.iter().filter(|l| l.starts_with('#')).count(), Metric::ALL.len());
    }
}
