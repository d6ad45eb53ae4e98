use crate::cluster;
use crate::support::{EXIT, HOLD, World, until_gone, until_list, until_object};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// A Job whose pods end as `exit` says, or never when it is empty.
fn job(name: &str, exit: &str, spec: Value) -> Value {
    let mut job = json!({ "metadata": { "name": name }, "spec": { "template": {
        "metadata": { "labels": { "app": name } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } });
    if !exit.is_empty() {
        job["spec"]["template"]["metadata"]["annotations"] = json!({ EXIT: exit });
    }
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

fn status(job: &Job) -> JobStatus {
    job.status.clone().unwrap_or_default()
}

/// The true conditions with their reasons.
fn conditions(job: &Job) -> Vec<(String, String)> {
    let all = status(job).conditions.unwrap_or_default();
    let stand = all.into_iter().filter(|c| c.status == "True");
    stand.map(|c| (c.type_, c.reason.unwrap_or_default())).collect()
}

fn ended(job: &Job, type_: &str) -> bool {
    conditions(job).iter().any(|c| c.0 == type_)
}

fn held(pods: &[Pod]) -> usize {
    pods.iter().filter(|p| p.finalizers().iter().any(|f| f == TRACKING)).count()
}

async fn run(world: &World, job: Value, end: &str) -> Job {
    let jobs: Api<Job> = world.in_namespace("default");
    let name = job["metadata"]["name"].as_str().unwrap().to_owned();
    world.create(&jobs, job).await;
    until_object(end, &jobs, &name, |j| ended(j, end)).await
}

#[tokio::test]
async fn so_many_succeed_and_every_end_is_counted_once() {
    let world = cluster().await;
    let done = run(&world, job("sum", "0", json!({ "completions": 7, "parallelism": 3 })), "Complete").await;
    let status = status(&done);
    assert_eq!((status.succeeded, status.failed, status.active), (Some(7), None, None));
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
    assert!(status.completion_time.is_some() && status.start_time.is_some());
    let reasons = [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")];
    assert_eq!(conditions(&done), reasons.map(|(t, r)| (t.to_owned(), r.to_owned())));
    let pods =
        until_list("seven pods", &world.in_namespace::<Pod>("default"), "app=sum", |p| p.len() == 7).await;
    assert_eq!(held(&pods), 0);
}

#[tokio::test]
async fn too_many_failures_end_a_job() {
    let world = cluster().await;
    let failed = run(&world, job("bad", "1", json!({ "backoffLimit": 0 })), "Failed").await;
    assert_eq!(status(&failed).failed, Some(1));
    assert_eq!(conditions(&failed)[1].1, "BackoffLimitExceeded");

    let rules =
        json!({ "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }] });
    let spec = json!({ "completions": 4, "parallelism": 1, "podFailurePolicy": rules });
    let failed = run(&world, job("policy", "42", spec), "Failed").await;
    assert_eq!(conditions(&failed)[1].1, "PodFailurePolicy");
    let message = status(&failed).conditions.unwrap()[1].message.clone().unwrap();
    assert!(message.starts_with("Container c for pod default/policy-"), "{message}");
    assert!(message.ends_with("failed with exit code 42 matching FailJob rule at index 0"), "{message}");

    let spec = json!({ "activeDeadlineSeconds": 1 });
    let failed = run(&world, job("slow", "", spec), "Failed").await;
    assert_eq!(conditions(&failed)[1].1, "DeadlineExceeded");
    until_list("no pods", &world.in_namespace::<Pod>("default"), "app=slow", <[Pod]>::is_empty).await;
}

#[tokio::test]
async fn indexes_have_names_and_limits_of_their_own() {
    let world = cluster().await;
    let pods = world.in_namespace::<Pod>("default");
    let spec = json!({ "completions": 5, "parallelism": 5, "completionMode": "Indexed" });
    let done = run(&world, job("all", "0", spec.clone()), "Complete").await;
    assert_eq!((status(&done).completed_indexes.as_deref(), status(&done).succeeded), (Some("0-4"), Some(5)));
    let made = until_list("five pods and no more", &pods, "app=all", |p| p.len() == 5).await;
    let events: Api<k8s_openapi::api::core::v1::Event> = world.in_namespace("default");
    let told = until_list("the end", &events, "", |events| {
        events.iter().any(|e| e.reason.as_deref() == Some("Completed"))
    });
    let doubled = told.await.into_iter().filter(|e| e.reason.as_deref() == Some("SuccessfulDelete"));
    assert_eq!(doubled.map(|e| e.message.unwrap_or_default()).collect::<Vec<_>>(), [""; 0]);
    let second = made.iter().find(|p| p.name_any().starts_with("all-1-")).unwrap();
    let pod_spec = second.spec.as_ref().unwrap();
    assert_eq!(pod_spec.hostname.as_deref(), Some("all-1"));
    let env = &pod_spec.containers[0].env.as_ref().unwrap()[0];
    assert_eq!(env.name, "JOB_COMPLETION_INDEX");
    assert_eq!(second.labels()["batch.kubernetes.io/job-completion-index"], "1");

    let mut limited = spec.clone();
    limited["backoffLimitPerIndex"] = json!(0);
    let failed = run(&world, job("some", "1@1,3", limited.clone()), "Failed").await;
    let end = status(&failed);
    assert_eq!(
        (end.completed_indexes.as_deref(), end.failed_indexes.as_deref()),
        (Some("0,2,4"), Some("1,3"))
    );
    assert_eq!((end.succeeded, end.failed), (Some(3), Some(2)));
    assert_eq!(conditions(&failed)[1].1, "FailedIndexes");

    limited["maxFailedIndexes"] = json!(1);
    limited["parallelism"] = json!(2);
    let failed = run(&world, job("max", "1@0,1,2,3,4", limited), "Failed").await;
    assert_eq!(conditions(&failed)[1].1, "MaxFailedIndexesExceeded");

    let mut early = spec;
    early["successPolicy"] = json!({ "rules": [{ "succeededIndexes": "0,2" }] });
    early["backoffLimit"] = json!(20);
    let done = run(&world, job("early", "1@1,3,4", early), "Complete").await;
    assert_eq!(conditions(&done)[1].1, "SuccessPolicy");
}

#[tokio::test]
async fn a_suspended_job_has_no_pods_until_it_is_resumed() {
    let world = cluster().await;
    let (jobs, pods) = (world.in_namespace::<Job>("default"), world.in_namespace::<Pod>("default"));
    world
        .create(&jobs, job("wait", "", json!({ "suspend": true, "parallelism": 2, "completions": 2 })))
        .await;
    let waits = until_object("suspended", &jobs, "wait", |j| ended(j, "Suspended")).await;
    assert_eq!((status(&waits).start_time, status(&waits).active), (None, None));
    let patch = |suspend: bool| Patch::Merge(json!({ "spec": { "suspend": suspend } }));
    jobs.patch("wait", &PatchParams::default(), &patch(false)).await.unwrap();
    let runs = until_object("running", &jobs, "wait", |j| status(j).active == Some(2)).await;
    assert!(status(&runs).start_time.is_some() && !ended(&runs, "Suspended"));
    jobs.patch("wait", &PatchParams::default(), &patch(true)).await.unwrap();
    let again = until_object("suspended again", &jobs, "wait", |j| {
        ended(j, "Suspended") && status(j).active.is_none()
    })
    .await;
    assert_eq!(status(&again).start_time, None, "its clock stands");
    until_list("no pods", &pods, "app=wait", <[Pod]>::is_empty).await;
    let none = |j: &Job| status(j).terminating == Some(0);
    let waits = until_object("all are gone", &jobs, "wait", none).await;
    assert_eq!(status(&waits).failed, None, "who was sent away did not fail");
}

#[tokio::test]
async fn pods_that_are_too_many_go_and_do_not_count_as_failed() {
    let world = cluster().await;
    let (jobs, pods) = (world.in_namespace::<Job>("default"), world.in_namespace::<Pod>("default"));
    let running = |count: usize| move |all: &[Pod]| all.len() == count;
    for (name, spec, fewer) in [
        ("plain", json!({ "completions": 4 }), json!({ "parallelism": 1 })),
        (
            "elastic",
            json!({ "completions": 4, "completionMode": "Indexed" }),
            json!({ "parallelism": 1, "completions": 1 }),
        ),
    ] {
        let mut spec = spec;
        (spec["parallelism"], spec["backoffLimit"]) = (json!(4), json!(0));
        world.create(&jobs, job(name, "", spec)).await;
        let label = &format!("app={name}");
        until_list("four", &pods, label, running(4)).await;
        let patch = Patch::Merge(json!({ "spec": fewer }));
        jobs.patch(name, &PatchParams::default(), &patch).await.unwrap();
        let left = until_list("one", &pods, label, running(1)).await;
        let quiet = |j: &Job| status(j).active == Some(1) && status(j).terminating == Some(0);
        let job = until_object("the others are gone", &jobs, name, quiet).await;
        assert_eq!((status(&job).failed, conditions(&job)), (None, Vec::new()), "{name}");
        assert_eq!(held(&left), 1);
    }
}

#[tokio::test]
async fn orphans_are_let_go_and_old_jobs_removed() {
    let world = cluster().await;
    let (jobs, pods) = (world.in_namespace::<Job>("default"), world.in_namespace::<Pod>("default"));
    world.create(&jobs, job("left", "", json!({ "parallelism": 2, "completions": 2 }))).await;
    until_object("running", &jobs, "left", |j| status(j).active == Some(2)).await;
    jobs.delete(
        "left",
        &DeleteParams {
            propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
            ..DeleteParams::default()
        },
    )
    .await
    .unwrap();
    until_list("free pods", &pods, "app=left", |p| p.len() == 2 && held(p) == 0).await;

    // A finished Job holds none of its pods.
    run(&world, job("over", "0", json!({})), "Complete").await;
    let its = until_list("its pod", &pods, "app=over", |p| p.len() == 1 && held(p) == 0).await;
    let again = json!({ "metadata": { "finalizers": [TRACKING] } });
    let marked = pods.patch(&its[0].name_any(), &PatchParams::default(), &Patch::Merge(again)).await.unwrap();
    assert_eq!(held(std::slice::from_ref(&marked)), 1);
    until_list("let go again", &pods, "app=over", |p| p.len() == 1 && held(p) == 0).await;

    // Nobody may see it finished: times are of whole seconds, so a second may be short.
    world.create(&jobs, job("short", "0", json!({ "ttlSecondsAfterFinished": 1 }))).await;
    until_gone("the finished job", &jobs, "short").await;
    let events: Api<k8s_openapi::api::core::v1::Event> = world.in_namespace("default");
    until_list("it had ended well", &events, "", |events| {
        let of = |e: &k8s_openapi::api::core::v1::Event| e.involved_object.name.as_deref() == Some("short");
        events.iter().any(|e| of(e) && e.reason.as_deref() == Some("Completed"))
    })
    .await;
    until_list("its pods", &pods, "app=short", <[Pod]>::is_empty).await;
}

/// Nobody but the collector of pods will ever say how these ended.
#[tokio::test]
async fn a_namespace_goes_with_jobs_whose_pods_never_ran() {
    let world = cluster().await;
    let namespaces: Api<Namespace> = Api::all(world.admin());
    world.create(&namespaces, json!({ "metadata": { "name": "idle" } })).await;
    let (jobs, pods) = (world.in_namespace::<Job>("idle"), world.in_namespace::<Pod>("idle"));
    for (name, policy) in [("any", "TerminatingOrFailed"), ("failed", "Failed")] {
        let more = json!({ "parallelism": 2, "completions": 2, "podReplacementPolicy": policy });
        let mut job = job(name, "", more);
        job["spec"]["template"]["metadata"]["annotations"] = json!({ HOLD: "x" });
        world.create(&jobs, job).await;
    }
    until_list("four pods that are counted", &pods, "", |p| p.len() == 4 && held(p) == 4).await;
    namespaces.delete("idle", &DeleteParams::default()).await.unwrap();
    until_gone("the namespace", &namespaces, "idle").await;
}

#[tokio::test]
async fn what_becomes_of_jobs_is_counted() {
    let world = cluster().await;
    run(&world, job("sum", "0", json!({ "completions": 3, "parallelism": 3 })), "Complete").await;
    let indexed = json!({ "completions": 2, "completionMode": "Indexed", "backoffLimit": 0 });
    run(&world, job("bad", "1@1", indexed), "Failed").await;
    for sample in [
        "job_controller_jobs_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\",reason=\"CompletionsReached\"} 1",
        "job_controller_jobs_finished_total{completion_mode=\"Indexed\",result=\"failed\",reason=\"BackoffLimitExceeded\"} 1",
        "job_controller_job_pods_finished_total{completion_mode=\"NonIndexed\",result=\"succeeded\"} 3",
        "job_controller_job_pods_finished_total{completion_mode=\"NonIndexed\",result=\"failed\"} 0",
        "job_controller_job_pods_finished_total{completion_mode=\"Indexed\",result=\"failed\"} 1",
        "job_controller_job_syncs_total{completion_mode=\"NonIndexed\",result=\"success\",action=\"pods_created\"} 1",
        "job_controller_job_sync_duration_seconds_bucket{completion_mode=\"NonIndexed\",result=\"success\",action=\"pods_created\",le=\"65.536\"} 1",
        "job_controller_job_finished_indexes_total{status=\"succeeded\",backoffLimit=\"global\"} 1",
        "job_controller_job_pods_creation_total{reason=\"new\",status=\"succeeded\"} 5",
        "job_controller_terminated_pods_tracking_finalizer_total{event=\"add\"} 5",
        "job_controller_terminated_pods_tracking_finalizer_total{event=\"delete\"} 5",
    ] {
        world.until_counted(sample).await;
    }
}

#[tokio::test]
async fn what_rules_say_of_failures_and_who_else_runs_jobs_is_counted() {
    let world = cluster().await;
    let rules =
        json!({ "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [7] } }] });
    run(&world, job("ruled", "7", json!({ "podFailurePolicy": rules })), "Failed").await;
    let by_index = json!({ "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0 });
    run(&world, job("indexed", "1@1", by_index), "Failed").await;
    let jobs: Api<Job> = world.in_namespace("default");
    world.create(&jobs, job("foreign", "", json!({ "managedBy": "example.com/other" }))).await;
    for sample in [
        "job_controller_pod_failures_handled_by_failure_policy_total{action=\"FailJob\"} 1",
        "job_controller_job_finished_indexes_total{status=\"succeeded\",backoffLimit=\"perIndex\"} 1",
        "job_controller_job_finished_indexes_total{status=\"failed\",backoffLimit=\"perIndex\"} 1",
        "job_controller_jobs_by_external_controller_total{controller_name=\"example.com/other\"} 1",
    ] {
        world.until_counted(sample).await;
    }
}

#[tokio::test]
async fn pods_are_made_anew_once_those_that_go_have_ended() {
    let world = cluster().await;
    let (jobs, pods) = (world.in_namespace::<Job>("default"), world.in_namespace::<Pod>("default"));
    let more = json!({ "parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed" });
    let mut job = job("held", "", more);
    job["spec"]["template"]["metadata"] = json!({ "labels": { "app": "held" },
        "annotations": { HOLD: "x" }, "finalizers": ["example.com/keep"] });
    world.create(&jobs, job).await;
    let made = until_list("two pods", &pods, "", |p| p.len() == 2).await;
    for pod in &made {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }
    // Nobody says yet that they have failed.
    let going =
        |j: &Job| (status(j).terminating, status(j).active, status(j).failed) == (Some(2), None, None);
    until_object("both on their way", &jobs, "held", going).await;
    for pod in &made {
        let failed = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &failed).await.unwrap();
    }
    let anew =
        |j: &Job| (status(j).terminating, status(j).active, status(j).failed) == (Some(0), Some(2), Some(2));
    until_object("two others", &jobs, "held", anew).await;
    for sample in [
        "job_controller_job_pods_creation_total{reason=\"new\",status=\"succeeded\"} 2",
        "job_controller_job_pods_creation_total{reason=\"recreate_failed\",status=\"succeeded\"} 2",
    ] {
        world.until_counted(sample).await;
    }
}
