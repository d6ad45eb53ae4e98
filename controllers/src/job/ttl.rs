//! Removes finished Jobs after their ttlSecondsAfterFinished.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/>

use super::view::is_finished;
use crate::clients::Clients;
use crate::common::code_of;
use crate::metrics::{Metric, Metrics};
use coracle_client::informer::{api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "ttl-after-finished-controller";

struct Expiry {
    client: kube::Client,
    jobs: Informer<Job>,
    metrics: Arc<Metrics>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let jobs = clients.informers.of::<Job>();
    let metrics = clients.metrics.clone();
    let reconciler = Expiry { client: clients.client(CONTROLLER), jobs: jobs.clone(), metrics };
    Controller::new(reconciler).objects(&jobs).run(stop).await;
}

/// When a finished Job goes; `None` for those that stay.
fn due(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if !is_finished(job) || deleting(job) {
        return None;
    }
    let ends = job.status.as_ref()?.conditions.as_ref()?.iter();
    let end = ends.filter(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True");
    let end = end.filter_map(|c| c.last_transition_time.as_ref()).map(|t| t.0).max()?;
    end.checked_add(jiff::SignedDuration::from_secs(i64::from(ttl))).ok()
}

/// How long it still lives.
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    Some(Duration::try_from(due(job)?.duration_since(now)).unwrap_or_default())
}

impl Reconciler for Expiry {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(job) = self.jobs.get_key(key) else { return Ok(Action::AwaitChange) };
        match left(&job, Timestamp::now()) {
            None => return Ok(Action::AwaitChange),
            Some(left) if !left.is_zero() => return Ok(Action::RequeueAfter(left)),
            Some(_) => {}
        }
        // Asked again: the time may have been prolonged a moment ago.
        let api: Api<Job> = api_for(&self.client, key);
        let Some(live) = api.get_opt(&key.name).await? else { return Ok(Action::AwaitChange) };
        match left(&live, Timestamp::now()) {
            None => return Ok(Action::AwaitChange),
            Some(left) if !left.is_zero() => return Ok(Action::RequeueAfter(left)),
            Some(_) => {}
        }
        let exactly = Preconditions {
            uid: Some(uid_of(&live)),
            resource_version: live.metadata.resource_version.clone(),
        };
        let params = DeleteParams::foreground().preconditions(exactly);
        match api.delete(&key.name, &params).await {
            Ok(_) => {
                let late = due(&live).map(|due| Timestamp::now().duration_since(due));
                let late = late.and_then(|late| Duration::try_from(late).ok()).unwrap_or_default();
                self.metrics.observe(Metric::JobDeletion, &[], late);
                Ok(Action::AwaitChange)
            }
            Err(error) if code_of(&error) == 404 => Ok(Action::AwaitChange),
            Err(error) => Err(error.into()),
        }
    }
}
