//! Keeps pods with names and claims of their own, in order.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/>

mod claims;
mod identity;
mod plan;
mod status;

use crate::clients::Clients;
use crate::common::pending::{PENDING_TIMEOUT, Pending};
use crate::common::pod_control::PodControl;
use crate::common::revisions::{self, Found, History, Subject};
use crate::common::{code_of, message_of, narrow_selector, ownership, pods};
use claims::Claims;
use coracle_client::informer::{Delta, api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Selector;
use kube::{Api, ResourceExt};
use plan::{Places, Step};
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "statefulset-controller";

struct StatefulSets {
    client: kube::Client,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Informer<ControllerRevision>,
    control: PodControl,
    pending: Pending,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let informers = &clients.informers;
    let reconciler = StatefulSets {
        control: PodControl::new(client.clone(), CONTROLLER),
        client,
        sets: informers.of(),
        pods: informers.of(),
        claims: informers.of(),
        revisions: informers.of(),
        pending: Pending::default(),
    };
    let (sets, pods) = (reconciler.sets.clone(), reconciler.pods.clone());
    let (claims, revisions) = (reconciler.claims.clone(), reconciler.revisions.clone());
    let by_pod = {
        let sets = sets.clone();
        move |delta: &Delta<Pod>| ownership::owner_keys(delta, &sets, selector)
    };
    Controller::new(reconciler)
        .objects(&sets)
        .watch(&pods, by_pod)
        .reads(&claims)
        .reads(&revisions)
        .workers(4)
        .run(stop)
        .await;
}

fn selector(set: &StatefulSet) -> Option<Selector> {
    narrow_selector(&set.spec.as_ref()?.selector)
}

impl Reconciler for StatefulSets {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(set) = self.sets.get_key(key) else {
            self.pending.forget(key);
            return Ok(Action::AwaitChange);
        };
        if !self.pending.seen(key, &self.pods) {
            return Ok(Action::RequeueAfter(PENDING_TIMEOUT));
        }
        let (Some(spec), Some(selector)) = (set.spec.as_ref(), selector(&set)) else {
            return Ok(Action::AwaitChange);
        };
        let Some(history) = self.history(key, &set, spec, &selector).await? else {
            return Ok(Action::AwaitChange);
        };
        let owned = self.claim(&set, &selector).await?;
        let now = Timestamp::now();
        let places = Places::of(&set, spec, &owned, now);
        let update = history.update.name_any();
        let current = self.current(&set, &history);
        let work = self.work(key, &set, spec, &places, (&current, &history.update)).await;
        let status = status::status(&set, spec, &places, &current.name_any(), &update);
        let used: Vec<String> = owned.iter().map(|pod| identity::revision(pod).to_owned()).collect();
        self.write_status(key, &set, status).await?;
        work?;
        let in_use = |revision: &ControllerRevision| {
            let name = revision.name_any();
            name == update || name == current.name_any() || used.contains(&name)
        };
        revisions::truncate(&self.client, key, &history, spec.revision_history_limit, in_use).await?;
        let waits = owned.iter().filter_map(|pod| {
            pods::until_available(pod, spec.min_ready_seconds.unwrap_or(0), now)
                .filter(|left| !left.is_zero())
        });
        Ok(waits.min().map_or(Action::AwaitChange, Action::RequeueAfter))
    }
}

impl StatefulSets {
    /// `None` after a collision of names, which the status counts: its change brings the set back.
    async fn history(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        spec: &StatefulSetSpec,
        selector: &Selector,
    ) -> Result<Option<History>, ReconcileError> {
        let collisions = set.status.as_ref().and_then(|s| s.collision_count);
        let hash_label = "controller.kubernetes.io/hash";
        let subject = Subject { owner: set, template: &spec.template, selector, collisions, hash_label };
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

    /// The revision that the set had before the present one, until every pod has that.
    fn current(&self, set: &StatefulSet, history: &History) -> Arc<ControllerRevision> {
        let name = set.status.as_ref().and_then(|s| s.current_revision.as_deref()).unwrap_or_default();
        let found = history.all.iter().find(|revision| revision.name_any() == name);
        found.unwrap_or(&history.update).clone()
    }

    /// The set's pods; of the orphans, only those that have a name of its.
    async fn claim(&self, set: &StatefulSet, selector: &Selector) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let name = set.name_any();
        let mut owned = self.control.claim(set, &self.pods, selector, None).await?;
        owned.retain(|pod| identity::ordinal(&name, pod).is_some());
        Ok(owned)
    }

