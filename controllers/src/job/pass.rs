//! One reconcile of one Job: verdict, pods, status.

use super::backoff::Record;
use super::counted::{self, SyncAction};
use super::plan::{self, Plan};
use super::status::{self, Counting};
use super::verdict::{self, Verdict};
use super::view::{TRACKING, View, is_suspended};
use super::{Jobs, template};
use coracle_client::informer::{api_for, deleting, revision_of};
use coracle_client::{Action, ObjectKey, ReconcileError};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

pub struct Pass<'a> {
    jobs: &'a Jobs,
    key: &'a ObjectKey,
    view: View<'a>,
    now: Timestamp,
    /// As last stored.
    stored: Job,
    /// To be written.
    status: JobStatus,
    again: Option<Duration>,
    action: SyncAction,
}

impl<'a> Pass<'a> {
    pub fn new(jobs: &'a Jobs, key: &'a ObjectKey, view: View<'a>) -> Self {
        let (stored, status) = (view.job.clone(), view.status.clone());
        Self {
            jobs,
            key,
            view,
            now: Timestamp::now(),
            stored,
            status,
            again: None,
            action: SyncAction::Reconciling,
        }
    }

    /// What was done about the pods, and what came of it.
    pub async fn run(mut self) -> (SyncAction, Result<Action, ReconcileError>) {
        let done = self.bring_forward().await;
        (self.action, done)
    }

    async fn bring_forward(&mut self) -> Result<Action, ReconcileError> {
        if self.status.start_time.is_none() && !is_suspended(self.view.spec) {
            self.status.start_time = Some(Time(self.now));
        }
        self.note_resumption();
        self.view.status.start_time = self.status.start_time.clone();
        self.wish(verdict::until_deadline(&self.view, self.now));
        let record = self.record();
        let mut verdict = verdict::before_work(&self.view, self.now);
        let worked = match &verdict {
            Some(_) => self.stop_all().await,
            None if deleting(self.view.job) => Ok(self.view.active.len()),
            None => self.work(plan::plan(&self.view, record, self.now)).await,
        };
        let active = *worked.as_ref().unwrap_or(&self.view.active.len());
        if verdict.is_none() && worked.is_ok() {
            verdict = verdict::after_work(&self.view, active);
            if verdict.is_none() {
                self.note_suspension();
            }
        }
        let more = self.count(verdict.as_ref(), active).await?;
        self.jobs.records.lock().insert(self.key.clone(), record);
        worked?;
        Ok(if more {
            Action::RequeueAfter(Duration::from_millis(1))
        } else {
            self.again.map_or(Action::AwaitChange, Action::RequeueAfter)
        })
    }

    fn record(&self) -> Record {
        let before = self.jobs.records.lock().get(self.key).copied().unwrap_or_default();
        before.with(&self.view.new_succeeded, &self.view.new_failed)
    }

    fn wish(&mut self, again: Option<Duration>) {
        self.again = [self.again, again].into_iter().flatten().min();
    }

    /// Deletes what runs; its end is counted. How many pods are left.
    async fn stop_all(&mut self) -> Result<usize, ReconcileError> {
        self.delete(&self.view.active).await
    }

    /// Deletes pods that the Job can do without. Their end is not counted: they did not fail.
    async fn dismiss(&self, pods: &[Arc<Pod>]) -> Result<usize, ReconcileError> {
        let free = self.release(pods).await;
        let is_free = |pod: &&Arc<Pod>| pod.metadata.uid.as_ref().is_some_and(|uid| free.contains(uid));
        let free: Vec<_> = pods.iter().filter(is_free).cloned().collect();
        let left = self.delete(&free).await?;
        if free.len() < pods.len() {
            return Err(ReconcileError::Other("not all finalizers could be removed".to_owned()));
        }
        Ok(left)
    }

    async fn delete(&self, pods: &[Arc<Pod>]) -> Result<usize, ReconcileError> {
        let gone = self.jobs.control.delete(self.view.job, pods).await;
        gone.pods.iter().for_each(|pod| self.jobs.pending.deleted(self.key, pod.as_ref()));
        gone.failed
            .map_or(Ok(self.view.active.len() - gone.pods.len()), |why| Err(ReconcileError::Other(why)))
    }

    async fn work(&mut self, plan: Plan) -> Result<usize, ReconcileError> {
        self.action = SyncAction::of(&plan, self.view.spec);
        self.wish(plan.again);
        let (job, control, pending) = (self.view.job, &self.jobs.control, &self.jobs.pending);
        let mut active = self.view.active.len();
        if !plan.delete.is_empty() {
            return self.dismiss(&plan.delete).await;
        }
        let wanted: Vec<Pod> = plan.create.iter().map(|index| template::pod(&self.view, *index)).collect();
        let made = control.create_all(job, &wanted.iter().collect::<Vec<_>>()).await;
        counted::made(&self.jobs.metrics, &self.view, made.pods.len(), made.failures);
        made.pods.iter().for_each(|pod| pending.created(self.key, pod));
        active += made.pods.len();
        match made.failed {
            None => Ok(active),
            // The pods that were made are in the status already when this is tried again.
            Some(message) => {
                self.status.active = i32::try_from(active).ok();
                Err(ReconcileError::Other(message))
            }
        }
    }

