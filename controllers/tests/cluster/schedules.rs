//! CronJobs.

use crate::cluster;
use crate::support::{EXIT, World, until_gone, until_list, until_object};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

fn cron(name: &str, exit: &str, spec: Value) -> Value {
    let mut annotations = json!({});
    if !exit.is_empty() {
        annotations[EXIT] = json!(exit);
    }
    let pod = json!({ "metadata": { "annotations": annotations },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } });
    let template = json!({ "metadata": { "labels": { "cron": name } }, "spec": { "template": pod } });
    let mut cron =
        json!({ "metadata": { "name": name }, "spec": { "schedule": "@every 1s", "jobTemplate": template } });
    for (field, value) in spec.as_object().unwrap() {
        cron["spec"][field] = value.clone();
    }
    cron
}

#[tokio::test]
async fn jobs_start_on_time_and_few_are_kept() {
    let world = cluster().await;
    let (crons, jobs) = (world.in_namespace::<CronJob>("default"), world.in_namespace::<Job>("default"));
    world
        .create(
            &crons,
            cron("tick", "0", json!({ "schedule": "* * * * *", "successfulJobsHistoryLimit": 1 })),
        )
        .await;
    // As if it had been created long ago: the last missed minute is due now.
    let status = Patch::Merge(json!({ "status": { "lastScheduleTime": "2026-01-01T00:00:00Z" } }));
    crons.patch_status("tick", &PatchParams::default(), &status).await.unwrap();
    let made = until_list("a job", &jobs, "cron=tick", |j| !j.is_empty()).await;
    let stamp = &made[0].annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    let at: jiff::Timestamp = stamp.parse().unwrap();
    assert_eq!(made[0].name_any(), format!("tick-{}", at.as_second() / 60));
    let done = |c: &CronJob| {
        let status = c.status.clone().unwrap_or_default();
        status.last_successful_time.is_some() && status.active.is_none()
    };
    until_object("the success noted", &crons, "tick", done).await;
    // Less than a minute late.
    world.until_counted("cronjob_controller_job_creation_skew_duration_seconds_bucket{le=\"64\"} 1").await;
}

#[tokio::test]
async fn forbidden_and_suspended_starts_do_not_come() {
    let world = cluster().await;
    let (crons, jobs) = (world.in_namespace::<CronJob>("default"), world.in_namespace::<Job>("default"));
    world.create(&crons, cron("still", "", json!({ "schedule": "* * * * *", "suspend": true }))).await;
    world
        .create(&crons, cron("one", "", json!({ "schedule": "* * * * *", "concurrencyPolicy": "Forbid" })))
        .await;
    let past = |time: &str| Patch::Merge(json!({ "status": { "lastScheduleTime": time } }));
    for name in ["still", "one"] {
        crons.patch_status(name, &PatchParams::default(), &past("2026-01-01T00:00:00Z")).await.unwrap();
    }
    let active =
        |c: &CronJob| c.status.as_ref().and_then(|s| s.active.as_ref()).is_some_and(|a| a.len() == 1);
    until_object("one active job", &crons, "one", active).await;
    // Another start becomes due, one that is not the active job's.
    let yearly = Patch::Merge(json!({ "spec": { "schedule": "0 0 1 2 *" } }));
    crons.patch("one", &PatchParams::default(), &yearly).await.unwrap();
    crons.patch_status("one", &PatchParams::default(), &past("2026-01-01T00:00:00Z")).await.unwrap();
    let events = world.in_namespace::<k8s_openapi::api::core::v1::Event>("default");
    let told = |e: &[k8s_openapi::api::core::v1::Event]| {
        e.iter().any(|e| {
            e.reason.as_deref() == Some("JobAlreadyActive")
                && e.involved_object.name.as_deref() == Some("one")
        })
    };
    until_list("the refusal", &events, "", told).await;
    assert_eq!(until_list("its only job", &jobs, "cron=one", |_| true).await.len(), 1);
    assert!(until_list("no job", &jobs, "cron=still", |_| true).await.is_empty());
}

/// More than a year ago: whatever comes once a year is due.
fn long_ago() -> Patch<Value> {
    let then = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * 400);
    Patch::Merge(json!({ "status": { "lastScheduleTime": then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() } }))
}

/// Starts the first Job of a CronJob, and makes another start due, one that is not this Job's. The first Job's name.
async fn twice(world: &World, policy: &str) -> String {
    let crons = world.in_namespace::<CronJob>("default");
    let spec = json!({ "schedule": "0 0 1 2 *", "concurrencyPolicy": policy });
    world.create(&crons, cron("it", "", spec)).await;
    crons.patch_status("it", &PatchParams::default(), &long_ago()).await.unwrap();
    let active = |c: &CronJob| !names(c).is_empty();
    let first = names(&until_object("an active job", &crons, "it", active).await).remove(0);
    let another = Patch::Merge(json!({ "spec": { "schedule": "0 0 1 3 *" } }));
    crons.patch("it", &PatchParams::default(), &another).await.unwrap();
    crons.patch_status("it", &PatchParams::default(), &long_ago()).await.unwrap();
    first
}

fn names(cron: &CronJob) -> Vec<String> {
    let active = cron.status.as_ref().and_then(|s| s.active.clone()).unwrap_or_default();
    active.into_iter().filter_map(|reference| reference.name).collect()
}

#[tokio::test]
async fn a_start_replaces_the_job_before_it() {
    let world = cluster().await;
    let (crons, jobs) = (world.in_namespace::<CronJob>("default"), world.in_namespace::<Job>("default"));
    let first = twice(&world, "Replace").await;
    until_gone("the first job", &jobs, &first).await;
    let replaced = |c: &CronJob| names(c).len() == 1 && names(c)[0] != first;
    let second = names(&until_object("another in its place", &crons, "it", replaced).await).remove(0);
    until_object("the second job", &jobs, &second, |_| true).await;
}

#[tokio::test]
async fn several_jobs_run_at_once_if_they_may() {
    let world = cluster().await;
    let (crons, jobs) = (world.in_namespace::<CronJob>("default"), world.in_namespace::<Job>("default"));
    let first = twice(&world, "Allow").await;
    let two = |c: &CronJob| names(c).len() == 2 && names(c).contains(&first);
    until_object("two active jobs", &crons, "it", two).await;
    until_list("two jobs", &jobs, "cron=it", |j| j.len() == 2).await;
}
