//! Writes a pod's status, apart from the worker, so that a slow API server never slows a container.

use crate::metrics::{Metric, Metrics};
use crate::pod_facts::labels::is_static;
use crate::pod_facts::termination::{BY_KUBELET, DISRUPTION, RESTARTING, is_terminal};
use crate::static_pods;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// First and longest pause after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// First pause after another writer was there in between; it grows like the other.
const CONFLICT_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Conditions that the kubelet owns; all others are somebody else's.
pub const OWNED: [&str; 8] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizePending",
    "PodResizeInProgress",
    RESTARTING,
];

struct Wanted {
    version: u64,
    /// An object whose status is not what is wanted.
    seen: Option<Seen>,
    /// What the API server has is not known any more.
    forget: bool,
    status: Option<Arc<PodStatus>>,
    /// Since when what is wanted is not written.
    since: Option<Instant>,
}

/// A status that the API server had, with the object's resourceVersion.
#[derive(Clone)]
struct Seen {
    status: PodStatus,
    version: Option<String>,
}

/// The newest status wins; older ones that were not written yet are skipped.
pub struct Publisher {
    wanted: watch::Sender<Wanted>,
    written: watch::Receiver<u64>,
    _stop: DropGuard,
}

impl Publisher {
    /// `pod` is the object as last seen; its UID guards every write.
    pub fn spawn(client: kube::Client, pod: &Pod, metrics: Metrics) -> Self {
        let (wanted, wishes) =
            watch::channel(Wanted { version: 0, seen: None, forget: false, status: None, since: None });
        let (done, written) = watch::channel(0);
        let namespace = pod.namespace().unwrap_or_default();
        let writer = Writer {
            api: Api::namespaced(client.clone(), &namespace),
            mirrors: is_static(pod).then(|| (client, pod.clone())),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            reported: pod.status.clone().unwrap_or_default(),
            version: pod.resource_version(),
        };
        let stop = CancellationToken::new();
        let written_at = wanted.clone();
        let noted = move |version| {
            written_at.send_if_modified(|wanted| {
                if let Some(since) = wanted.since.take_if(|_| wanted.version == version) {
                    metrics.took(Metric::StatusSync, &[], since.elapsed());
                }
                false
            });
            done.send_replace(version);
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(writer.run(wishes, noted)));
        Self { wanted, written, _stop: stop.drop_guard() }
    }

    pub fn publish(&self, status: PodStatus) {
        self.wanted.send_if_modified(|wanted| {
            if wanted.status.as_deref() == Some(&status) {
                return false;
            }
            wanted.version += 1;
            wanted.status = Some(Arc::new(status));
            wanted.since.get_or_insert_with(Instant::now);
            true
        });
    }

    /// Writes the status again, whole: the object that had it is gone.
    pub fn republish(&self) {
        self.wanted.send_modify(|wanted| {
            wanted.version += 1;
            wanted.forget = true;
        });
    }

    /// Writes the status again where somebody else has changed one of our conditions: the node's controller does, of a node
    /// that was silent. What has ended for the API server stays so.
    pub fn seen(&self, pod: &Pod) {
        let Some(status) = pod.status.as_ref().filter(|status| !is_terminal(status)) else { return };
        self.wanted.send_if_modified(|wanted| {
            let differs = wanted.status.as_deref().is_some_and(|wanted| verdicts(wanted) != verdicts(status));
            wanted.seen = differs.then(|| Seen { status: status.clone(), version: pod.resource_version() });
            differs
        });
    }

    /// Returns when what was published last is written, or the object is gone.
    pub async fn flush(&self) {
        let version = self.wanted.borrow().version;
        let mut written = self.written.clone();
        // The writer ends only when the object is gone.
        let _ = written.wait_for(|done| *done >= version).await;
    }
}

struct Writer {
    api: Api<Pod>,
    name: String,
    uid: String,
    /// A static pod's status goes to an object that only shows it, and is made when it is missing.
    mirrors: Option<(kube::Client, Pod)>,
    /// The status that the API server has.
    reported: PodStatus,
    version: Option<String>,
}

enum Failure {
    Gone,
    Conflict,
    Other(kube::Error),
}

impl Writer {
    /// `done` is told each version that was written.
    async fn run(mut self, mut wishes: watch::Receiver<Wanted>, done: impl Fn(u64)) {
        while wishes.changed().await.is_ok() {
            let (mut pause, mut conflict_pause) = (RETRY_INTERVAL, CONFLICT_RETRY_INTERVAL);
            loop {
                let (version, seen, forget, status) = {
                    let wanted = wishes.borrow_and_update();
                    (wanted.version, wanted.seen.clone(), wanted.forget, wanted.status.clone())
                };
                self.adopt(seen);
                if forget && self.mirrors.is_some() {
                    self.reported = PodStatus::default();
                    self.version = None;
                }
                let Some(status) = status else { break };
                match self.write(&status).await {
                    Ok(()) => {
                        done(version);
                        break;
                    }
                    Err(Failure::Gone) if self.mirrors.is_none() => return,
                    Err(Failure::Gone) => {
                        if let Err(error) = self.make_mirror().await {
                            tracing::debug!(pod = %self.name, %error, "mirror pod not made, trying again");
                            tokio::time::sleep(pause).await;
                            pause = (pause * 2).min(MAX_RETRY_INTERVAL);
                        }
                    }
                    Err(Failure::Conflict) => {
                        // A refusal that is no conflict comes again each time.
                        tokio::time::sleep(conflict_pause).await;
                        conflict_pause = (conflict_pause * 2).min(MAX_RETRY_INTERVAL);
                        if let Err(Failure::Gone) = self.refresh().await
                            && self.mirrors.is_none()
                        {
                            return;
                        }
                    }
                    Err(Failure::Other(error)) => {
                        tracing::warn!(pod = %self.name, %error, "pod status not written, trying again");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(MAX_RETRY_INTERVAL);
                    }
                }
            }
        }
    }

