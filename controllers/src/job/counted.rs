//! What is counted of Jobs.

use super::plan::Plan;
use super::view::{is_suspended, size};
use crate::metrics::{Metric, Metrics};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
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
    if let (None, Some(end)) = (end(before), end(after)) {
        let result = if end.type_ == "Complete" { "succeeded" } else { "failed" };
        metrics.add(Metric::JobsFinished, &[mode, result, end.reason.as_deref().unwrap_or_default()], 1);
    }
}

fn end(status: &JobStatus) -> Option<&JobCondition> {
    let is_end = |c: &&JobCondition| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True";
    status.conditions.iter().flatten().find(is_end)
}
