//! Starts Jobs on a schedule.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>

mod history;
mod schedule;
mod start;

use crate::clients::Clients;
use crate::common::ownership;
use crate::metrics::Metrics;
use coracle_client::informer::{Delta, api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::Api;
use kube::api::PostParams;
use schedule::Clock;
use start::Start;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "cronjob-controller";
/// A little late rather than a little early; upstream's.
const WAKE_DELAY: Duration = Duration::from_millis(100);

struct CronJobs {
    client: kube::Client,
    crons: Informer<CronJob>,
    jobs: Informer<Job>,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let (crons, jobs) = (clients.informers.of::<CronJob>(), clients.informers.of::<Job>());
    let reconciler = CronJobs {
        recorder: Recorder::new(client.clone(), CONTROLLER, ""),
        client,
        crons: crons.clone(),
        jobs: jobs.clone(),
        metrics: clients.metrics.clone(),
    };
    let by_job = {
        let crons = crons.clone();
        move |delta: &Delta<Job>| ownership::owner_keys(delta, &crons, |_| None)
    };
    Controller::new(reconciler).objects(&crons).watch(&jobs, by_job).workers(2).run(stop).await;
}

impl Reconciler for CronJobs {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(stored) = self.crons.get_key(key) else { return Ok(Action::AwaitChange) };
        let children = self.jobs.controlled_by(&uid_of(stored.as_ref()));
        let stored = match history::is_behind(&stored, &children) {
            // The list as it is now, lest a Job be called unexpected that was listed a moment ago.
            true => match api_for::<CronJob>(&self.client, key).get_opt(&key.name).await? {
                Some(live) if uid_of(&live) == uid_of(stored.as_ref()) => Arc::new(live),
                _ => return Ok(Action::AwaitChange),
            },
            false => stored,
        };
        let spec = &stored.spec;
        let mut cron = CronJob::clone(&stored);
        history::follow(self, &mut cron, &children);
        let stale = history::stale(spec, &children);
        let now = Timestamp::now();
        let outcome = if deleting(&cron) || spec.suspend.unwrap_or(false) {
            Ok(Action::AwaitChange)
        } else {
            match Clock::of(spec, now) {
                Ok(clock) => self.start(&mut cron, &clock, now).await,
                Err((reason, message)) => {
                    self.recorder.warning(&cron, reason, message);
                    Ok(Action::AwaitChange)
                }
            }
        };
        self.write(key, &stored, &cron).await?;
        history::clean(self, &cron, stale).await?;
        outcome
    }
}

impl CronJobs {
    /// Starts what is due, and says when to look again.
    async fn start(
        &self,
        cron: &mut CronJob,
        clock: &Clock,
        now: Timestamp,
    ) -> Result<Action, ReconcileError> {
        if let Some(due) = schedule::due(cron, clock, now) {
            if due.too_many_missed {
                let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                self.recorder.warning(cron, "TooManyMissedTimes", message);
            }
            Start { jobs: self, clock, now }.run(cron, due.at).await?;
        }
        Ok(schedule::next_look(cron, clock, now).map_or(Action::AwaitChange, |next| {
            let left = next.as_millisecond() - now.as_millisecond();
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            Action::RequeueAfter(left + WAKE_DELAY)
        }))
    }

    async fn write(&self, key: &ObjectKey, stored: &CronJob, cron: &CronJob) -> Result<(), ReconcileError> {
        if stored.status == cron.status {
            return Ok(());
        }
        let api: Api<CronJob> = api_for(&self.client, key);
        api.replace_status(&key.name, &PostParams::default(), cron).await?;
        Ok(())
    }
}
