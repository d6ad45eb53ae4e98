//! The binding cycle: waiting for permission, PreBind, Bind, PostBind, beside the next pods' cycles.

use super::Event;
use super::extender::Extenders;
use super::report::Reporter;
use crate::framework::{Permit, Status, WaitingPods};
use crate::metrics::{Metric, Metrics};
use crate::queue::Popped;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A pod that Reserve and Permit let through.
pub struct Verdict {
    pub popped: Popped,
    pub node: String,
    pub begun: Instant,
}

/// How a binding ended.
pub struct Outcome {
    pub verdict: Verdict,
    /// Who refused, when it was a plugin, and what it said.
    pub failure: Option<(Option<&'static str>, Status)>,
}

type Failure = (Option<&'static str>, Status);

#[derive(Clone)]
pub struct Binder {
    pub reporter: Reporter,
    pub waiting: WaitingPods,
    pub extenders: Arc<Extenders>,
    pub metrics: Arc<Metrics>,
    outcomes: UnboundedSender<Event>,
    slots: Arc<Semaphore>,
}

impl Binder {
    pub fn new(
        reporter: Reporter,
        waiting: WaitingPods,
        extenders: Arc<Extenders>,
        metrics: Arc<Metrics>,
        outcomes: UnboundedSender<Event>,
        parallel: usize,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(parallel.max(1)));
        Self { reporter, waiting, extenders, metrics, outcomes, slots }
    }

    /// Where the scheduler's task is told things.
    pub fn events(&self) -> UnboundedSender<Event> {
        self.outcomes.clone()
    }

    /// Starts the binding cycle; waits while too many are under way. A pod that waits for its volumes or for permission
    /// holds no slot.
    pub async fn bind(&self, verdict: Verdict, permit: Option<Permit>) {
        // The semaphore is never closed; without a permit nothing more than the bound would be lost.
        let slot = self.slots.clone().acquire_owned().await.ok();
        let binder = self.clone();
        tokio::spawn(async move {
            binder.metrics.add(Metric::Goroutines, &["binding"], 1);
            let failure = binder.cycle(&verdict, permit, slot).await.err();
            let Popped { pod, framework, .. } = &verdict.popped;
            if failure.is_none() {
                let text = format!("Successfully assigned {} to {}", pod.key, verdict.node);
                let recorder = binder.reporter.recorder(&framework.scheduler_name);
                recorder.normal(pod.pod.as_ref(), "Scheduled", text);
                for plugin in &framework.post_bind {
                    plugin.post_bind(pod, &verdict.node).await;
                }
            } else {
                framework.unreserve(pod, &verdict.node);
            }
            binder.metrics.add(Metric::Goroutines, &["binding"], -1);
            // Nobody listens when the scheduler has ended; its successor reads the pod from the API.
            let _ = binder.outcomes.send(Event::Bound(Box::new(Outcome { verdict, failure })));
        });
    }

    async fn cycle(
        &self,
        verdict: &Verdict,
        permit: Option<Permit>,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Failure> {
        let framework = &verdict.popped.framework;
        let profile = framework.scheduler_name.as_str();
        let before = async {
            self.permitted(permit).await?;
            let begun = Instant::now();
            for plugin in &framework.pre_bind {
                let status = plugin.pre_bind(&verdict.popped.pod, &verdict.node).await;
                refused(plugin.name(), status)?;
            }
            self.metrics.observe(Metric::ExtensionPoint, &["PreBind", "Success", profile], begun.elapsed());
            Ok::<(), Failure>(())
        };
        // Most pods have nothing to wait for; one that does must not keep others from binding.
        let first = futures::future::select(Box::pin(before), Box::pin(tokio::task::yield_now())).await;
        let slot = match first {
            futures::future::Either::Left((done, _)) => {
                done?;
                slot
            }
            futures::future::Either::Right(((), before)) => {
                drop(slot);
                before.await?;
                None
            }
        };
        let begun = Instant::now();
        let bound = self.bound(verdict).await;
        drop(slot);
        let status = if bound.is_ok() { "Success" } else { "Error" };
        self.metrics.observe(Metric::ExtensionPoint, &["Bind", status, profile], begun.elapsed());
        bound
    }

    async fn permitted(&self, permit: Option<Permit>) -> Result<(), Failure> {
        let Some(permit) = permit else { return Ok(()) };
        let begun = Instant::now();
        let answer = permit.granted().await;
        let result = answer.as_ref().err().map_or("Success", |(_, status)| status.code());
        self.metrics.observe(Metric::PermitWait, &[result], begun.elapsed());
        answer.map_err(|(plugin, status)| (Some(plugin), status))
    }

    async fn bound(&self, verdict: &Verdict) -> Result<(), Failure> {
        let pod = &verdict.popped.pod;
        if let Some(answer) = self.extenders.bind(pod, &verdict.node).await {
            return answer.map_err(|why| (None, Status::Error(why)));
        }
        for plugin in &verdict.popped.framework.bind {
            match plugin.bind(pod, &verdict.node).await {
                Status::Skip => {}
                status => return refused(plugin.name(), status),
            }
        }
        Err((None, Status::Error("no plugin bound the pod".to_owned())))
    }
}

fn refused(plugin: &'static str, status: Status) -> Result<(), Failure> {
    if status.is_success() { Ok(()) } else { Err((Some(plugin), status)) }
}
