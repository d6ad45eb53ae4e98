//! Tells victims to go: the DisruptionTarget condition, the deletion with its grace, and events on both sides.

use super::report::Reporter;
use crate::cache::PodInfo;
use crate::framework::{Candidate, WaitingPods};
use crate::queue::{Popped, Rejection};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

/// What came of it.
pub struct Told {
    pub uid: String,
    pub rejection: Rejection,
    pub worked: bool,
}

/// Pods that are gone already are as good as told.
fn gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

async fn evict(client: &kube::Client, victim: &PodInfo, scheduler: &str) -> Result<(), kube::Error> {
    if victim.is_terminating() {
        return Ok(());
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), &victim.key.namespace);
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": Time(Timestamp::now()),
        "observedGeneration": victim.pod.metadata.generation,
    });
    let patch = json!({ "metadata": { "uid": victim.uid }, "status": { "conditions": [condition] } });
    let name = &victim.key.name;
    match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Err(error) if !gone(&error) => return Err(error),
        _ => {}
    }
    let exactly = Preconditions { uid: Some(victim.uid.clone()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    match api.delete(name, &parameters).await {
        Err(error) if !gone(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Tells all victims of a candidate. Idempotent; the first failure ends it.
pub async fn tell(
    client: kube::Client,
    reporter: Reporter,
    waiting: WaitingPods,
    popped: Popped,
    candidate: Candidate,
    rejection: Rejection,
) -> Told {
    let (pod, scheduler) = (&popped.pod, &popped.framework.scheduler_name);
    let recorder = reporter.recorder(scheduler);
    let mut worked = true;
    for victim in &candidate.victims {
        // One that only waits for permission was never bound: it goes back to the queue.
        if !waiting.reject(&victim.uid, "DefaultPreemption", "preempted")
            && let Err(error) = evict(&client, victim, scheduler).await
        {
            tracing::warn!(pod = %pod.key, victim = %victim.key, %error, "preemption failed");
            worked = false;
            break;
        }
        let text = format!("Preempted by {} on node {}", pod.key, candidate.node);
        recorder.normal(victim.pod.as_ref(), "Preempted", text);
        recorder.normal(pod.pod.as_ref(), "SuccessfulPreemption", format!("Preempted pod {}", victim.key));
    }
    Told { uid: pod.uid.clone(), rejection, worked }
}
