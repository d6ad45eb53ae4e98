//! Keeps a pod of a template on every node that wants one.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/>

mod plan;
mod pod;
mod status;

use crate::clients::Clients;
use crate::common::pending::{PENDING_TIMEOUT, Pending};
use crate::common::pod_control::{PodControl, patch_owner};
use crate::common::revisions::{self, Found, History, Subject};
use crate::common::{narrow_selector, ownership, pods};
use coracle_client::informer::{Delta, api_for, deleting};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::core::Selector;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use plan::{Ended, Plan, Rollout};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "daemon-set-controller";
/// What its events say they are from.
const SOURCE: &str = "daemonset-controller";
/// Pods created or deleted in one pass; upstream's.
const BURST: usize = 250;
/// First and longest pause before a daemon that failed is replaced; upstream's.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(15 * 60);

struct DaemonSets {
    client: kube::Client,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
    control: PodControl,
    pending: Pending,
    /// How daemons failed last, by set and node.
    failures: Mutex<HashMap<(ObjectKey, String), Failure>>,
}

/// The last failure of a set's daemons on one node.
struct Failure {
    at: Instant,
    /// Before the next one is replaced.
    pause: Duration,
    /// Of the set.
    generation: i64,
}

impl Failure {
    /// What is left of the pause, and the one after the next failure: twice as long, unless all was well for long.
    fn after(&self, now: Instant) -> (Duration, Duration) {
        let since = now.duration_since(self.at);
        let calm = since > 2 * self.pause.max(FIRST_RETRY_INTERVAL * 30);
        let next = if calm { FIRST_RETRY_INTERVAL } else { (self.pause * 2).min(MAX_RETRY_INTERVAL) };
        (self.pause.saturating_sub(since), next)
    }
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let informers = &clients.informers;
    let reconciler = DaemonSets {
        control: PodControl::new(client.clone(), SOURCE),
        client,
        sets: informers.of(),
        pods: informers.of(),
        nodes: informers.of(),
        revisions: informers.of(),
        pending: Pending::default(),
        failures: Mutex::default(),
    };
    let (sets, pods) = (reconciler.sets.clone(), reconciler.pods.clone());
    let (nodes, revisions) = (reconciler.nodes.clone(), reconciler.revisions.clone());
    let by_pod = {
        let sets = sets.clone();
        move |delta: &Delta<Pod>| ownership::owner_keys(delta, &sets, selector)
    };
    let by_node = {
        let sets = sets.clone();
        move |delta: &Delta<Node>| -> Vec<ObjectKey> {
            if !moves_daemons(delta) {
                return Vec::new();
            }
            sets.list().iter().map(|set| ObjectKey::of(set.as_ref())).collect()
        }
    };
    // Revisions wake nobody, as upstream: who writes one by hand shall be able to finish.
    Controller::new(reconciler)
        .objects(&sets)
        .watch(&pods, by_pod)
        .watch(&nodes, by_node)
        .reads(&revisions)
        .workers(2)
        .run(stop)
        .await;
}

fn selector(set: &DaemonSet) -> Option<Selector> {
    narrow_selector(&set.spec.as_ref()?.selector)
}

/// Whether a node came, went, or changed what daemons are placed by. Heartbeats do not.
fn moves_daemons(delta: &Delta<Node>) -> bool {
    let (Some(old), Some(new)) = (&delta.old, &delta.new) else { return true };
    let taints = |node: &Node| node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    old.labels() != new.labels() || taints(old) != taints(new)
}

impl Reconciler for DaemonSets {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(set) = self.sets.get_key(key) else {
            self.pending.forget(key);
            self.failures.lock().retain(|(owner, _), _| owner != key);
            return Ok(Action::AwaitChange);
        };
        if !self.pending.seen(key, &self.pods) {
            return Ok(Action::RequeueAfter(PENDING_TIMEOUT));
        }
        let (Some(spec), Some(selector)) = (set.spec.as_ref(), selector(&set)) else {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.control.recorder().warning(set.as_ref(), "SelectingAll", message);
            return Ok(Action::AwaitChange);
        };
        if deleting(set.as_ref()) {
            return Ok(Action::AwaitChange);
        }
        let Some(history) = self.history(key, &set, spec, &selector).await? else {
            return Ok(Action::AwaitChange);
        };
        let hash = history.update.labels().get(pod::HASH).cloned().unwrap_or_default();
        let owned = self.control.claim(set.as_ref(), &self.pods, &selector, None).await?;
        if self.merge(key, &history, &owned, &hash).await? {
            // The pods' events bring this back.
            return Ok(Action::AwaitChange);
        }
        let now = Timestamp::now();
        let places = plan::places(spec, &self.nodes.list(), &owned);
        let plan = Rollout { spec, hash: &hash, now }.plan(&places);
        let work = self.work(key, &set, spec, &hash, plan).await;
        let status = status::status(&set, spec, &places, &hash, now);
        self.write_status(key, &set, status).await?;
        let again = work?;
        let hashes: Vec<&str> = owned.iter().map(|pod| pod::hash_of(pod)).collect();
        let in_use = |revision: &ControllerRevision| {
            let label = revision.labels().get(pod::HASH).map_or("", String::as_str);
            label == hash || hashes.contains(&label)
        };
        revisions::truncate(&self.client, key, &history, spec.revision_history_limit, in_use).await?;
        let ready = owned.iter().filter_map(|pod| {
            pods::until_available(pod, spec.min_ready_seconds.unwrap_or(0), now)
                .filter(|left| !left.is_zero())
        });
        Ok(ready.chain(again).min().map_or(Action::AwaitChange, Action::RequeueAfter))
    }
}

