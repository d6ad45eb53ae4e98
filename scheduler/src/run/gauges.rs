//! What the scheduler shows of itself from time to time rather than with every pod.

use crate::core::SchedulerState;
use crate::metrics::{Metric, Metrics};

/// Brings the gauges up to date, and adds what was counted since the last call. `assumed` pods have a node that the API
/// does not show yet.
pub fn set(core: &mut SchedulerState, metrics: &Metrics, assumed: usize) {
    for ((queue, event), amount) in core.queue.take_incoming() {
        metrics.add(Metric::IncomingPods, &[queue, event], i64::try_from(amount).unwrap_or(i64::MAX));
    }
    for framework in core.frameworks() {
        for (plugin, point, asked) in framework.take_asked() {
            let labels = [plugin, point, framework.scheduler_name.as_str()];
            metrics.add(Metric::PluginEvaluation, &labels, i64::try_from(asked).unwrap_or(i64::MAX));
        }
    }
    let pending = core.queue.pending();
    let sizes = [
        (vec!["active"], pending.active),
        (vec!["backoff"], pending.backoff),
        (vec!["unschedulable"], pending.unschedulable),
        (vec!["gated"], pending.gated),
    ];
    metrics.set_all(Metric::PendingPods, sizes);
    let sizes = [
        (vec!["nodes"], core.snapshot.node_count()),
        (vec!["pods"], core.snapshot.pod_count()),
        (vec!["assumed_pods"], assumed),
    ];
    metrics.set_all(Metric::CacheSize, sizes);
    let waiting = core.queue.by_plugin();
    let waiting = waiting.into_iter().map(|((plugin, profile), n)| (vec![plugin, profile], n));
    metrics.set_all(Metric::UnschedulablePods, waiting);
}
