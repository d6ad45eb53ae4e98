//! The binding cycle: waiting for permission, PreBind, Bind, PostBind, beside the next pods' cycles.

use super::Event;
use super::extender::Extenders;
use super::report::Reporter;
use crate::framework::{Ended, Permit, Preparing, Status, WaitingPods};
use crate::metrics::{Metric, Metrics};
use crate::queue::Popped;
use coracle_client::EventAction;
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

/// Why a pod was not bound.
pub enum Unbound {
    /// Permit's wait ended so: the pod waits for what helps this plugin.
    Denied(&'static str, Status),
    /// A later step failed: the pod is tried again after its back-off. `rejected` when a plugin said that it cannot run
    /// there, rather than that something broke.
    Failed { why: String, rejected: bool },
}

/// How a binding ended.
pub struct Outcome {
    pub verdict: Verdict,
    pub failure: Option<Unbound>,
    /// Whether the pod's status says where it was going to run.
    pub announced: bool,
}

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
        let announced = permit.is_some() || verdict.takes_time();
        // From here on, without a gap, such a pod need not be deleted to take its room.
        let preparing = announced.then(|| self.waiting.prepare(&verdict.popped.pod.uid));
        // The semaphore is never closed; without a permit nothing more than the bound would be lost.
        let slot = self.slots.clone().acquire_owned().await.ok();
        let binder = self.clone();
        tokio::spawn(async move {
            binder.metrics.add(Metric::Goroutines, &["binding"], 1);
            let failure = binder.cycle(&verdict, preparing, permit, slot).await.err();
            let Popped { pod, framework, .. } = &verdict.popped;
            if failure.is_none() {
                let text = format!("Successfully assigned {} to {}", pod.key, verdict.node);
                let recorder = binder.reporter.recorder(&framework.scheduler_name);
                recorder.acted(EventAction::named("Binding"), pod.reference(), "Normal", "Scheduled", text);
                for plugin in &framework.post_bind {
                    plugin.post_bind(pod, &verdict.node).await;
                }
            } else {
                framework.unreserve(pod, &verdict.node);
            }
            binder.metrics.add(Metric::Goroutines, &["binding"], -1);
            // Nobody listens when the scheduler has ended; its successor reads the pod from the API.
            let _ = binder.outcomes.send(Event::Bound(Box::new(Outcome { verdict, failure, announced })));
        });
    }

    async fn cycle(
        &self,
        verdict: &Verdict,
        preparing: Option<Preparing>,
        permit: Option<Permit>,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Unbound> {
        let profile = verdict.popped.framework.scheduler_name.as_str();
        let before = async {
            match preparing {
                Some(preparing) => self.announced(verdict, permit, preparing).await,
                None => self.prepared(verdict).await,
            }
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

    async fn permitted(&self, permit: Option<Permit>) -> Result<(), Unbound> {
        let Some(permit) = permit else { return Ok(()) };
        let begun = Instant::now();
        let answer = permit.granted().await;
        let result = match &answer {
            Ok(()) => "Success",
            Err(Ended::Refused(_, status)) => status.code(),
            Err(Ended::Cancelled(_)) => "Unschedulable",
        };
        self.metrics.observe(Metric::PermitWait, &[result], begun.elapsed());
        answer.map_err(|ended| match ended {
            Ended::Refused(_, Status::Error(why)) => {
                Unbound::Failed { why: format!("waiting on permit for pod: {why}"), rejected: false }
            }
            Ended::Refused(plugin, status) => Unbound::Denied(plugin, status),
            Ended::Cancelled(why) => cancelled(why),
        })
    }

    /// The nomination, Permit's wait and PreBind, or what ends them.
    async fn announced(
        &self,
        verdict: &Verdict,
        permit: Option<Permit>,
        mut preparing: Preparing,
    ) -> Result<(), Unbound> {
        // Never broken off: it could come after what takes it back.
        self.reporter.nominated(&verdict.popped.pod, &verdict.node).await;
        let steps = async {
            self.permitted(permit).await?;
            self.prepared(verdict).await
        };
        let done = tokio::select! {
            biased;
            why = preparing.cancelled() => return Err(cancelled(why)),
            done = steps => done,
        };
        preparing.finish().map_err(cancelled)?;
        done
    }

    /// PreBind.
    async fn prepared(&self, verdict: &Verdict) -> Result<(), Unbound> {
        let Popped { pod, framework, .. } = &verdict.popped;
        let begun = Instant::now();
        let mut result = "Success";
        let mut failure = Ok(());
        for plugin in &framework.pre_bind {
            let status = plugin.pre_bind(pod, &verdict.node).await;
            if !status.is_success() {
                result = status.code();
                failure = Err(failed("PreBind", plugin.name(), &status));
                break;
            }
        }
        let labels = ["PreBind", result, framework.scheduler_name.as_str()];
        self.metrics.observe(Metric::ExtensionPoint, &labels, begun.elapsed());
        failure
    }

    async fn bound(&self, verdict: &Verdict) -> Result<(), Unbound> {
        let pod = &verdict.popped.pod;
        if let Some(answer) = self.extenders.bind(pod, &verdict.node).await {
            return answer.map_err(|why| Unbound::Failed { why, rejected: false });
        }
        for plugin in &verdict.popped.framework.bind {
            match plugin.bind(pod, &verdict.node).await {
                Status::Skip => {}
                Status::Success => return Ok(()),
                status => return Err(failed("Bind", plugin.name(), &status)),
            }
        }
        Err(Unbound::Failed { why: "no plugin bound the pod".to_owned(), rejected: false })
    }
}

impl Verdict {
    /// Whether PreBind has something to do.
    fn takes_time(&self) -> bool {
        self.popped.framework.pre_bind.iter().any(|p| p.pre_bind_pre_flight(&self.popped.pod, &self.node))
    }
}

/// Nothing is wrong with the pod: it is tried again after its back-off.
fn cancelled(why: &'static str) -> Unbound {
    Unbound::Failed { why: why.to_owned(), rejected: true }
}

fn failed(point: &str, plugin: &str, status: &Status) -> Unbound {
    match status {
        Status::Error(why) => {
            Unbound::Failed { why: format!("running {point} plugin {plugin:?}: {why}"), rejected: false }
        }
        refusal => Unbound::Failed { why: refusal.message(), rejected: true },
    }
}
