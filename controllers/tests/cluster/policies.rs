//! Jobs that end by policies: which indexes must succeed, how many may fail, and what a failure means. The flows are those
//! of the conformance tests of sig-apps.

use crate::cluster;
use crate::raw::{Kind, Raw, condition};
use crate::support::{EXIT, World};
use serde_json::{Value, json};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn start() -> (World, Raw) {
    let world = cluster().await;
    let raw = Raw::of(&world);
    (world, raw)
}

/// An Indexed Job; its pods run until somebody ends them, or end as `exit` says.
fn indexed(name: &str, exit: &str, completions: usize, more: Value) -> Value {
    let mut pod = json!({ "metadata": { "labels": { "of": name }, "annotations": {} },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "a" }] } });
    if !exit.is_empty() {
        pod["metadata"]["annotations"][EXIT] = json!(exit);
    }
    let mut spec = json!({ "completions": completions, "parallelism": completions, "completionMode": "Indexed",
        "template": pod });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn is(type_: &'static str) -> impl Fn(&Value) -> bool {
    move |job: &Value| condition(job, type_)["status"] == "True"
}

/// The job's pods, once `count` of them run.
async fn running(raw: &Raw, job: &str, count: usize) -> Vec<Value> {
    let run =
        |l: &Value| items(l).len() == count && items(l).iter().all(|p| p["status"]["phase"] == "Running");
    let list = raw.until("they run", &format!("{PODS}?labelSelector=of%3D{job}"), run).await;
    items(&list).to_vec()
}

async fn succeed(raw: &Raw, pods: &[Value], index: &str) {
    let of = |p: &&Value| p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == index;
    let name = pods.iter().find(of).unwrap()["metadata"]["name"].as_str().unwrap();
    let path = format!("{PODS}/{name}/status");
    raw.patch(Kind::Merge, &path, json!({ "status": { "phase": "Succeeded" } })).await;
}

/// Ends the Job by its policy, and waits until nothing of it runs any more.
async fn ended_by_policy(raw: &Raw, name: &str) -> Value {
    let job = raw.until("complete", &format!("{JOBS}/{name}"), is("Complete")).await;
    for type_ in ["SuccessCriteriaMet", "Complete"] {
        assert_eq!(condition(&job, type_)["reason"], "SuccessPolicy", "{job}");
    }
    let status = &job["status"];
    assert!(status["completionTime"].is_string() && status["active"].is_null(), "{job}");
    assert_eq!((&status["terminating"], &status["ready"]), (&json!(0), &json!(0)), "{job}");
    job
}

#[tokio::test]
async fn a_job_succeeds_with_as_many_indexes_as_its_policy_asks_for() {
    let (_world, raw) = start().await;
    let policy = json!({ "successPolicy": { "rules": [{ "succeededCount": 1 }] } });
    raw.post(JOBS, indexed("count", "", 3, policy)).await;
    succeed(&raw, &running(&raw, "count", 3).await, "1").await;
    let job = ended_by_policy(&raw, "count").await;
    assert_eq!((&job["status"]["completedIndexes"], &job["status"]["succeeded"]), (&json!("1"), &json!(1)));
    assert_eq!(condition(&job, "Complete")["message"], "Matched rules at index 0");
}

#[tokio::test]
async fn a_job_succeeds_with_the_indexes_that_its_policy_names() {
    let (_world, raw) = start().await;
    let rules = json!([{ "succeededIndexes": "2", "succeededCount": 1 }, { "succeededIndexes": "0" }]);
    raw.post(JOBS, indexed("named", "", 3, json!({ "successPolicy": { "rules": rules } }))).await;
    let pods = running(&raw, "named", 3).await;
    succeed(&raw, &pods, "1").await;
    raw.until("one is not the one", &format!("{JOBS}/named"), |j| j["status"]["completedIndexes"] == "1")
        .await;
    assert!(!is("SuccessCriteriaMet")(&raw.get(&format!("{JOBS}/named")).await));
    succeed(&raw, &pods, "0").await;
    let job = ended_by_policy(&raw, "named").await;
    assert_eq!(job["status"]["completedIndexes"], "0,1");
    assert_eq!(condition(&job, "Complete")["message"], "Matched rules at index 1");
}

#[tokio::test]
async fn all_indexes_may_be_what_a_policy_asks_for() {
    let (_world, raw) = start().await;
    let policy = json!({ "successPolicy": { "rules": [{ "succeededCount": 2 }] } });
    raw.post(JOBS, indexed("all", "0", 2, policy)).await;
    let job = ended_by_policy(&raw, "all").await;
    assert_eq!((&job["status"]["completedIndexes"], &job["status"]["succeeded"]), (&json!("0,1"), &json!(2)));
}

#[tokio::test]
async fn an_index_fails_for_good_by_a_rule_and_is_tried_again_without() {
    let (_world, raw) = start().await;
    let rule = json!({ "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [42] } });
    let policies = json!({ "backoffLimitPerIndex": 5, "podFailurePolicy": { "rules": [rule] } });
    raw.post(JOBS, indexed("rule", "42@0", 2, policies)).await;
    let job = raw.until("failed", &format!("{JOBS}/rule"), is("Failed")).await;
    let status = &job["status"];
    assert_eq!((&status["failedIndexes"], &status["completedIndexes"]), (&json!("0"), &json!("1")));
    assert_eq!((&status["failed"], &status["succeeded"]), (&json!(1), &json!(1)), "{job}");
    for type_ in ["FailureTarget", "Failed"] {
        assert_eq!(condition(&job, type_)["reason"], "FailedIndexes", "{job}");
        assert_eq!(condition(&job, type_)["message"], "Job has failed indexes");
    }
}

#[tokio::test]
async fn too_many_failed_indexes_end_the_others() {
    let (_world, raw) = start().await;
    let limits = json!({ "backoffLimitPerIndex": 0, "maxFailedIndexes": 1 });
    raw.post(JOBS, indexed("max", "", 4, limits)).await;
    let pods = running(&raw, "max", 4).await;
    for pod in &pods[..2] {
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        raw.patch(Kind::Merge, &path, json!({ "status": { "phase": "Failed" } })).await;
    }
    let job = raw.until("failed", &format!("{JOBS}/max"), is("Failed")).await;
    assert_eq!(condition(&job, "Failed")["reason"], "MaxFailedIndexesExceeded", "{job}");
    assert_eq!(
        condition(&job, "Failed")["message"],
        "Job has exceeded the specified maximal number of failed indexes"
    );
    // Those that ran are ended and counted as failed; their indexes are neither failed nor completed.
    let status = &job["status"];
    assert_eq!((&status["failed"], &status["active"]), (&json!(4), &Value::Null), "{job}");
    assert!(status["completedIndexes"].is_null(), "{job}");
}
