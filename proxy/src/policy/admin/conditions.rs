//! The condition `Accepted` of administrators' policies: whether all that is written in them is done. Every node knows,
//! and the first that comes to it writes.

use super::AdminPolicies;
use crate::policy::model::AdminPolicy;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::task::JoinHandle;

pub const ACCEPTED: &str = "Accepted";
/// Of server-side apply.
const MANAGER: &str = "coracle-network-policies";
/// Nodes wait as long as this at most, each its own time, so that one of many writes.
const SPREAD_WINDOW: Duration = Duration::from_secs(2);

/// Writes conditions. What is being written ends with it.
pub struct Conditions {
    client: kube::Client,
    pause: Duration,
    writing: Option<JoinHandle<()>>,
}

impl Drop for Conditions {
    fn drop(&mut self) {
        self.writing.iter().for_each(JoinHandle::abort);
    }
}

impl Conditions {
    pub fn new(client: kube::Client, node: &str) -> Self {
        let share = Sha256::digest(node.as_bytes())[0];
        Self { client, pause: SPREAD_WINDOW * u32::from(share) / 256, writing: None }
    }

    /// Sees to the conditions of policies that say something else, or nothing.
    pub fn tell(&mut self, policies: &AdminPolicies) {
        let is_writing = self.writing.as_ref().is_some_and(|task| !task.is_finished());
        if is_writing || policies.list().iter().all(|policy| is_told(policy)) {
            return;
        }
        let (client, pause, policies) = (self.client.clone(), self.pause, policies.clone());
        self.writing = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            for policy in policies.list().iter().filter(|policy| !is_told(policy)) {
                if let Err(error) = write(&client, policy).await {
                    let (kind, name) = (policy.kind.name(), &policy.key.name);
                    tracing::warn!(kind, name, %error, "the condition Accepted could not be written");
                }
            }
        }));
    }
}

/// As events name it.
pub fn reference(policy: &AdminPolicy) -> ObjectReference {
    ObjectReference {
        api_version: Some(policy.api_version.clone()),
        kind: Some(policy.kind.name().to_owned()),
        name: Some(policy.key.name.clone()),
        uid: Some(policy.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Status, reason and message.
fn wanted(policy: &AdminPolicy) -> (&'static str, &'static str, String) {
    match policy.unsupported.as_slice() {
        [] => ("True", "Accepted", "all rules are understood".to_owned()),
        parts => ("False", "PartiallySupported", parts.join("; ")),
    }
}

fn is_told(policy: &AdminPolicy) -> bool {
    let (status, reason, message) = wanted(policy);
    policy.accepted.as_ref().is_some_and(|told| {
        (told.status.as_str(), told.reason.as_str(), &told.message) == (status, reason, &message)
            && told.observed_generation == Some(policy.generation)
    })
}

async fn write(client: &kube::Client, policy: &AdminPolicy) -> Result<(), kube::Error> {
    let (status, reason, message) = wanted(policy);
    let before = policy.accepted.as_ref().filter(|told| told.status == status);
    let condition = Condition {
        type_: ACCEPTED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: Some(policy.generation),
        last_transition_time: before.map_or(Time(Timestamp::now()), |told| told.last_transition_time.clone()),
    };
    let patch = Patch::Apply(json!({
        "apiVersion": policy.api_version,
        "kind": policy.kind.name(),
        "metadata": { "name": policy.key.name, "uid": policy.uid },
        "status": { "conditions": [condition] },
    }));
    let request = Request::new(format!("/apis/{}/{}", policy.api_version, policy.kind.plural()));
    let params = PatchParams::apply(MANAGER).force();
    let request = request.patch_subresource("status", &policy.key.name, &params, &patch);
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}
