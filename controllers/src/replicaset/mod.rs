//! Keeps as many pods of a template alive as asked for: ReplicaSets and, by the same code, ReplicationControllers.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/>

mod kinds;
mod plan;
mod status;

use crate::clients::Clients;
use crate::common::ownership::{self, controller_of};
use crate::common::pending::{PENDING_TIMEOUT, Pending};
use crate::common::pod_control::PodControl;
use crate::common::pods;
use coracle_client::informer::{Delta, api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub use kinds::Replicated;
use plan::Step;
use status::Failure;

struct Sets<S> {
    client: kube::Client,
    sets: Informer<S>,
    pods: Informer<Pod>,
    control: PodControl,
    pending: Pending,
}

/// Runs the controller of one kind until `stop` is cancelled.
pub async fn run<S: Replicated>(clients: Clients, stop: CancellationToken) {
    let client = clients.client(S::CONTROLLER);
    let (sets, pods) = (clients.informers.of::<S>(), clients.informers.of::<Pod>());
    let reconciler = Sets {
        control: PodControl::new(client.clone(), S::CONTROLLER),
        client,
        sets: sets.clone(),
        pods: pods.clone(),
        pending: Pending::default(),
    };
    let by_pod = {
        let sets = sets.clone();
        move |delta: &Delta<Pod>| ownership::owner_keys(delta, &sets, S::selector)
    };
    Controller::new(reconciler).objects(&sets).watch(&pods, by_pod).workers(4).run(stop).await;
}

impl<S: Replicated> Reconciler for Sets<S> {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        S::CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(set) = self.sets.get_key(key) else {
            self.pending.forget(key);
            return Ok(Action::AwaitChange);
        };
        if !self.pending.seen(key, &self.pods) {
            return Ok(Action::RequeueAfter(PENDING_TIMEOUT));
        }
        let owned = match set.selector() {
            Some(selector) => self.control.claim(set.as_ref(), &self.pods, &selector, None).await?,
            None => Vec::new(),
        };
        let now = Timestamp::now();
        let managed = if deleting(set.as_ref()) { Ok(()) } else { self.manage(key, &set, &owned, now).await };
        let status = status::status(set.as_ref(), &owned, managed.as_ref().err(), now);
        self.write_status(key, &set, status).await?;
        match managed {
            Err(failure) => Err(ReconcileError::Other(failure.message)),
            Ok(()) => Ok(status::next_available(&owned, set.min_ready_seconds(), now)
                .map_or(Action::AwaitChange, Action::RequeueAfter)),
        }
    }
}

impl<S: Replicated> Sets<S> {
    async fn manage(
        &self,
        key: &ObjectKey,
        set: &Arc<S>,
        owned: &[Arc<Pod>],
        now: Timestamp,
    ) -> Result<(), Failure> {
        let active: Vec<Arc<Pod>> = owned.iter().filter(|p| pods::is_active(p)).cloned().collect();
        match plan::plan(set.replicas(), &active, &self.related(set, owned), now) {
            Step::Nothing => Ok(()),
            Step::Create(count) => {
                let Some(template) = set.template() else { return Ok(()) };
                let made = self.control.create(set.as_ref(), template, count).await;
                made.pods.iter().for_each(|pod| self.pending.created(key, pod));
                made.failed.map_or(Ok(()), |message| Err(Failure { reason: "FailedCreate", message }))
            }
            Step::Delete(victims) => {
                let gone = self.control.delete(set.as_ref(), &victims).await;
                gone.pods.iter().for_each(|pod| self.pending.deleted(key, pod.as_ref()));
                gone.failed.map_or(Ok(()), |message| Err(Failure { reason: "FailedDelete", message }))
            }
        }
    }

    /// The pods of all sets of the same owner.
    fn related(&self, set: &Arc<S>, owned: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let Some(owner) = controller_of(set.meta()) else { return owned.to_vec() };
        let siblings = self.sets.controlled_by(&owner.uid);
        siblings.iter().flat_map(|s| self.pods.controlled_by(&uid_of(s.as_ref()))).collect()
    }

    async fn write_status(
        &self,
        key: &ObjectKey,
        set: &Arc<S>,
        status: k8s_openapi::api::apps::v1::ReplicaSetStatus,
    ) -> Result<(), ReconcileError> {
        let changed = set.with_status(status);
        // Compared as the kind itself stores it: a ReplicationController has no terminatingReplicas.
        if changed.status() == set.status() {
            return Ok(());
        }
        let api: Api<S> = api_for(&self.client, key);
        api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        Ok(())
    }
}
