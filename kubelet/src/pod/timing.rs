//! How long a worker takes for what it does.

use super::admit::is_new;
use super::observed::Observed;
use super::plan::Step;
use crate::metrics::{Metric, Metrics};
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashSet;
use tokio::time::Instant;

/// Since when a pod that nobody had begun with is being started.
pub struct Start(Option<Instant>);

impl Start {
    pub fn of(pod: &Pod) -> Self {
        Self(is_new(pod).then(Instant::now))
    }

    /// Once all containers run for the first time.
    pub fn note(&mut self, pod: &Pod, observed: &Observed, metrics: &Metrics) {
        let names = pod.spec.iter().flat_map(|spec| &spec.containers).map(|c| c.name.as_str());
        let running: HashSet<&str> = observed.running().map(|c| c.name.as_str()).collect();
        if let Some(since) = self.0
            && names.into_iter().all(|name| running.contains(name))
        {
            metrics.took(Metric::PodStart, &[], since.elapsed());
            self.0 = None;
        }
    }
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
