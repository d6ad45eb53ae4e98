//! Says on a pod that it is about to go, and why, before it is deleted: Jobs and people want to know.

use super::{code_of, pods};
use coracle_client::ObjectKey;
use coracle_client::informer::api_for;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

pub const TARGET: &str = "DisruptionTarget";

fn condition(reason: &str, message: &str) -> Value {
    let (type_, now) = (TARGET, Timestamp::now());
    json!({ "type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now })
}

/// Writes part of a pod's status. Whether the pod is still there.
pub async fn patch_status(client: &kube::Client, pod: &Pod, status: Value) -> Result<bool, kube::Error> {
    let api: Api<Pod> = api_for(client, &ObjectKey::of(pod));
    let body = Patch::Strategic(json!({ "metadata": { "uid": pod.uid() }, "status": status }));
    match api.patch_status(&pod.name_any(), &PatchParams::default(), &body).await {
        Ok(_) => Ok(true),
        // Gone, or a namesake stands in its place.
        Err(error) if matches!(code_of(&error), 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Marks a pod with a reason, once. Whether it is still there.
pub async fn mark(
    client: &kube::Client,
    pod: &Pod,
    reason: &str,
    message: &str,
) -> Result<bool, kube::Error> {
    let marked = pods::condition(pod, TARGET)
        .is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some(reason));
    if marked {
        return Ok(true);
    }
    patch_status(client, pod, json!({ "conditions": [condition(reason, message)] })).await
}

/// Marks a pod as failed that no kubelet will end, with reason and message of its disruption, if that is what it is.
pub async fn fail(client: &kube::Client, pod: &Pod, why: Option<(&str, &str)>) -> Result<(), kube::Error> {
    if pods::is_terminal(pod) {
        return Ok(());
    }
    let mut status = json!({ "phase": "Failed" });
    if let Some((reason, message)) = why {
        status["conditions"] = json!([condition(reason, message)]);
    }
    patch_status(client, pod, status).await.map(|_| ())
}

/// Deletes exactly this pod; `by_force` without anybody's confirmation. One that is gone already is fine.
pub async fn delete(client: &kube::Client, pod: &Pod, by_force: bool) -> Result<(), kube::Error> {
    let uid = Preconditions { uid: pod.uid(), resource_version: None };
    let params = DeleteParams::default().preconditions(uid);
    let params = if by_force { params.grace_period(0) } else { params };
    let api: Api<Pod> = api_for(client, &ObjectKey::of(pod));
    match api.delete(&pod.name_any(), &params).await {
        Err(error) if !matches!(code_of(&error), 404 | 409) => Err(error),
        _ => Ok(()),
    }
}
