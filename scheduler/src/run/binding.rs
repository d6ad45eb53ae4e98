//! The binding cycle, and the other things the scheduler writes: events and the PodScheduled condition.

use super::events::Event;
use crate::cache::PodInfo;
use crate::framework::{Framework, Status};
use coracle_client::{Context, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

/// A pod that Reserve and Permit let through.
pub struct Verdict {
    pub pod: Arc<PodInfo>,
    pub framework: Arc<Framework>,
    pub node: String,
    /// The longest wait a Permit plugin asked for.
    pub wait: Option<Duration>,
}

/// How a binding ended.
pub struct Outcome {
    pub pod: Arc<PodInfo>,
    pub framework: Arc<Framework>,
    pub failure: Option<String>,
}

pub struct Binder {
    client: kube::Client,
    recorders: HashMap<String, Recorder>,
    outcomes: UnboundedSender<Event>,
    slots: Arc<Semaphore>,
}

impl Binder {
    pub fn new(context: &Context, outcomes: UnboundedSender<Event>, parallel: usize) -> Self {
        Self {
            client: context.client.clone(),
            recorders: HashMap::new(),
            outcomes,
            slots: Arc::new(Semaphore::new(parallel.max(1))),
        }
    }

    /// Events come from the profile's name, as upstream's do.
    fn recorder(&mut self, scheduler: &str) -> Recorder {
        if let Some(recorder) = self.recorders.get(scheduler) {
            return recorder.clone();
        }
        let recorder = Recorder::new(self.client.clone(), scheduler, "");
        self.recorders.insert(scheduler.to_owned(), recorder.clone());
        recorder
    }

    /// Starts the binding cycle; waits while too many are under way. A pod that waits for its volumes holds no slot.
    pub async fn bind(&mut self, verdict: Verdict) {
        let recorder = self.recorder(&verdict.framework.scheduler_name);
        // The semaphore is never closed; without a permit nothing more than the bound would be lost.
        let permit = self.slots.clone().acquire_owned().await.ok();
        let outcomes = self.outcomes.clone();
        tokio::spawn(async move {
            let failure = bind(&verdict, permit).await.err();
            if failure.is_none() {
                let (pod, node) = (&verdict.pod, &verdict.node);
                let text = format!("Successfully assigned {} to {node}", pod.key);
                recorder.normal(pod.pod.as_ref(), "Scheduled", text);
                for plugin in &verdict.framework.post_bind {
                    plugin.post_bind(pod, node).await;
                }
            } else {
                verdict.framework.reserve.iter().for_each(|p| p.unreserve(&verdict.pod, &verdict.node));
            }
            let Verdict { pod, framework, .. } = verdict;
            // Nobody listens when the scheduler has ended; its successor reads the pod from the API.
            let _ = outcomes.send(Event::Bound(Outcome { pod, framework, failure }));
        });
    }

    /// FailedScheduling for people, and the condition for programs; the condition is written when it changes.
    pub fn report(&mut self, pod: &PodInfo, framework: &Framework, reason: &'static str, message: String) {
        let recorder = self.recorder(&framework.scheduler_name);
        recorder.warning(pod.pod.as_ref(), "FailedScheduling", message.clone());
        let conditions = pod.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let present = conditions.into_iter().flatten().find(|c| c.type_ == "PodScheduled");
        let same = present.is_some_and(|c| {
            c.status == "False"
                && c.reason.as_deref() == Some(reason)
                && c.message.as_deref() == Some(&message)
        });
        if same {
            return;
        }
        let since = present.filter(|c| c.status == "False").and_then(|c| c.last_transition_time.clone());
        let condition = serde_json::json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| Time(Timestamp::now())),
            "observedGeneration": pod.pod.metadata.generation,
        });
        let patch = serde_json::json!({
            "metadata": { "uid": pod.uid }, "status": { "conditions": [condition] },
        });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let name = pod.key.name.clone();
        tokio::spawn(async move {
            let written = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await;
            if let Err(error) = written {
                tracing::debug!(pod = %name, %error, "condition not written");
            }
        });
    }
}

async fn bind(verdict: &Verdict, permit: Option<tokio::sync::OwnedSemaphorePermit>) -> Result<(), String> {
    let (pod, node) = (&verdict.pod, &verdict.node);
    if let Some(time) = verdict.wait {
        // No plugin of this build approves a waiting pod from outside, so the wait ends as upstream's does.
        tokio::time::sleep(time).await;
        return Err("rejected due to timeout after waiting for permission".to_owned());
    }
    let prebind = async {
        for plugin in &verdict.framework.pre_bind {
            refused(plugin.pre_bind(pod, node).await)?;
        }
        Ok::<(), String>(())
    };
    // Most pods have nothing to wait for; one that does must not keep others from binding.
    let permit = match futures::future::select(Box::pin(prebind), Box::pin(tokio::task::yield_now())).await {
        futures::future::Either::Left((done, _)) => {
            done?;
            permit
        }
        futures::future::Either::Right(((), prebind)) => {
            drop(permit);
            prebind.await?;
            None
        }
    };
    for plugin in &verdict.framework.bind {
        match plugin.bind(pod, node).await {
            Status::Skip => {}
            status => {
                drop(permit);
                return refused(status);
            }
        }
    }
    Err("no plugin bound the pod".to_owned())
}

fn refused(status: Status) -> Result<(), String> {
    match status {
        Status::Success | Status::Skip => Ok(()),
        Status::Error(why) => Err(why),
        other => Err(other.reasons().join(", ")),
    }
}
