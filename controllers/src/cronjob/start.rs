//! The start of one Job for one time of the schedule.

use super::schedule::Clock;
use super::{CronJobs, history};
use crate::common::{code_of, message_of, namespace_terminating, ownership};
use crate::metrics::Metric;
use coracle_client::ObjectKey;
use coracle_client::ReconcileError;
use coracle_client::informer::{api_for, uid_of};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};

/// On every Job: the time that it stands for, in the schedule's zone.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub struct Start<'a> {
    pub jobs: &'a CronJobs,
    pub clock: &'a Clock,
    pub now: Timestamp,
}

impl Start<'_> {
    /// Starts the Job of the time `at`, unless it was started, comes too late, or others forbid it.
    pub async fn run(&self, cron: &mut CronJob, at: Timestamp) -> Result<(), ReconcileError> {
        let spec = cron.spec.clone();
        let recorder = &self.jobs.recorder;
        let late = spec.starting_deadline_seconds.is_some_and(|seconds| {
            at.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|deadline| deadline < self.now)
        });
        if late {
            let time = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
            let message = format!("Missed scheduled time to start a job: {time}");
            recorder.warning(cron, "MissSchedule", message);
            return Ok(());
        }
        let job = self.job(cron, at);
        let status = cron.status.clone().unwrap_or_default();
        let active = status.active.unwrap_or_default();
        let started = active.iter().any(|r| r.name.as_deref() == Some(&job.name_any()));
        if started || status.last_schedule_time.is_some_and(|last| last.0 == at) {
            return Ok(());
        }
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message =
                    "Not starting job because prior execution is running and concurrency policy is Forbid";
                recorder.normal(cron, "JobAlreadyActive", message);
                return Ok(());
            }
            Some("Replace") => self.replace(cron, &active).await?,
            _ => {}
        }
        let Some(made) = self.create(cron, &job, at).await? else { return Ok(()) };
        let status = cron.status.get_or_insert_default();
        status.active.get_or_insert_default().push(made);
        status.last_schedule_time = Some(Time(at));
        Ok(())
    }

    async fn replace(&self, cron: &mut CronJob, active: &[ObjectReference]) -> Result<(), ReconcileError> {
        let namespace = cron.namespace().unwrap_or_default();
        for reference in active {
            let name = reference.name.as_deref().unwrap_or_default();
            if let Some(job) =
                self.jobs.jobs.get(&namespace, name).filter(|job| job.metadata.uid == reference.uid)
            {
                history::delete(self.jobs, cron, &job).await?;
            }
        }
        cron.status.get_or_insert_default().active = None;
        Ok(())
    }

    /// The reference to the Job, also when it was made before and only forgotten.
    async fn create(
        &self,
        cron: &CronJob,
        job: &Job,
        at: Timestamp,
    ) -> Result<Option<ObjectReference>, ReconcileError> {
        let recorder = &self.jobs.recorder;
        let api: Api<Job> = api_for(&self.jobs.client, &ObjectKey::of(cron));
        match api.create(&PostParams::default(), job).await {
            Ok(made) => {
                let skew = made.creation_timestamp().map_or(self.now, |t| t.0).duration_since(at);
                self.jobs.metrics.observe_number(Metric::JobCreationSkew, &[], skew.as_secs_f64());
                recorder.normal(cron, "SuccessfulCreate", format!("Created job {}", made.name_any()));
                Ok(Some(reference(&made)))
            }
            Err(error) if namespace_terminating(&error) => Ok(None),
            Err(error) if code_of(&error) == 409 => {
                let there = api.get(&job.name_any()).await?;
                let ours = ownership::controller_of(&there.metadata).is_some_and(|o| o.uid == uid_of(cron));
                // One that has ended already is taken from the list by the next look.
                Ok(ours.then(|| reference(&there)))
            }
            Err(error) => {
                recorder.warning(cron, "FailedCreate", format!("Error creating job: {}", message_of(&error)));
                Err(error.into())
            }
        }
    }

    fn job(&self, cron: &CronJob, at: Timestamp) -> Job {
        let template = cron.spec.job_template.clone();
        let meta = template.metadata.unwrap_or_default();
        let mut annotations = meta.annotations.unwrap_or_default();
        let time = at.to_zoned(self.clock.zone.clone());
        let offset = time.offset();
        let text = if offset.is_zero() {
            time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        } else {
            time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        };
        annotations.insert(SCHEDULED.to_owned(), text);
        Job {
            metadata: ObjectMeta {
                name: Some(format!("{}-{}", cron.name_any(), at.as_second() / 60)),
                namespace: cron.namespace(),
                labels: meta.labels,
                annotations: Some(annotations),
                owner_references: Some(vec![ownership::controller_reference(cron)]),
                ..ObjectMeta::default()
            },
            spec: template.spec,
            status: None,
        }
    }
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: job.namespace(),
        name: job.metadata.name.clone(),
        uid: job.uid(),
        resource_version: job.resource_version(),
        field_path: None,
    }
}