    /// What was seen is what the API server has, unless that is of before our own last write.
    fn adopt(&mut self, seen: Option<Seen>) {
        let number = |version: &Option<String>| version.as_deref().and_then(|v| v.parse::<u64>().ok());
        if let Some(seen) = seen
            && number(&seen.version) > number(&self.version)
        {
            (self.reported, self.version) = (seen.status, seen.version);
        }
    }

    async fn write(&mut self, status: &PodStatus) -> Result<(), Failure> {
        let mut status = status.clone();
        keep_foreign(&mut status, &self.reported);
        let difference = difference(&encode(&self.reported), &encode(&status));
        let Some(patch) = difference else { return Ok(()) };
        let mut metadata = if self.mirrors.is_some() { json!({}) } else { json!({ "uid": self.uid }) };
        if self.version.is_some() && patch.get("conditions").is_some() {
            // A list is written whole, so it must not undo what another writer has just added.
            metadata["resourceVersion"] = json!(self.version);
        }
        let body = json!({ "metadata": metadata, "status": patch });
        let answer = self.api.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(body)).await;
        match answer {
            Ok(pod) => {
                self.version = pod.resource_version();
                self.reported = pod.status.unwrap_or_default();
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Failure::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 422 => {
                tracing::debug!(pod = %self.name, message = %status.message, "pod changed meanwhile");
                Err(Failure::Conflict)
            }
            Err(error) => Err(Failure::Other(error)),
        }
    }

    async fn make_mirror(&mut self) -> Result<(), kube::Error> {
        let Some((client, pod)) = &self.mirrors else { return Ok(()) };
        let mirror = static_pods::mirror(client, pod).await?;
        match self.api.create(&PostParams::default(), &mirror).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        self.reported = PodStatus::default();
        self.version = None;
        Ok(())
    }

    async fn refresh(&mut self) -> Result<(), Failure> {
        let pod = self.api.get_opt(&self.name).await.map_err(Failure::Other)?;
        let ours = |p: &Pod| self.mirrors.is_some() || p.uid().as_deref() == Some(&self.uid);
        let pod = pod.filter(ours).ok_or(Failure::Gone)?;
        self.version = pod.resource_version();
        self.reported = pod.status.unwrap_or_default();
        Ok(())
    }
}

/// Others' conditions are as the API server has them, not as they were when the status was computed.
fn keep_foreign(status: &mut PodStatus, reported: &PodStatus) {
    let owned = |c: &PodCondition| OWNED.contains(&c.type_.as_str());
    let ours =
        |c: &PodCondition| owned(c) || (c.type_ == DISRUPTION && c.reason.as_deref() == Some(BY_KUBELET));
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(ours);
    let foreign = reported.conditions.iter().flatten().filter(|c| !owned(c));
    let foreign: Vec<_> =
        foreign.filter(|c| conditions.iter().all(|own| own.type_ != c.type_)).cloned().collect();
    conditions.extend(foreign);
    // These are told by controllers and the scheduler only.
    status.resource_claim_statuses.clone_from(&reported.resource_claim_statuses);
    status.extended_resource_claim_status.clone_from(&reported.extended_resource_claim_status);
}

/// Our own conditions, and what they say.
fn verdicts(status: &PodStatus) -> BTreeMap<&str, &str> {
    let conditions = status.conditions.iter().flatten();
    let ours = conditions.filter(|c| OWNED.contains(&c.type_.as_str()));
    ours.map(|c| (c.type_.as_str(), c.status.as_str())).collect()
}

fn encode(status: &PodStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}

/// The JSON merge patch (RFC 7386) from `old` to `new`; `None` when there is nothing to change.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            None => {
                patch.insert(key.clone(), value.clone());
            }
            Some(before) => {
                if let Some(change) = difference(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_say_only_what_changed() {
        let old = json!({ "a": 1, "b": { "c": 1, "d": 2 }, "l": [1] });
        assert_eq!(difference(&old, &old), None);
        let new = json!({ "a": 1, "b": { "c": 1 }, "l": [1, 2] });
        assert_eq!(difference(&old, &new), Some(json!({ "b": { "d": null }, "l": [1, 2] })));
    }

    #[test]
    fn conditions_of_others_survive() {
        let condition = |kind: &str, word: &str| PodCondition {
            type_: kind.to_owned(),
            status: word.to_owned(),
            ..PodCondition::default()
        };
        let all = |list: Vec<PodCondition>| PodStatus { conditions: Some(list), ..PodStatus::default() };
        let mut status = all(vec![condition("Ready", "True"), condition("gate", "False")]);
        keep_foreign(&mut status, &all(vec![condition("gate", "True"), condition("Ready", "False")]));
        assert_eq!(status, all(vec![condition("Ready", "True"), condition("gate", "True")]));
    }
}
