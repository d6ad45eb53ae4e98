//! Tells victims to go: the DisruptionTarget condition, the deletion with its grace, and events on both sides.

use super::report::Reporter;
use crate::cache::PodInfo;
use crate::framework::{Candidate, WaitingPods};
use crate::queue::Popped;
use coracle_client::{EventAction, write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::json;

/// What came of it.
pub struct Told {
    pub uid: String,
    pub worked: bool,
}

/// Whether a pod is gone already, or another one of its name is there now.
fn gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

/// False when the pod was gone already.
async fn evict(client: &kube::Client, victim: &PodInfo, scheduler: &str) -> Result<bool, kube::Error> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": Time(Timestamp::now()),
        "observedGeneration": victim.generation,
    });
    let patch = json!({ "metadata": { "uid": victim.uid }, "status": { "conditions": [condition] } });
    match write::patch_status::<Pod>(client, &victim.key, &Patch::Strategic(patch)).await {
        Err(error) if gone(&error) => return Ok(false),
        told => told?,
    }
    let exactly = Preconditions { uid: Some(victim.uid.clone()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    match write::delete::<Pod>(client, &victim.key, &parameters).await {
        Err(error) if gone(&error) => Ok(false),
        told => told.map(|()| true),
    }
}

/// Tells all victims of a candidate. Idempotent; the first failure ends it.
pub async fn tell(
    client: kube::Client,
    reporter: Reporter,
    waiting: WaitingPods,
    popped: Popped,
    candidate: Candidate,
) -> Told {
    let (pod, scheduler) = (&popped.pod, &popped.framework.scheduler_name);
    let recorder = reporter.recorder(scheduler);
    let mut worked = true;
    // Whoever goes already need not be told again.
    for victim in candidate.victims.iter().filter(|victim| !victim.is_terminating()) {
        // One that is not bound yet goes back to the queue.
        let place = if waiting.cancel(&victim.uid, "preempted") {
            " (in kube-scheduler memory)."
        } else {
            match evict(&client, victim, scheduler).await {
                Ok(true) => "",
                Ok(false) => continue,
                Err(error) => {
                    tracing::warn!(pod = %pod.key, victim = %victim.key, %error, "preemption failed");
                    worked = false;
                    break;
                }
            }
        };
        // Texts name what has no names that others chose; the objects are beside them.
        let text = format!("Preempted by pod {} on node {}{place}", pod.uid, candidate.node);
        let action = EventAction { name: "Preempting", related: Some(pod.reference()) };
        recorder.acted(action, victim.reference(), "Normal", "Preempted", text);
        let text = format!("Preempted pod {}", victim.uid);
        let action = EventAction { name: "Preempting", related: Some(victim.reference()) };
        recorder.acted(action, pod.reference(), "Normal", "SuccessfulPreemption", text);
    }
    Told { uid: pod.uid.clone(), worked }
}
