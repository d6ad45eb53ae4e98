//! How long a worker takes for what it does.

use super::admit::is_new;
use super::containers::is_sidecar;
use super::observed::Observed;
use super::plan::Step;
use crate::metrics::{Metric, Metrics};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// The start of a pod that nobody had begun with.
pub struct Start {
    /// Since when; `None` once it has started, or if somebody else began with it.
    since: Option<Instant>,
    /// What pulling its images has taken.
    pulling: Duration,
}

impl Start {
    pub fn of(pod: &Pod) -> Self {
        Self { since: is_new(pod).then(Instant::now), pulling: Duration::ZERO }
    }

    pub fn pulled(&mut self, time: Duration) {
        self.pulling += time;
    }

    /// Once all containers run for the first time.
    pub fn note(&mut self, pod: &Pod, observed: &Observed, metrics: &Metrics) {
        let names = pod.spec.iter().flat_map(|spec| &spec.containers).map(|c| c.name.as_str());
        let running: HashSet<&str> = observed.running().map(|c| c.name.as_str()).collect();
        if let Some(since) = self.since
            && names.into_iter().all(|name| running.contains(name))
        {
            metrics.took(Metric::PodStart, &[], since.elapsed());
            self.note_whole(pod, observed, metrics);
            self.since = None;
        }
    }

    /// From the pod's creation on, with and without what upstream's objective for the start of pods leaves out
    /// (<https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md>).
    fn note_whole(&self, pod: &Pod, observed: &Observed, metrics: &Metrics) {
        let Some(created) = &pod.metadata.creation_timestamp else { return };
        let whole = Duration::try_from(Timestamp::now().duration_since(created.0)).unwrap_or_default();
        let without = whole.saturating_sub(self.pulling).saturating_sub(initializing(pod, observed));
        metrics.took(Metric::PodStartTotal, &[], whole);
        metrics.took(Metric::PodStartSli, &[], without);
    }
}

/// How long the pod's init containers ran, one after the other.
fn initializing(pod: &Pod, observed: &Observed) -> Duration {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let ran = init.filter(|container| !is_sidecar(container)).filter_map(|container| {
        let seen = observed.latest(&container.name)?;
        Duration::try_from(seen.finished_at?.duration_since(seen.started_at?)).ok()
    });
    ran.sum()
}

/// A step that is being taken; it ends when this goes.
pub struct Taken {
    operation: &'static str,
    began: Instant,
    metrics: Metrics,
}

impl Taken {
    pub fn of(step: &Step, metrics: Metrics) -> Self {
        let operation = match step {
            Step::NewSandbox { .. } => "create",
            Step::End { .. } | Step::CleanUp => "kill",
            _ => "sync",
        };
        Self { operation, began: Instant::now(), metrics }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.metrics.took(Metric::PodWorker, &[self.operation], self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_metrics::Text;

    #[tokio::test(start_paused = true)]
    async fn a_step_is_timed_until_its_end() {
        let metrics = Metrics::default();
        let is_counted = || {
            let mut text = Text::default();
            metrics.render(&mut text);
            text.finish().contains("kubelet_pod_worker_duration_seconds_count{operation_type=\"kill\"} 1\n")
        };
        let taken = Taken::of(&Step::CleanUp, metrics.clone());
        assert!(!is_counted());
        drop(taken);
        assert!(is_counted());
    }
}