    async fn work(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        spec: &StatefulSetSpec,
        places: &Places,
        (current, update): (&ControllerRevision, &ControllerRevision),
    ) -> Result<(), ReconcileError> {
        let claims = Claims {
            client: &self.client,
            recorder: self.control.recorder(),
            claims: &self.claims,
            key,
            set,
        };
        for (pod, condemned) in with_fate(places) {
            if let Some(ordinal) = identity::ordinal(&set.name_any(), pod) {
                claims.retain(pod, ordinal, condemned).await?;
            }
        }
        for step in plan::plan(set, spec, places, &update.name_any()) {
            match step {
                Step::Create(ordinal) => {
                    claims.ensure_fresh(ordinal).await?;
                    let running = set.status.as_ref().and_then(|s| s.current_replicas).unwrap_or(0);
                    let keeps = plan::keeps_current(spec, running, ordinal);
                    let revision = if keeps { current } else { update };
                    let template = revisions::template(revision).unwrap_or_else(|| spec.template.clone());
                    self.create(key, set, &template, &revision.name_any(), ordinal).await?;
                }
                Step::Delete(pod) => self.delete(key, set, &pod).await?,
                Step::Claims(ordinal) => claims.ensure(ordinal).await?,
                Step::Correct(pod) => {
                    // The labels alone: a shared copy of a pod is not the whole of it.
                    let metadata = json!({ "uid": pod.uid(), "labels": pod.labels() });
                    let patch = Patch::Strategic(json!({ "metadata": metadata }));
                    let api: Api<Pod> = api_for(&self.client, key);
                    api.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
                }
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        template: &PodTemplateSpec,
        revision: &str,
        ordinal: i32,
    ) -> Result<(), ReconcileError> {
        let pod = identity::pod(set, template, revision, ordinal);
        let (name, set_name) = (pod.name_any(), &key.name);
        let api: Api<Pod> = api_for(&self.client, key);
        match api.create(&PostParams::default(), &pod).await {
            Ok(made) => {
                self.pending.created(key, &made);
                let message = format!("create Pod {name} in StatefulSet {set_name} successful");
                self.control.recorder().normal(set, "SuccessfulCreate", message);
                Ok(())
            }
            // Not seen yet, or a stranger's: the next look at it will tell.
            Err(error) if code_of(&error) == 409 => {
                let stranger = api.get_opt(&name).await?;
                if stranger.is_some_and(|pod| identity::is_strangers(&pod, &uid_of(set))) {
                    let why = message_of(&error);
                    let message = format!("create Pod {name} in StatefulSet {set_name} failed error: {why}");
                    self.control.recorder().warning(set, "FailedCreate", message);
                }
                Err(error.into())
            }
            Err(error) => {
                let why = message_of(&error);
                let message = format!("create Pod {name} in StatefulSet {set_name} failed error: {why}");
                self.control.recorder().warning(set, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    async fn delete(&self, key: &ObjectKey, set: &StatefulSet, pod: &Arc<Pod>) -> Result<(), ReconcileError> {
        let api: Api<Pod> = api_for(&self.client, key);
        let exactly = Preconditions { uid: pod.uid(), resource_version: None };
        let (name, set_name) = (pod.name_any(), &key.name);
        let result = api.delete(&name, &DeleteParams::default().preconditions(exactly)).await;
        match result {
            Err(error) if code_of(&error) != 404 => {
                let why = message_of(&error);
                let message = format!("delete Pod {name} in StatefulSet {set_name} failed error: {why}");
                self.control.recorder().warning(set, "FailedDelete", message);
                Err(error.into())
            }
            _ => {
                self.pending.deleted(key, pod.as_ref());
                let message = format!("delete Pod {name} in StatefulSet {set_name} successful");
                self.control.recorder().normal(set, "SuccessfulDelete", message);
                Ok(())
            }
        }
    }

    async fn write_status(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        status: StatefulSetStatus,
    ) -> Result<(), ReconcileError> {
        if set.status.as_ref() == Some(&status) || deleting(set) && set.status.is_none() {
            return Ok(());
        }
        let api: Api<StatefulSet> = api_for(&self.client, key);
        let changed = StatefulSet { status: Some(status), ..set.clone() };
        api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        Ok(())
    }
}

/// Every pod, and whether it is to be scaled away.
fn with_fate(places: &Places) -> impl Iterator<Item = (&Arc<Pod>, bool)> {
    let stay = places.replicas.iter().flatten().map(|pod| (pod, false));
    stay.chain(places.condemned.iter().map(|pod| (pod, true)))
}