impl DaemonSets {
    /// `None` after a collision of names, which the status counts: its change brings the set back.
    async fn history(
        &self,
        key: &ObjectKey,
        set: &DaemonSet,
        spec: &DaemonSetSpec,
        selector: &Selector,
    ) -> Result<Option<History>, ReconcileError> {
        let collisions = set.status.as_ref().and_then(|s| s.collision_count);
        let subject =
            Subject { owner: set, template: &spec.template, selector, collisions, hash_label: pod::HASH };
        match revisions::sync(&self.client, &self.revisions, &subject).await? {
            Found::History(history) => Ok(Some(history)),
            Found::Collision(count) => {
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(count);
                self.write_status(key, set, status).await?;
                Ok(None)
            }
        }
    }

    /// Gives the pods of revisions that hold the same template one label, and leaves one revision. Whether a pod
    /// changed; the informer may go on showing revisions that are gone, and their going wakes nobody.
    async fn merge(
        &self,
        key: &ObjectKey,
        history: &History,
        owned: &[Arc<Pod>],
        hash: &str,
    ) -> Result<bool, ReconcileError> {
        let api: Api<Pod> = api_for(&self.client, key);
        let mut changed = false;
        for twin in &history.twins {
            let label = twin.labels().get(pod::HASH).map_or("", String::as_str);
            for pod in owned.iter().filter(|pod| label != hash && pod::hash_of(pod) == label) {
                let metadata = json!({ "uid": pod.uid(), "labels": { pod::HASH: hash } });
                let patched = patch_owner(&api, pod.as_ref(), json!({ "metadata": metadata })).await?;
                patched.iter().for_each(|pod| self.pending.created(key, pod));
                changed |= patched.is_some();
            }
            revisions::delete(&self.client, key, twin).await?;
        }
        Ok(changed)
    }

    /// Creates and deletes; how long a failed daemon still has to wait for its successor.
    async fn work(
        &self,
        key: &ObjectKey,
        set: &DaemonSet,
        spec: &DaemonSetSpec,
        hash: &str,
        plan: Plan,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut gone: Vec<Arc<Pod>> = plan.delete;
        let mut again = None;
        for ended in plan.ended {
            match self.pause(key, set.metadata.generation.unwrap_or(0), &ended) {
                Some(pause) => again = Some(again.map_or(pause, |least: Duration| least.min(pause))),
                None => {
                    let type_ = if ended.warning { "Warning" } else { "Normal" };
                    let regarding = coracle_client::events::reference(set);
                    self.control.recorder().event(regarding, type_, ended.reason, ended.message);
                    gone.push(ended.pod);
                }
            }
        }
        gone.truncate(BURST);
        let new: Vec<Pod> =
            plan.create.iter().take(BURST).map(|node| pod::pod(set, spec, hash, node)).collect();
        let made = self.control.create_all(set, &new.iter().collect::<Vec<_>>()).await;
        made.pods.iter().for_each(|pod| self.pending.created(key, pod));
        let deleted = self.control.delete(set, &gone).await;
        deleted.pods.iter().for_each(|pod| self.pending.deleted(key, pod.as_ref()));
        made.failed.or(deleted.failed).map_or(Ok(again), |message| Err(ReconcileError::Other(message)))
    }

    /// What is left of the pause after the failures before this one. Failures of what was declared before do not count.
    fn pause(&self, key: &ObjectKey, generation: i64, ended: &Ended) -> Option<Duration> {
        let node = pod::node_of(&ended.pod).unwrap_or_default().to_owned();
        let mut failures = self.failures.lock();
        let now = Instant::now();
        let before = failures.get(&(key.clone(), node.clone())).filter(|f| f.generation == generation);
        let (left, next) = before.map_or((Duration::ZERO, FIRST_RETRY_INTERVAL), |f| f.after(now));
        if !left.is_zero() {
            return Some(left);
        }
        failures.insert((key.clone(), node), Failure { at: now, pause: next, generation });
        None
    }

    async fn write_status(
        &self,
        key: &ObjectKey,
        set: &DaemonSet,
        status: DaemonSetStatus,
    ) -> Result<(), ReconcileError> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let api: Api<DaemonSet> = api_for(&self.client, key);
        let changed = DaemonSet { status: Some(status), ..set.clone() };
        api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_all_was_well_for_long() {
        let start = Instant::now();
        let failure = Failure { at: start, pause: Duration::from_secs(4), generation: 1 };
        let after = |seconds| {
            let (left, next) = failure.after(start + Duration::from_secs(seconds));
            (left.as_secs(), next.as_secs())
        };
        assert_eq!(after(1), (3, 8));
        assert_eq!(after(5), (0, 8));
        assert_eq!(after(61), (0, 1));
        let long = Failure { pause: MAX_RETRY_INTERVAL, ..failure };
        assert_eq!(long.after(start).1, MAX_RETRY_INTERVAL);
    }
}
