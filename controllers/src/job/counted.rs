//! What is counted of Jobs.

use super::OURS;
use super::indexes::Indexes;
use super::plan::Plan;
use super::policy::Action;
use super::view::{View, is_suspended, is_tracked, replaces_failed_only, size};
use crate::common::pods;
use crate::metrics::{Metric, Metrics};
use coracle_client::informer::Delta;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

/// What one look at a Job did about its pods, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncAction {
    /// Nothing yet, or what ends the Job.
    Reconciling,
    /// There were as many as there should be.
    Tracking,
    PodsCreated,
    PodsDeleted,
}

impl SyncAction {
    /// Of a Job that goes on. As upstream a suspended one is about deleting, and one whose pods wait for their back-off
    /// about creating.
    pub fn of(plan: &Plan, spec: &JobSpec) -> Self {
        if !plan.delete.is_empty() || is_suspended(spec) {
            Self::PodsDeleted
        } else if !plan.create.is_empty() || plan.again.is_some() {
            Self::PodsCreated
        } else {
            Self::Tracking
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Reconciling => "reconciling",
            Self::Tracking => "tracking",
            Self::PodsCreated => "pods_created",
            Self::PodsDeleted => "pods_deleted",
        }
    }
}

fn mode(spec: Option<&JobSpec>) -> &str {
    spec.and_then(|spec| spec.completion_mode.as_deref()).unwrap_or("NonIndexed")
}

/// A Job that is not over was looked at.
pub fn looked_at(metrics: &Metrics, job: &Job, action: SyncAction, ok: bool, duration: Duration) {
    let result = if ok { "success" } else { "error" };
    let labels = [mode(job.spec.as_ref()), result, action.label()];
    metrics.add(Metric::JobSyncs, &labels, 1);
    metrics.observe(Metric::JobSyncDuration, &labels, duration);
}

/// Its status was written.
pub fn written(metrics: &Metrics, spec: &JobSpec, before: &JobStatus, after: &JobStatus) {
    let mode = mode(Some(spec));
    let more = |before: Option<i32>, after: Option<i32>| size(after).saturating_sub(size(before));
    let pods = [
        ("succeeded", more(before.succeeded, after.succeeded)),
        ("failed", more(before.failed, after.failed)),
    ];
    for (result, count) in pods {
        metrics.add(Metric::JobPodsFinished, &[mode, result], i64::try_from(count).unwrap_or(i64::MAX));
    }
    indexes(metrics, spec, before, after);
    if let (None, Some(end)) = (end(before), end(after)) {
        let result = if end.type_ == "Complete" { "succeeded" } else { "failed" };
        metrics.add(Metric::JobsFinished, &[mode, result, end.reason.as_deref().unwrap_or_default()], 1);
    }
}

/// Indexes that are over with the status as written.
fn indexes(metrics: &Metrics, spec: &JobSpec, before: &JobStatus, after: &JobStatus) {
    let Some(completions) = spec.completions.filter(|_| mode(Some(spec)) == "Indexed") else { return };
    let limit = if spec.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
    let count =
        |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), completions).len();
    let over = [
        ("succeeded", &before.completed_indexes, &after.completed_indexes),
        ("failed", &before.failed_indexes, &after.failed_indexes),
    ];
    for (status, before, after) in over {
        let more = count(after).saturating_sub(count(before));
        metrics.add(Metric::JobFinishedIndexes, &[status, limit], i64::try_from(more).unwrap_or(i64::MAX));
    }
}

/// Pods were let go of about which rules of podFailurePolicy said that.
pub fn by_rule(metrics: &Metrics, actions: &[Action]) {
    actions.iter().for_each(|action| metrics.add(Metric::JobPodFailuresByPolicy, &[action.label()], 1));
}

/// So many pods were made, and so many could not be.
pub fn made(metrics: &Metrics, view: &View, made: usize, failures: usize) {
    let reason = match (replaces_failed_only(view.spec), view.failed > 0) {
        (true, true) => "recreate_failed",
        (false, true) => "recreate_terminating_or_failed",
        (_, false) if view.terminating() > 0 => "recreate_terminating_or_failed",
        _ => "new",
    };
    for (status, count) in [("succeeded", made), ("failed", failures)].into_iter().filter(|(_, n)| *n > 0) {
        metrics.add(Metric::JobPodsCreation, &[reason, status], i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// A Job is news; one that somebody else runs is counted.
pub fn seen(metrics: &Metrics, job: &Delta<Job>) {
    let new = job.new.as_deref().filter(|_| job.old.is_none());
    let manager = new.and_then(|job| job.spec.as_ref()?.managed_by.as_deref()).filter(|by| *by != OURS);
    if let Some(manager) = manager {
        metrics.add(Metric::JobsByExternal, &[manager], 1);
    }
}

/// A pod changed; whose it is does not matter.
pub fn tracked(metrics: &Metrics, pod: &Delta<Pod>) {
    let held = |pod: &Option<Arc<Pod>>| pod.as_deref().is_some_and(|p| pods::is_terminal(p) && is_tracked(p));
    let event = match (held(&pod.old), held(&pod.new)) {
        (false, true) => "add",
        (true, false) => "delete",
        _ => return,
    };
    metrics.add(Metric::JobTerminatedPods, &[event], 1);
}

fn end(status: &JobStatus) -> Option<&JobCondition> {
    let is_end = |c: &&JobCondition| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True";
    status.conditions.iter().flatten().find(is_end)
}
