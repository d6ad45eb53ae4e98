//! How long a worker takes for what it does.

use super::admit::is_new;
use super::observed::Observed;
use super::plan::Step;
use crate::metrics::{Metric, took};
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
    pub fn note(&mut self, pod: &Pod, observed: &Observed) {
        let names = pod.spec.iter().flat_map(|spec| &spec.containers).map(|c| c.name.as_str());
        let running: HashSet<&str> = observed.running().map(|c| c.name.as_str()).collect();
        if let Some(since) = self.0
            && names.into_iter().all(|name| running.contains(name))
        {
            took(Metric::PodStart, &[], since.elapsed());
            self.0 = None;
        }
    }
}

/// A step that is being taken; it ends when this goes.
pub struct Taken {
    operation: &'static str,
    began: Instant,
}

impl Taken {
    pub fn of(step: &Step) -> Self {
        let operation = match step {
            Step::NewSandbox { .. } => "create",
            Step::End { .. } | Step::CleanUp => "kill",
            _ => "sync",
        };
        Self { operation, began: Instant::now() }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        took(Metric::PodWorker, &[self.operation], self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::all;
    use coracle_metrics::Text;

    #[tokio::test(start_paused = true)]
    async fn a_step_is_timed_until_its_end() {
        let count = || {
            let mut text = Text::default();
            all().render(&mut text);
            let page = text.finish();
            let name = "kubelet_pod_worker_duration_seconds_count{operation_type=\"kill\"} ";
            page.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok()).unwrap_or_default()
        };
        let before = count();
        drop(Taken::of(&Step::CleanUp));
        assert!(count() > before);
    }
}
