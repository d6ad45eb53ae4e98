//! Rollouts and what they find: sets made before them, templates that never work, nodes' pods that shall stay. The flows
//! are those of the conformance tests of sig-apps.

use crate::cluster;
use crate::raw::{Kind, Raw};
use crate::support::{HOLD, World};
use serde_json::{Value, json};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REVISION: &str = "deployment.kubernetes.io/revision";

async fn start() -> (World, Raw) {
    let world = cluster().await;
    let raw = Raw::of(&world);
    (world, raw)
}

fn template(labels: &Value, image: &str) -> Value {
    json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

fn workload(name: &str, replicas: i32, labels: &Value, image: &str, more: Value) -> Value {
    let mut spec = json!({ "replicas": replicas, "selector": { "matchLabels": labels },
        "template": template(labels, image) });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "metadata": { "name": name, "labels": labels }, "spec": spec })
}

fn with_image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } })
}

/// With a template whose pods never start.
fn that_hangs(image: &str) -> Value {
    let mut change = with_image(image);
    change["spec"]["template"]["metadata"] = json!({ "annotations": { HOLD: "true" } });
    change
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

fn rolled_out(replicas: i64) -> impl Fn(&Value) -> bool {
    move |d: &Value| {
        let status = &d["status"];
        let all = ["replicas", "updatedReplicas", "availableReplicas"];
        status["observedGeneration"] == d["metadata"]["generation"]
            && all.iter().all(|field| status[field] == replicas)
    }
}

#[tokio::test]
async fn a_deployment_takes_over_a_set_and_counts_on_from_its_revision() {
    let (_world, raw) = start().await;
    let old = json!({ "app": "d", "pod": "httpd" });
    let mut set = workload("before", 1, &old, "a", json!({}));
    set["metadata"]["annotations"] = json!({ REVISION: "3546342826" });
    raw.post(&format!("{APPS}/replicasets"), set).await;
    raw.until("its pod", &format!("{APPS}/replicasets/before"), |s| s["status"]["readyReplicas"] == 1).await;
    let new = json!({ "app": "d" });
    raw.post(&format!("{APPS}/deployments"), workload("d", 1, &new, "b", json!({}))).await;
    let done = raw.until("rolled out", &format!("{APPS}/deployments/d"), rolled_out(1)).await;
    assert_eq!(done["metadata"]["annotations"][REVISION], "3546342827");
    let before = raw.get(&format!("{APPS}/replicasets/before")).await;
    assert_eq!(before["metadata"]["ownerReferences"][0]["name"], "d");
    assert_eq!(before["spec"]["replicas"], 0);

    raw.patch(
        Kind::Merge,
        &format!("{APPS}/deployments/d"),
        json!({ "spec": { "revisionHistoryLimit": 0 } }),
    )
    .await;
    raw.until_gone(&format!("{APPS}/replicasets/before")).await;
}

#[tokio::test]
async fn a_rollout_that_hangs_is_overtaken_and_scaled_in_proportion() {
    let (_world, raw) = start().await;
    let labels = json!({ "app": "d" });
    let strategy = json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 3, "maxUnavailable": 2 } } });
    let (path, sets) = (&format!("{APPS}/deployments/d"), &format!("{APPS}/replicasets"));
    raw.post(&format!("{APPS}/deployments"), workload("d", 10, &labels, "a", strategy)).await;
    raw.until("ten replicas", path, rolled_out(10)).await;
    raw.patch(Kind::Strategic, path, that_hangs("404")).await;
    let sizes = |wanted: [i64; 2]| {
        move |list: &Value| {
            let mut sizes: Vec<i64> =
                items(list).iter().map(|s| s["spec"]["replicas"].as_i64().unwrap()).collect();
            sizes.sort_unstable();
            sizes == wanted
        }
    };
    raw.until("the rollout's first step", sets, sizes([5, 8])).await;
    raw.patch(Kind::Merge, path, json!({ "spec": { "replicas": 30 } })).await;
    raw.until("both grow by their share", sets, sizes([13, 20])).await;
    // The template of before comes back: the pods that hang go, those that work stay.
    let worked: Vec<Value> = items(&raw.get(PODS).await)
        .iter()
        .filter(|p| p["spec"]["containers"][0]["image"] == "a" && p["status"]["phase"] == "Running")
        .map(|p| p["metadata"]["uid"].clone())
        .collect();
    let mut back = with_image("a");
    back["spec"]["template"]["metadata"] = json!({ "annotations": { HOLD: null } });
    raw.patch(Kind::Strategic, path, back).await;
    let done = raw.until("rolled back", path, rolled_out(30)).await;
    assert_eq!(done["metadata"]["annotations"][REVISION], "3");
    let now: Vec<Value> = items(&raw.get(PODS).await).iter().map(|p| p["metadata"]["uid"].clone()).collect();
    assert!(worked.len() >= 8 && worked.iter().all(|uid| now.contains(uid)), "{worked:?} {now:?}");
}

