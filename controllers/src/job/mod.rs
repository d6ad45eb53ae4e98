//! Runs pods until so many have succeeded.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/job/>. No pod is lost or counted twice: each carries a
//! finalizer until its uid stands in the status, and only then leaves the list of the uncounted for the counters.

mod backoff;
mod counted;
mod indexes;
mod orphans;
mod pass;
mod plan;
mod policy;
mod status;
mod template;
pub mod ttl;
mod verdict;
mod view;

use crate::clients::Clients;
use crate::common::narrow_selector;
use crate::common::ownership;
use crate::common::pending::{PENDING_TIMEOUT, Pending};
use crate::common::pod_control::PodControl;
use crate::metrics::{Metric, Metrics};
use backoff::Record;
use coracle_client::informer::{Delta, revision_of, uid_of};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use counted::SyncAction;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::core::Selector;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use view::{TRACKING, View, is_finished, is_tracked};

const CONTROLLER: &str = "job-controller";
/// The value of managedBy that means us.
const OURS: &str = "kubernetes.io/job-controller";

struct Jobs {
    client: kube::Client,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    control: PodControl,
    pending: Pending,
    /// Failures in a row; forgotten with the process, as upstream.
    records: Mutex<HashMap<ObjectKey, Record>>,
    /// The resourceVersions of the status as last written. A Job older than that would count an index as open whose
    /// pod has been let go.
    written: Mutex<HashMap<ObjectKey, u64>>,
    metrics: Arc<Metrics>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let (jobs, pods) = (clients.informers.of::<Job>(), clients.informers.of::<Pod>());
    let reconciler = Jobs {
        control: PodControl::new(client.clone(), CONTROLLER),
        client,
        jobs: jobs.clone(),
        pods: pods.clone(),
        pending: Pending::default(),
        records: Mutex::default(),
        written: Mutex::default(),
        metrics: clients.metrics.clone(),
    };
    let by_job = {
        let metrics = clients.metrics.clone();
        move |delta: &Delta<Job>| {
            counted::seen(&metrics, delta);
            delta.object().map(|job| ObjectKey::of(job.as_ref()))
        }
    };
    let by_pod = {
        let (jobs, metrics) = (jobs.clone(), clients.metrics.clone());
        move |delta: &Delta<Pod>| {
            counted::tracked(&metrics, delta);
            let mut keys = ownership::owner_keys(delta, &jobs, selector);
            keys.extend(delta.new.as_ref().and_then(|pod| orphans::key_of(pod, &jobs)));
            keys
        }
    };
    Controller::new(reconciler).watch(&jobs, by_job).watch(&pods, by_pod).workers(4).run(stop).await;
}

fn selector(job: &Job) -> Option<Selector> {
    narrow_selector(job.spec.as_ref()?.selector.as_ref()?)
}

impl Reconciler for Jobs {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(job) = self.jobs.get_key(key) else {
            self.forget(key);
            orphans::free(&self.control, &self.jobs, &self.pods, &key.namespace).await?;
            return Ok(Action::AwaitChange);
        };
        if !is_ours(&job) {
            self.forget(key);
            return Ok(Action::AwaitChange);
        }
        let began = Instant::now();
        let newest = self.written.lock().get(key).copied().unwrap_or(0);
        let stale = revision_of(job.as_ref()) < newest;
        self.metrics.add(Metric::JobStaleSkips, &["batch", "jobs"], stale.into());
        if stale || !self.pending.seen(key, &self.pods) {
            if !is_finished(&job) {
                counted::looked_at(&self.metrics, &job, SyncAction::Reconciling, true, began.elapsed());
            }
            return Ok(Action::RequeueAfter(PENDING_TIMEOUT));
        }
        if is_finished(&job) {
            self.forget(key);
            orphans::free_of(&self.control, &job, &self.pods).await?;
            return Ok(Action::AwaitChange);
        }
        let (action, done) = self.look_at(key, &job).await;
        counted::looked_at(&self.metrics, &job, action, done.is_ok(), began.elapsed());
        done
    }
}

impl Jobs {
    async fn look_at(&self, key: &ObjectKey, job: &Job) -> (SyncAction, Result<Action, ReconcileError>) {
        let claimed = match selector(job) {
            Some(selector) => self.control.claim(job, &self.pods, &selector, Some(TRACKING)).await,
            None => return (SyncAction::Reconciling, Ok(Action::AwaitChange)),
        };
        match claimed.map(|pods| View::new(job, pods)) {
            Ok(Some(view)) => pass::Pass::new(self, key, view).run().await,
            Ok(None) => (SyncAction::Reconciling, Ok(Action::AwaitChange)),
            Err(error) => (SyncAction::Reconciling, Err(error)),
        }
    }

    fn forget(&self, key: &ObjectKey) {
        self.pending.forget(key);
        self.records.lock().remove(key);
        self.written.lock().remove(key);
    }
}

/// Whether the pod is controlled by exactly this Job.
fn owned_by(pod: &Pod, job: &Job) -> bool {
    ownership::controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid_of(job))
}

/// Whether we run the Job, and not somebody whom it names.
fn is_ours(job: &Job) -> bool {
    job.spec.as_ref().and_then(|s| s.managed_by.as_deref()).is_none_or(|manager| manager == OURS)
}

/// Whether the pod waits for a Job that does not exist (any more). Pods of others are theirs; those of a Job that is there,
/// be it over, are looked at with it.
fn is_orphan(pod: &Pod, jobs: &Informer<Job>) -> bool {
    if !is_tracked(pod) {
        return false;
    }
    let Some(owner) = ownership::controller_of(&pod.metadata) else { return true };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    owner.kind == "Job"
        && owner.api_version == "batch/v1"
        && jobs.get(namespace, &owner.name).is_none_or(|job| !owned_by(pod, &job))
}