    /// A suspended Job has no start; it gets one when it is resumed (KEP-5440).
    fn note_suspension(&mut self) {
        if !is_suspended(self.view.spec) {
            return;
        }
        self.status.start_time = None;
        if status::set_condition(
            &mut self.status,
            "Suspended",
            true,
            "JobSuspended",
            "Job suspended",
            self.now,
        ) {
            self.jobs.control.recorder().normal(self.view.job, "Suspended", "Job suspended");
        }
    }

    /// The clock starts anew.
    fn note_resumption(&mut self) {
        if !is_suspended(self.view.spec)
            && status::set_condition(
                &mut self.status,
                "Suspended",
                false,
                "JobResumed",
                "Job resumed",
                self.now,
            )
        {
            self.status.start_time = Some(Time(self.now));
            self.jobs.control.recorder().normal(self.view.job, "Resumed", "Job resumed");
        }
    }

    /// Brings the pods that have ended into the status, and with the last one the verdict. Whether there are more.
    async fn count(&mut self, verdict: Option<&Verdict>, active: usize) -> Result<bool, ReconcileError> {
        let Counting { let_go, uncounted, more, by_rule } = status::count(&self.view, verdict);
        let held: HashSet<String> = let_go.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        status::numbers(&self.view, &mut self.status, active);
        self.status.uncounted_terminated_pods = Some(uncounted);
        status::settle(&mut self.status, |uid| held.contains(uid));
        if let Some(verdict) = verdict {
            let interim = verdict.conditions().0;
            status::set_condition(
                &mut self.status,
                interim,
                true,
                &verdict.reason,
                &verdict.message,
                self.now,
            );
        }
        if let_go.is_empty() {
            self.conclude(verdict, more);
            self.write().await?;
            return Ok(more);
        }
        self.write().await?;
        counted::by_rule(&self.jobs.metrics, &by_rule);
        let gone = self.release(&let_go).await;
        let before = self.status.clone();
        status::settle(&mut self.status, |uid| held.contains(uid) && !gone.contains(uid));
        let all = gone.len() == held.len();
        if all {
            self.conclude(verdict, more);
        }
        if self.status != before {
            self.write().await?;
        }
        Ok(more || !all)
    }

    /// Takes the finalizers away. The uids of those that are free now.
    async fn release(&self, pods: &[Arc<Pod>]) -> HashSet<String> {
        let control = &self.jobs.control;
        let removals = pods.iter().map(|pod| control.remove_finalizer(pod, TRACKING));
        let mut gone = HashSet::new();
        for (pod, result) in pods.iter().zip(futures::future::join_all(removals).await) {
            match result {
                Ok(freed) => {
                    freed.iter().for_each(|pod| self.jobs.pending.created(self.key, pod));
                    gone.extend(pod.metadata.uid.clone());
                }
                Err(error) => tracing::warn!(job = %self.key, error = ?error, "finalizer not removed"),
            }
        }
        gone
    }

    /// The last word, once nothing of the Job is left.
    fn conclude(&mut self, verdict: Option<&Verdict>, more: bool) {
        let Some(verdict) = verdict.filter(|_| !more && status::is_settled(&self.status)) else { return };
        let last = verdict.conditions().1;
        let (reason, message) = (&verdict.reason, &verdict.message);
        status::set_condition(&mut self.status, last, true, reason, message, self.now);
        self.again = None;
        let recorder = self.jobs.control.recorder();
        if verdict.success {
            self.status.completion_time = Some(Time(self.now));
            if self.view.spec.completions.is_some_and(|wanted| self.status.succeeded.unwrap_or(0) > wanted) {
                let message = "Too many succeeded pods running after completion count reached";
                recorder.warning(self.view.job, "TooManySucceededPods", message);
            }
            recorder.normal(self.view.job, "Completed", "Job completed");
        } else {
            recorder.warning(self.view.job, reason, message.as_str());
        }
    }

    async fn write(&mut self) -> Result<(), ReconcileError> {
        if self.stored.status.as_ref() == Some(&self.status) {
            return Ok(());
        }
        let before = self.stored.status.replace(self.status.clone()).unwrap_or_default();
        let api: Api<Job> = api_for(&self.jobs.client, self.key);
        self.stored = api.replace_status(&self.key.name, &PostParams::default(), &self.stored).await?;
        self.jobs.written.lock().insert(self.key.clone(), revision_of(&self.stored));
        counted::written(&self.jobs.metrics, self.view.spec, &before, &self.status);
        Ok(())
    }
}