#[tokio::test]
async fn a_daemon_sets_rollback_restarts_only_what_was_replaced() {
    let (_world, raw) = start().await;
    for i in 0..3 {
        raw.post("/api/v1/nodes", json!({ "metadata": { "name": format!("n{i}") } })).await;
        let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": jiff::Timestamp::now() });
        let status = json!({ "status": { "conditions": [ready] } });
        raw.patch(Kind::Strategic, &format!("/api/v1/nodes/n{i}/status"), status).await;
    }
    let mut set = workload("log", 0, &json!({ "app": "log" }), "a", json!({}));
    set["spec"].as_object_mut().unwrap().remove("replicas");
    raw.post(&format!("{APPS}/daemonsets"), set).await;
    let path = &format!("{APPS}/daemonsets/log");
    raw.until("three daemons", path, |d| d["status"]["numberReady"] == 3).await;
    raw.patch(Kind::Strategic, path, that_hangs("404")).await;
    let hangs = |p: &Value| p["spec"]["containers"][0]["image"] == "404";
    let list = raw
        .until("one is replaced", PODS, |l| {
            items(l).len() == 3 && items(l).iter().filter(|p| hangs(p)).count() == 1
        })
        .await;
    let kept: Vec<Value> =
        items(&list).iter().filter(|p| !hangs(p)).map(|p| p["metadata"]["uid"].clone()).collect();
    let mut back = with_image("a");
    back["spec"]["template"]["metadata"] = json!({ "annotations": { HOLD: null } });
    raw.patch(Kind::Strategic, path, back).await;
    raw.until("three of the old template", path, |d| {
        d["status"]["numberReady"] == 3
            && d["status"]["updatedNumberScheduled"] == 3
            && d["status"]["observedGeneration"] == d["metadata"]["generation"]
    })
    .await;
    let uids: Vec<Value> = items(&raw.get(PODS).await).iter().map(|p| p["metadata"]["uid"].clone()).collect();
    assert!(kept.len() == 2 && kept.iter().all(|uid| uids.contains(uid)), "{kept:?} {uids:?}");
}

async fn set_ready(raw: &Raw, pod: &str, ready: &str) {
    let condition = json!({ "type": "Ready", "status": ready, "lastTransitionTime": jiff::Timestamp::now() });
    let status = json!({ "status": { "conditions": [condition] } });
    raw.patch(Kind::Strategic, &format!("{PODS}/{pod}/status"), status).await;
}

async fn scale(raw: &Raw, path: &str, replicas: i32) {
    raw.patch(Kind::Merge, &format!("{path}/scale"), json!({ "spec": { "replicas": replicas } })).await;
    let seen = |s: &Value| s["status"]["observedGeneration"] == s["metadata"]["generation"];
    raw.until("the new size is seen", path, seen).await;
}

