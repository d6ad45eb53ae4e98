//! What became of the Jobs of a CronJob: those that run, and those that are kept for their logs.

use super::CronJobs;
use crate::common::{code_of, message_of};
use coracle_client::ObjectKey;
use coracle_client::ReconcileError;
use coracle_client::informer::{api_for, uid_of};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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

fn lists(active: &[ObjectReference], job: &Job) -> bool {
    active.iter().any(|reference| reference.uid == job.metadata.uid)
}

/// Whether a Job runs that the list does not know, or is listed and not there (one just replaced, say). That may be
/// because the list is not the newest.
pub fn is_behind(cron: &CronJob, children: &[Arc<Job>]) -> bool {
    let active = cron.status.as_ref().and_then(|s| s.active.as_deref()).unwrap_or_default();
    children.iter().any(|job| end(job).is_none() && !lists(active, job))
        || active.iter().any(|reference| !children.iter().any(|job| reference.uid == job.metadata.uid))
}

/// Brings the list of active Jobs up to date, with upstream's events.
pub fn follow(jobs: &CronJobs, cron: &mut CronJob, children: &[Arc<Job>]) {
    let mut status = cron.status.clone().unwrap_or_default();
    let mut active = status.active.take().unwrap_or_default();
    for job in children {
        let name = job.name_any();
        let Some(end) = end(job) else {
            if !lists(&active, job) {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                jobs.recorder.warning(cron, "UnexpectedJob", message);
            }
            continue;
        };
        if lists(&active, job) {
            active.retain(|r| r.uid != job.metadata.uid);
            let message = format!("Saw completed job: {name}, condition: {end}");
            jobs.recorder.normal(cron, "SawCompletedJob", message);
        }
        if end == "Complete" {
            let at = job.status.as_ref().and_then(|s| s.completion_time.clone());
            status.last_successful_time = later(status.last_successful_time.take(), at);
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

fn later(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    [one, other].into_iter().flatten().max_by_key(|time| time.0)
}

/// A Job that was made a moment ago may not have arrived yet.
fn revision(reference: &ObjectReference) -> u64 {
    reference.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Ended Jobs beyond the limits, the oldest first; those that never started count as the youngest.
pub fn stale(spec: &CronJobSpec, children: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits = [
        ("Complete", spec.successful_jobs_history_limit.unwrap_or(SUCCESSFUL)),
        ("Failed", spec.failed_jobs_history_limit.unwrap_or(FAILED)),
    ];
    let mut stale = Vec::new();
    for (type_, limit) in limits {
        let mut ended: Vec<_> = children.iter().filter(|job| end(job) == Some(type_)).cloned().collect();
        ended.sort_by_cached_key(|job| {
            let started = job.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
            (started.is_none(), started, job.name_any())
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
            jobs.recorder.warning(cron, "FailedDelete", format!("Deleted job: {}", message_of(&error)));
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(name: &str, condition: &str, started: Value) -> Arc<Job> {
        let conditions = json!([{ "type": condition, "status": "True" }]);
        let status = json!({ "startTime": started, "conditions": conditions });
        let job = json!({ "metadata": { "name": name, "uid": name }, "status": status });
        Arc::new(serde_json::from_value(job).unwrap())
    }

    #[test]
    fn the_oldest_of_each_end_go() {
        let at = |minute: u32| json!(format!("2026-01-01T00:{minute:02}:00Z"));
        let jobs = [
            job("b", "Complete", at(2)),
            job("a", "Complete", at(1)),
            job("never", "Failed", Value::Null),
            job("f", "Failed", at(3)),
            job("runs", "Suspended", at(0)),
        ];
        let gone = |successful: Value, failed: Value| -> Vec<String> {
            let spec = json!({ "schedule": "", "jobTemplate": {}, "successfulJobsHistoryLimit": successful,
                "failedJobsHistoryLimit": failed });
            let spec: CronJobSpec = serde_json::from_value(spec).unwrap();
            stale(&spec, &jobs).iter().map(|job| job.name_any()).collect()
        };
        assert_eq!(gone(json!(1), json!(1)), ["a", "f"]);
        assert_eq!(gone(Value::Null, Value::Null), ["f"], "three that succeeded, one that failed");
        assert_eq!(gone(json!(0), json!(0)), ["a", "b", "f", "never"]);
    }

    #[test]
    fn a_job_that_runs_unlisted_is_noticed() {
        let cron = |active: Value| -> CronJob {
            serde_json::from_value(json!({ "spec": { "schedule": "", "jobTemplate": {} },
                "status": { "active": active } }))
            .unwrap()
        };
        let runs = [job("runs", "Suspended", Value::Null)];
        assert!(is_behind(&cron(json!([])), &runs));
        assert!(!is_behind(&cron(json!([{ "uid": "runs" }])), &runs));
        assert!(!is_behind(&cron(json!([])), &[job("done", "Complete", Value::Null)]));
        assert!(
            is_behind(&cron(json!([{ "uid": "runs" }, { "uid": "replaced" }])), &runs),
            "listed, and gone"
        );
    }
}
