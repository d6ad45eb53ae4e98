//! What became of the Jobs of a CronJob: those that run, and those that are kept for their logs.

use super::CronJobs;
use crate::common::code_of;
use coracle_client::ObjectKey;
use coracle_client::ReconcileError;
use coracle_client::informer::{api_for, uid_of};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use std::sync::Arc;

/// The kept Jobs' numbers when the CronJob does not say.
const SUCCESSFUL: i32 = 3;
const FAILED: i32 = 1;

/// `Complete` or `Failed`, once it has come to that.
pub fn end(job: &Job) -> Option<&str> {
    let all = job.status.as_ref()?.conditions.as_ref()?.iter();
    let mut ends = all.filter(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True");
    ends.next().map(|c| c.type_.as_str())
}

/// Brings the list of active Jobs up to date, with upstream's events.
pub fn follow(jobs: &CronJobs, cron: &mut CronJob, children: &[Arc<Job>]) {
    let mut status = cron.status.clone().unwrap_or_default();
    let mut active = status.active.take().unwrap_or_default();
    let listed = |active: &[ObjectReference], job: &Job| active.iter().any(|r| r.uid == job.metadata.uid);
    for job in children {
        let name = job.name_any();
        match end(job) {
            Some(end) if listed(&active, job) => {
                active.retain(|r| r.uid != job.metadata.uid);
                let message = format!("Saw completed job: {name}, condition: {end}");
                jobs.recorder.normal(cron, "SawCompletedJob", message);
                if end == "Complete" {
                    let at = job.status.as_ref().and_then(|s| s.completion_time.clone());
                    let newer = at.as_ref().map(|t| t.0) > status.last_successful_time.as_ref().map(|t| t.0);
                    status.last_successful_time = if newer { at } else { status.last_successful_time };
                }
            }
            None if !listed(&active, job) => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                jobs.recorder.warning(cron, "UnexpectedJob", message);
            }
            _ => {}
        }
    }
    let namespace = cron.namespace().unwrap_or_default();
    active.retain(|reference| {
        let name = reference.name.as_deref().unwrap_or_default();
        let uid = reference.uid.as_deref().unwrap_or_default();
        let there = children.iter().any(|job| uid_of(job.as_ref()) == uid)
            || jobs.jobs.revision() < revision(reference)
            || jobs.jobs.get(&namespace, name).is_some_and(|job| uid_of(job.as_ref()) == uid);
        if !there {
            let message = format!("Active job went missing: {name}");
            jobs.recorder.normal(cron, "MissingJob", message);
        }
        there
    });
    status.active = (!active.is_empty()).then_some(active);
    if cron.status.as_ref() != Some(&status) {
        cron.status = Some(status);
    }
}

/// A Job that was made a moment ago may not have arrived yet.
fn revision(reference: &ObjectReference) -> u64 {
    reference.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Ended Jobs beyond the limits, the oldest first.
pub fn stale(spec: &CronJobSpec, children: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits = [
        ("Complete", spec.successful_jobs_history_limit.unwrap_or(SUCCESSFUL)),
        ("Failed", spec.failed_jobs_history_limit.unwrap_or(FAILED)),
    ];
    let mut stale = Vec::new();
    for (type_, limit) in limits {
        let mut ended: Vec<_> = children.iter().filter(|job| end(job) == Some(type_)).cloned().collect();
        ended.sort_by_cached_key(|job| {
            (job.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0), job.name_any())
        });
        let excess = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        stale.extend(ended.into_iter().take(excess).filter(|j| j.metadata.deletion_timestamp.is_none()));
    }
    stale
}

pub async fn clean(jobs: &CronJobs, cron: &CronJob, stale: Vec<Arc<Job>>) -> Result<(), ReconcileError> {
    for job in stale {
        delete(jobs, cron, &job).await?;
    }
    Ok(())
}

pub async fn delete(jobs: &CronJobs, cron: &CronJob, job: &Job) -> Result<(), ReconcileError> {
    let api: Api<Job> = api_for(&jobs.client, &ObjectKey::of(job));
    let exactly = Preconditions { uid: job.uid(), resource_version: None };
    match api.delete(&job.name_any(), &DeleteParams::background().preconditions(exactly)).await {
        Ok(_) => {
            let message = format!("Deleted job {}", job.name_any());
            jobs.recorder.normal(cron, "SuccessfulDelete", message);
            Ok(())
        }
        Err(error) if code_of(&error) == 404 => Ok(()),
        Err(error) => {
            jobs.recorder.warning(cron, "FailedDelete", format!("Deleted job: {error}"));
            Err(error.into())
        }
    }
}