fn ready(count: i64) -> impl Fn(&Value) -> bool {
    move |s: &Value| s["status"]["readyReplicas"].as_i64().unwrap_or(0) == count
}

/// A StatefulSet `ss` of one pod, which is not well, told to have three. Its path.
async fn grown_while_unhealthy(raw: &Raw, more: Value) -> String {
    raw.post(&format!("{APPS}/statefulsets"), workload("ss", 1, &json!({ "app": "ss" }), "a", more)).await;
    let path = format!("{APPS}/statefulsets/ss");
    raw.until("one", &path, ready(1)).await;
    set_ready(raw, "ss-0", "False").await;
    raw.until("none", &path, ready(0)).await;
    scale(raw, &path, 3).await;
    path
}

#[tokio::test]
async fn a_stateful_set_halts_for_an_unhealthy_pod_and_replaces_a_failed_one() {
    let (_world, raw) = start().await;
    let path = &grown_while_unhealthy(&raw, json!({ "serviceName": "ss" })).await;
    assert_eq!(items(&raw.get(PODS).await).len(), 1, "it waits for the first");
    set_ready(&raw, "ss-0", "True").await;
    raw.until("three", path, ready(3)).await;

    let first = raw.get(&format!("{PODS}/ss-0")).await["metadata"]["uid"].clone();
    let failed = json!({ "status": { "phase": "Failed", "reason": "Evicted" } });
    raw.patch(Kind::Merge, &format!("{PODS}/ss-0/status"), failed).await;
    let another = |p: &Value| p["metadata"]["uid"] != first && p["status"]["phase"] == "Running";
    raw.until("another one in its place", &format!("{PODS}/ss-0"), another).await;
    raw.until("three again", path, ready(3)).await;

    for i in 0..3 {
        set_ready(&raw, &format!("ss-{i}"), "False").await;
    }
    raw.until("none is ready", path, ready(0)).await;
    scale(&raw, path, 0).await;
    assert_eq!(items(&raw.get(PODS).await).len(), 3, "nothing goes while nobody is well");
    // Once those before it are well, the last may go as it is.
    set_ready(&raw, "ss-0", "True").await;
    set_ready(&raw, "ss-1", "True").await;
    raw.until_count("nothing is left", PODS, 0).await;
}

#[tokio::test]
async fn a_parallel_stateful_set_does_not_wait_for_the_unhealthy() {
    let (_world, raw) = start().await;
    let more = json!({ "serviceName": "ss", "podManagementPolicy": "Parallel" });
    let path = &grown_while_unhealthy(&raw, more).await;
    raw.until("the others", path, ready(2)).await;
    for i in 1..3 {
        set_ready(&raw, &format!("ss-{i}"), "False").await;
    }
    raw.until("none is ready", path, ready(0)).await;
    scale(&raw, path, 0).await;
    raw.until_count("nothing is left", PODS, 0).await;
    raw.until("nor counted", path, |s| s["status"]["replicas"] == 0).await;
}

