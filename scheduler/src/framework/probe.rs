//! Times single plugins, of some pods: of all it would cost more than the plugins do.

use super::Status;
use crate::metrics::{Metric, Metrics};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::Instant;

/// One pod in so many is measured, as upstream.
const EVERY: u64 = 10;
/// Answers measured of one pod; a filter is asked about thousands of nodes.
const MOST: u32 = 64;

/// Where measurements go. Cloning shares it.
#[derive(Clone)]
pub struct Meter {
    metrics: Arc<Metrics>,
    pods: u64,
}

impl Meter {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, pods: 0 }
    }

    /// For the next pod; `None` when it is not measured.
    pub fn next(&mut self) -> Option<Probe> {
        self.pods += 1;
        let chosen = self.pods % EVERY == 1;
        chosen.then(|| Probe { metrics: self.metrics.clone(), left: AtomicU32::new(MOST) })
    }
}

/// Of one pod.
pub struct Probe {
    metrics: Arc<Metrics>,
    left: AtomicU32,
}

impl Probe {
    /// Whether enough of this pod was measured.
    pub fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Runs a plugin and measures it.
    pub fn time(&self, plugin: &str, point: &str, run: impl FnOnce() -> Status) -> Status {
        if self.is_spent() {
            return run();
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        let begun = Instant::now();
        let status = run();
        self.metrics.observe(Metric::PluginExecution, &[plugin, point, status.code()], begun.elapsed());
        status
    }
}

/// Runs a plugin, measured if there is a probe.
pub fn timed(probe: Option<&Probe>, plugin: &str, point: &str, run: impl FnOnce() -> Status) -> Status {
    match probe {
        Some(probe) => probe.time(plugin, point, run),
        None => run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_pod_is_measured_and_not_without_end() {
        let metrics = Arc::new(Metrics::default());
        let mut meter = Meter::new(metrics.clone());
        let probes: Vec<Option<Probe>> = (0..20).map(|_| meter.next()).collect();
        assert_eq!(probes.iter().flatten().count(), 2);
        for _ in 0..100 {
            assert_eq!(timed(probes[0].as_ref(), "Any", "Filter", || Status::Success), Status::Success);
        }
        let mut page = coracle_metrics::Text::default();
        metrics.render(&mut page);
        let counted = "scheduler_plugin_execution_duration_seconds_count{plugin=\"Any\",\
                       extension_point=\"Filter\",status=\"Success\"} 64";
        let page = page.finish();
        assert!(page.lines().any(|line| line == counted), "{page}");
    }
}