#[tokio::test]
async fn a_partition_says_which_pods_are_of_which_revision() {
    let (_world, raw) = start().await;
    let partition = |at: i32| json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": at } });
    let more = json!({ "serviceName": "ss", "updateStrategy": partition(3) });
    raw.post(&format!("{APPS}/statefulsets"), workload("ss", 3, &json!({ "app": "ss" }), "a", more)).await;
    let path = &format!("{APPS}/statefulsets/ss");
    raw.until("three", path, |s| s["status"]["readyReplicas"] == 3).await;
    raw.patch(Kind::Strategic, path, with_image("b")).await;
    let two = |s: &Value| s["status"]["updateRevision"] != s["status"]["currentRevision"];
    let set = raw.until("two revisions", path, two).await;
    let (old, new) = (set["status"]["currentRevision"].clone(), set["status"]["updateRevision"].clone());
    let from = |first: usize| {
        let (old, new) = (old.clone(), new.clone());
        move |list: &Value| {
            let mut pods = items(list);
            pods.sort_by_key(|p| p["metadata"]["name"].to_string());
            pods.len() == 3
                && pods.iter().enumerate().all(|(i, pod)| {
                    let (image, revision) = if i < first { ("a", &old) } else { ("b", &new) };
                    pod["spec"]["containers"][0]["image"] == image
                        && pod["metadata"]["labels"]["controller-revision-hash"] == *revision
                        && pod["status"]["phase"] == "Running"
                })
        }
    };
    raw.until("none is new", PODS, from(3)).await;
    for at in [2, 1, 0] {
        let strategy = json!({ "spec": { "updateStrategy": partition(at) } });
        raw.patch(Kind::Strategic, path, strategy).await;
        raw.until("those from here on", PODS, from(usize::try_from(at).unwrap())).await;
        if at == 2 {
            // Pods that are lost come back as they were.
            for name in ["ss-0", "ss-2"] {
                let uid = raw.get(&format!("{PODS}/{name}")).await["metadata"]["uid"].clone();
                raw.delete(&format!("{PODS}/{name}")).await;
                let another = |p: &Value| p["metadata"]["uid"] != uid && p["status"]["phase"] == "Running";
                raw.until("another in its place", &format!("{PODS}/{name}"), another).await;
            }
            raw.until("the same again", PODS, from(2)).await;
        }
    }
    raw.until("one revision", path, |s| s["status"]["currentRevision"] == new).await;
}

#[tokio::test]
async fn an_exit_code_fails_a_job_at_once_and_an_eviction_does_not_count() {
    let (_world, raw) = start().await;
    let job = |name: &str, exit: &str, rule: Value| {
        let mut pod = template(&json!({ "job": name }), "a");
        pod["metadata"]["annotations"] = json!({ crate::support::EXIT: exit });
        if exit.is_empty() {
            pod["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        pod["spec"]["restartPolicy"] = json!("Never");
        json!({ "metadata": { "name": name }, "spec": { "completions": 2, "parallelism": 2, "backoffLimit": 0,
            "completionMode": "Indexed", "podFailurePolicy": { "rules": [rule] }, "template": pod } })
    };
    let jobs = &format!("{BATCH}/jobs");
    let on_code = json!({ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [3] } });
    raw.post(jobs, job("code", "3@1", on_code)).await;
    let is = |type_: &'static str| move |j: &Value| crate::raw::condition(j, type_)["status"] == "True";
    let failed = raw.until("failed", &format!("{jobs}/code"), is("Failed")).await;
    assert_eq!(crate::raw::condition(&failed, "Failed")["reason"], "PodFailurePolicy");
    let message = crate::raw::condition(&failed, "Failed")["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("failed with exit code 3 matching FailJob rule at index 0"), "{message}");

    let on_eviction =
        json!({ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] });
    raw.post(jobs, job("calm", "", on_eviction)).await;
    let of = &format!("{PODS}?labelSelector=job%3Dcalm");
    let runs = |l: &Value| items(l).len() == 2 && items(l).iter().all(|p| p["status"]["phase"] == "Running");
    let list = raw.until("two run", of, runs).await;
    let name = items(&list)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name, "namespace": "default" } });
    raw.post(&format!("{PODS}/{name}/eviction"), eviction).await;
    // No node has it, so the collector of pods reports its end, as its kubelet would.
    let replaced = |l: &Value| runs(l) && items(l).iter().all(|p| p["metadata"]["name"] != name.as_str());
    let list = raw.until("another in its place", of, replaced).await;
    for pod in items(&list) {
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        raw.patch(Kind::Merge, &path, json!({ "status": { "phase": "Succeeded" } })).await;
    }
    let done = raw.until("complete", &format!("{jobs}/calm"), is("Complete")).await;
    assert!(done["status"]["failed"].as_i64().unwrap_or(0) == 0, "{done}");
    assert_eq!(done["status"]["completedIndexes"], "0,1");
}
