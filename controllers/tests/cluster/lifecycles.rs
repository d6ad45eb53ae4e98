//! What clients do with workloads besides making them: status and scale by hand, labels, collections. The flows are those
//! of the conformance tests of sig-apps.

use crate::cluster;
use crate::raw::{Kind, Raw, condition};
use crate::support::World;
use serde_json::{Value, json};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";

fn template(name: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "c", "image": "a" }] } })
}

fn workload(name: &str, replicas: i32) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": name } }, "spec": { "replicas": replicas,
        "selector": { "matchLabels": { "app": name } }, "template": template(name) } })
}

fn daemon(name: &str) -> Value {
    let mut set = workload(name, 0);
    set["spec"].as_object_mut().unwrap().remove("replicas");
    set
}

fn job(name: &str) -> Value {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = json!("Never");
    json!({ "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "parallelism": 2, "completions": 4, "template": template } })
}

async fn nodes(raw: &Raw, count: usize) {
    for i in 0..count {
        raw.post("/api/v1/nodes", json!({ "metadata": { "name": format!("n{i}") } })).await;
        let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": jiff::Timestamp::now() });
        let status = json!({ "status": { "conditions": [ready] } });
        raw.patch(Kind::Strategic, &format!("/api/v1/nodes/n{i}/status"), status).await;
    }
}

async fn start() -> (World, Raw) {
    let world = cluster().await;
    let raw = Raw::of(&world);
    (world, raw)
}

#[tokio::test]
async fn a_deployment_lives_as_its_clients_say() {
    let (_world, raw) = start().await;
    let path = &format!("{APPS}/deployments/web");
    let done = |size: i64| {
        move |d: &Value| {
            let status = &d["status"];
            status["readyReplicas"] == size
                && status["updatedReplicas"] == size
                && status["unavailableReplicas"].is_null()
                && status["observedGeneration"] == d["metadata"]["generation"]
        }
    };
    let first = raw.post(&format!("{APPS}/deployments"), workload("web", 2)).await;
    raw.until("two replicas", path, done(2)).await;
    let change = json!({ "metadata": { "labels": { "test": "patched" } }, "spec": { "replicas": 1, "template": {
        "spec": { "terminationGracePeriodSeconds": 2, "containers": [{ "name": "c", "image": "b" }] } } } });
    raw.patch(Kind::Strategic, path, change).await;
    raw.until("one replica", path, done(1)).await;
    // Without a resourceVersion: whatever is there is replaced.
    let mut replaced = first;
    let metadata = replaced["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata["labels"]["test"] = json!("updated");
    replaced["spec"]["template"]["spec"]["containers"][0]["image"] = json!("c");
    raw.put(path, &replaced).await;
    raw.until("two replicas again", path, done(2)).await;
    // A status carries no labels.
    let status = json!({ "metadata": { "labels": { "test": "patched-status" } },
        "status": { "readyReplicas": 0, "availableReplicas": 0 } });
    raw.patch(Kind::Strategic, &format!("{path}/status"), status).await;
    let read = raw.get(&format!("{path}/status")).await;
    assert_eq!(read["metadata"]["labels"]["test"], "updated");
    raw.until("the status is put right", path, done(2)).await;
    raw.delete(&format!("{APPS}/deployments?labelSelector=app%3Dweb")).await;
    raw.until_gone(path).await;
    raw.until_count("no pods", &format!("{CORE}/pods?labelSelector=app%3Dweb"), 0).await;
}

#[tokio::test]
async fn conditions_that_others_write_stay() {
    let (_world, raw) = start().await;
    nodes(&raw, 1).await;
    for (path, object, touch) in [
        (format!("{APPS}/deployments"), workload("d", 1), json!({ "spec": { "replicas": 2 } })),
        (format!("{APPS}/replicasets"), workload("r", 1), json!({ "spec": { "replicas": 2 } })),
        (format!("{APPS}/statefulsets"), workload("s", 1), json!({ "spec": { "replicas": 2 } })),
        (format!("{APPS}/daemonsets"), daemon("n"), json!({ "spec": { "minReadySeconds": 1 } })),
        (format!("{BATCH}/jobs"), job("j"), json!({ "spec": { "parallelism": 1 } })),
    ] {
        let made = raw.post(&path, object).await;
        let path = format!("{path}/{}", made["metadata"]["name"].as_str().unwrap());
        raw.until("a status", &path, |o| o["status"].as_object().is_some_and(|s| s.len() > 2)).await;
        let status = format!("{path}/status");
        let mine = json!({ "type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set from e2e test" });
        raw.update(&status, |o| {
            if o["status"]["conditions"].is_null() {
                o["status"]["conditions"] = json!([]);
            }
            o["status"]["conditions"].as_array_mut().unwrap().push(mine.clone());
        })
        .await;
        raw.patch(Kind::Merge, &path, touch).await;
        let observed = |o: &Value| {
            let generation = &o["status"]["observedGeneration"];
            generation.is_null() || *generation == o["metadata"]["generation"]
        };
        let seen = raw.until("the change is noticed", &path, observed).await;
        assert_eq!(condition(&seen, "StatusUpdate")["reason"], "E2E", "{path}");
        // A merge patch takes all the others away; the controller brings its own back.
        let patched = json!({ "status": { "conditions": [{ "type": "StatusPatched", "status": "True" }] } });
        let patched = raw.patch(Kind::Merge, &status, patched).await;
        assert_eq!(condition(&patched, "StatusPatched")["status"], "True", "{path}");
        assert!(condition(&patched, "StatusUpdate").is_null(), "{path}");
        let read = raw.get(&status).await;
        assert_eq!(read["metadata"]["uid"], made["metadata"]["uid"]);
    }
    raw.until("its own condition is back", &format!("{APPS}/deployments/d"), |d| {
        condition(d, "Available")["status"] == "True" && condition(d, "StatusPatched")["status"] == "True"
    })
    .await;
}

#[tokio::test]
async fn sizes_are_read_and_written_as_scales() {
    let (_world, raw) = start().await;
    let rc = json!({ "metadata": { "name": "c" }, "spec": { "replicas": 1, "selector": { "app": "c" }, "template": template("c") } });
    for (path, object) in [
        (format!("{APPS}/deployments"), workload("d", 1)),
        (format!("{APPS}/replicasets"), workload("r", 1)),
        (format!("{APPS}/statefulsets"), workload("s", 1)),
        (format!("{CORE}/replicationcontrollers"), rc),
    ] {
        let made = raw.post(&path, object).await;
        let name = made["metadata"]["name"].as_str().unwrap();
        let scale = format!("{path}/{name}/scale");
        let mut got = raw.until("one runs", &scale, |s| s["status"]["replicas"] == 1).await;
        assert_eq!((&got["kind"], &got["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
        assert_eq!(got["status"]["selector"], format!("app={name}"));
        got["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        got["spec"]["replicas"] = json!(2);
        assert_eq!(raw.put(&scale, &got).await["spec"]["replicas"], 2);
        raw.until("two run", &scale, |s| s["status"]["replicas"] == 2).await;
        // As Go's client marshals a patch with the type.
        let body = json!({ "metadata": { "creationTimestamp": null }, "spec": { "replicas": 4 }, "status": { "replicas": 0 } });
        raw.patch(Kind::Strategic, &scale, body).await;
        raw.until("four run", &scale, |s| s["status"]["replicas"] == 4).await;
        assert_eq!(raw.get(&format!("{path}/{name}")).await["spec"]["replicas"], 4);
    }
}

#[tokio::test]
async fn a_replication_controller_lives_as_its_clients_say() {
    let (_world, raw) = start().await;
    let (all, path) =
        (format!("{CORE}/replicationcontrollers"), &format!("{CORE}/replicationcontrollers/rc"));
    let labels = json!({ "static": "true" });
    let mut template = template("rc");
    template["metadata"]["labels"] = labels.clone();
    let spec = json!({ "replicas": 1, "selector": labels, "template": template });
    raw.post(&all, json!({ "metadata": { "name": "rc", "labels": labels }, "spec": spec })).await;
    let runs = |count: i64| {
        move |rc: &Value| rc["status"]["readyReplicas"] == count && rc["status"]["replicas"] == count
    };
    raw.until("one replica", path, runs(1)).await;
    let body = json!({ "metadata": { "creationTimestamp": null, "labels": { "test": "patched" } }, "spec": {}, "status": { "replicas": 0 } });
    assert_eq!(raw.patch(Kind::Strategic, path, body).await["metadata"]["labels"]["test"], "patched");
    let zero = json!({ "status": { "readyReplicas": 0, "availableReplicas": 0 } });
    let patched = raw.patch(Kind::Strategic, &format!("{path}/status"), zero).await;
    assert!(patched["status"]["readyReplicas"].as_i64().unwrap_or(0) == 0, "{patched}");
    raw.until("put right", path, runs(1)).await;
    raw.patch(Kind::Strategic, &format!("{path}/scale"), json!({ "spec": { "replicas": 2 } })).await;
    raw.until("two replicas", path, runs(2)).await;
    raw.update(&format!("{path}/status"), |rc| rc["status"]["availableReplicas"] = json!(1)).await;
    raw.until("put right again", path, |rc| rc["status"]["availableReplicas"] == 2).await;
    raw.until_count("in all namespaces", "/api/v1/replicationcontrollers?labelSelector=static%3Dtrue", 1)
        .await;
    raw.delete(&format!("{all}?labelSelector=static%3Dtrue")).await;
    raw.until_gone(path).await;
}

#[tokio::test]
async fn a_refusal_shows_and_goes_with_its_cause() {
    let (_world, raw) = start().await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "2" } } });
    raw.post(&format!("{CORE}/resourcequotas"), quota).await;
    raw.until("the quota counts", &format!("{CORE}/resourcequotas/q"), |q| {
        q["status"]["hard"]["pods"] == "2"
    })
    .await;
    let spec = json!({ "replicas": 3, "selector": { "app": "c" }, "template": template("c") });
    raw.post(&format!("{CORE}/replicationcontrollers"), json!({ "metadata": { "name": "c" }, "spec": spec }))
        .await;
    raw.post(&format!("{APPS}/replicasets"), workload("r", 3)).await;
    let (rc, rs) = (format!("{CORE}/replicationcontrollers/c"), format!("{APPS}/replicasets/r"));
    for path in [&rc, &rs] {
        let failed = raw.until("a failure", path, |o| !condition(o, "ReplicaFailure").is_null()).await;
        let condition = condition(&failed, "ReplicaFailure");
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("FailedCreate")));
        assert!(condition["message"].as_str().unwrap().contains("exceeded quota: q"), "{condition}");
    }
    for path in [&rc, &rs] {
        raw.update(path, |o| o["spec"]["replicas"] = json!(0)).await;
        raw.until("no failure any more", path, |o| condition(o, "ReplicaFailure").is_null()).await;
    }
}

#[tokio::test]
async fn revisions_of_a_daemon_set_are_written_by_hand_too() {
    let (_world, raw) = start().await;
    nodes(&raw, 2).await;
    raw.post(&format!("{APPS}/daemonsets"), daemon("log")).await;
    let (path, all) = (&format!("{APPS}/daemonsets/log"), format!("{APPS}/controllerrevisions"));
    raw.until("two daemons", path, |d| d["status"]["numberReady"] == 2).await;
    let of = &format!("{all}?labelSelector=app%3Dlog");
    let first = raw.until_count("one revision", of, 1).await["items"][0].clone();
    let name = first["metadata"]["name"].as_str().unwrap().to_owned();
    let patch = json!({ "metadata": { "labels": { "mark": "patched" } } });
    assert_eq!(
        raw.patch(Kind::Strategic, &format!("{all}/{name}"), patch).await["metadata"]["labels"]["mark"],
        "patched"
    );
    let pods = raw.get(&format!("{CORE}/pods?labelSelector=app%3Dlog")).await["items"].clone();

    let mut twin = first.clone();
    twin["metadata"] = json!({ "name": "log-1234", "ownerReferences": first["metadata"]["ownerReferences"],
        "labels": { "app": "log", "controller-revision-hash": "1234" } });
    twin["revision"] = json!(2);
    raw.post(&all, twin).await;
    // The controller may be first: a second revision of one template is one too many.
    raw.delete(&format!("{all}?fieldSelector=metadata.name%3D{name}")).await;
    raw.until("one is left", of, |l| l["items"].as_array().is_some_and(|i| i.len() == 1)).await;
    raw.update(&format!("{all}/log-1234"), |r| r["metadata"]["labels"]["log-1234"] = json!("updated")).await;
    let patch = json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 1 } } } });
    raw.patch(Kind::Strategic, path, patch).await;
    raw.until_count("two again", of, 2).await;
    raw.delete(&format!("{all}?labelSelector=log-1234%3Dupdated")).await;
    let left = raw.until_count("the newest", of, 1).await;
    assert_eq!(left["items"][0]["revision"], 3);
    let others = |p: &Value| {
        let now = p["items"].as_array().cloned().unwrap_or_default();
        let uid = |p: &Value| p["metadata"]["uid"].clone();
        now.len() == 2 && now.iter().all(|p| !pods.as_array().unwrap().iter().any(|q| uid(q) == uid(p)))
    };
    raw.until("all daemons are new", &format!("{CORE}/pods?labelSelector=app%3Dlog"), others).await;
}

#[tokio::test]
async fn a_second_revision_of_one_template_restarts_nothing() {
    let (_world, raw) = start().await;
    nodes(&raw, 2).await;
    raw.post(&format!("{APPS}/daemonsets"), daemon("log")).await;
    let (path, all) = (&format!("{APPS}/daemonsets/log"), format!("{APPS}/controllerrevisions"));
    raw.until("two daemons", path, |d| d["status"]["numberReady"] == 2).await;
    let of = &format!("{all}?labelSelector=app%3Dlog");
    let mut twin = raw.until_count("one revision", of, 1).await["items"][0].clone();
    let uids = |list: &Value| -> Vec<Value> {
        let mut uids: Vec<Value> =
            list["items"].as_array().unwrap().iter().map(|p| p["metadata"]["uid"].clone()).collect();
        uids.sort_by_key(ToString::to_string);
        uids
    };
    let pods = &format!("{CORE}/pods?labelSelector=app%3Dlog");
    let before = uids(&raw.get(pods).await);
    twin["metadata"] = json!({ "name": "log-1234", "ownerReferences": twin["metadata"]["ownerReferences"],
        "labels": { "app": "log", "controller-revision-hash": "1234" } });
    twin["revision"] = json!(2);
    raw.post(&all, twin).await;
    raw.patch(Kind::Merge, path, json!({ "spec": { "minReadySeconds": 1 } })).await;
    raw.until("one revision is left", of, |l| l["items"].as_array().is_some_and(|i| i.len() == 1)).await;
    let relabelled = |p: &Value| {
        let hash = |p: &Value| p["metadata"]["labels"]["controller-revision-hash"] == "1234";
        p["items"].as_array().is_some_and(|items| items.iter().all(hash))
    };
    let after = raw.until("the pods are of the newer", pods, relabelled).await;
    assert_eq!(uids(&after), before);
    raw.until("all is well", path, |d| {
        d["status"]["updatedNumberScheduled"] == 2
            && d["status"]["observedGeneration"] == d["metadata"]["generation"]
    })
    .await;
}

#[tokio::test]
async fn a_job_lives_as_its_clients_say() {
    let (_world, raw) = start().await;
    let path = &format!("{BATCH}/jobs/j");
    let mut suspended = job("j");
    suspended["spec"]["suspend"] = json!(true);
    suspended["spec"]["template"]["metadata"]["annotations"] = json!({ crate::support::EXIT: "0" });
    raw.post(&format!("{BATCH}/jobs"), suspended).await;
    let patch = json!({ "metadata": { "labels": { "j": "patched" } } });
    assert_eq!(raw.patch(Kind::Strategic, path, patch).await["metadata"]["labels"]["j"], "patched");
    raw.until("ready is known", path, |j| j["status"]["ready"] == 0).await;
    raw.update(path, |j| {
        j["spec"]["suspend"] = json!(false);
        j["metadata"]["annotations"]["updated"] = json!("true");
    })
    .await;
    let done = raw.until("complete", path, |j| condition(j, "Complete")["status"] == "True").await;
    assert_eq!(done["status"]["succeeded"], 4);
    assert_eq!(condition(&done, "SuccessCriteriaMet")["reason"], "CompletionsReached");
    assert_eq!(condition(&done, "Suspended")["reason"], "JobResumed");
    raw.delete(&format!("{BATCH}/jobs?labelSelector=app%3Dj&propagationPolicy=Background")).await;
    raw.until_gone(path).await;
    raw.until_count("no pods", &format!("{CORE}/pods?labelSelector=app%3Dj"), 0).await;
}

#[tokio::test]
async fn a_jobs_pods_are_orphaned_adopted_and_released() {
    let (_world, raw) = start().await;
    raw.post(&format!("{BATCH}/jobs"), job("j")).await;
    let pods = &format!("{CORE}/pods?labelSelector=app%3Dj");
    let two = raw.until_count("two pods", pods, 2).await;
    let name = two["items"][0]["metadata"]["name"].as_str().unwrap();
    let path = &format!("{CORE}/pods/{name}");
    raw.update(path, |p| drop(p["metadata"].as_object_mut().unwrap().remove("ownerReferences"))).await;
    let owned = |p: &Value| p["metadata"]["ownerReferences"][0]["name"] == "j";
    raw.until("adopted", path, owned).await;
    raw.update(path, |p| drop(p["metadata"].as_object_mut().unwrap().remove("labels"))).await;
    let free = raw.until("released", path, |p| p["metadata"]["ownerReferences"].is_null()).await;
    assert!(free["metadata"]["finalizers"].is_null(), "{free}");
}

#[tokio::test]
async fn a_cron_job_is_changed_by_its_clients() {
    let (_world, raw) = start().await;
    let (all, path) = (format!("{BATCH}/cronjobs"), &format!("{BATCH}/cronjobs/tick"));
    let template = job("tick")["spec"].clone();
    let spec = json!({ "schedule": "* */1 * * ?", "concurrencyPolicy": "Allow", "jobTemplate": { "spec": template } });
    raw.post(
        &all,
        json!({ "metadata": { "name": "tick", "labels": { "special-label": "x" } }, "spec": spec }),
    )
    .await;
    raw.until_count("everywhere", "/apis/batch/v1/cronjobs?labelSelector=special-label%3Dx", 1).await;
    let patch = json!({ "metadata": { "annotations": { "patched": "true" } } });
    assert_eq!(raw.patch(Kind::Merge, path, patch).await["metadata"]["annotations"]["patched"], "true");
    let updated = raw.update(path, |c| c["metadata"]["annotations"]["updated"] = json!("true")).await;
    assert_eq!(updated["metadata"]["annotations"]["updated"], "true");
    let at = "2026-01-02T03:04:05Z";
    let status = json!({ "metadata": { "annotations": { "patchedstatus": "true" } }, "status": { "lastScheduleTime": at } });
    let patched = raw.patch(Kind::Merge, &format!("{path}/status"), status).await;
    assert_eq!(patched["status"]["lastScheduleTime"], at);
    assert_eq!(patched["metadata"]["annotations"]["patchedstatus"], "true");
    let read = raw.get(&format!("{path}/status")).await;
    assert_eq!(read["metadata"]["uid"], updated["metadata"]["uid"]);
    raw.delete(path).await;
    raw.until_gone(path).await;
}

#[tokio::test]
async fn a_budget_is_changed_by_its_clients() {
    let (_world, raw) = start().await;
    let all = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let path = &format!("{all}/b");
    let selector = json!({ "matchLabels": { "app": "web" } });
    raw.post(
        all,
        json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 2, "selector": selector } }),
    )
    .await;
    raw.post(&format!("{APPS}/deployments"), workload("web", 3)).await;
    let allows = |count: i64| move |b: &Value| b["status"]["disruptionsAllowed"] == count;
    raw.until("one may go", path, allows(1)).await;
    raw.update(path, |b| b["spec"]["minAvailable"] = json!(3)).await;
    raw.until("none may go", path, allows(0)).await;
    raw.patch(Kind::Strategic, path, json!({ "spec": { "minAvailable": "20%" } })).await;
    raw.until("two may go", path, allows(2)).await;
    let mine = json!({ "status": { "observedGeneration": -1 } });
    raw.patch(Kind::Merge, &format!("{path}/status"), mine).await;
    raw.until("put right", path, |b| b["status"]["observedGeneration"] == b["metadata"]["generation"]).await;
    raw.delete(all).await;
    raw.until_gone(path).await;
}

#[tokio::test]
async fn what_clients_say_of_a_budgets_pods_stays_while_they_are_there() {
    let (_world, raw) = start().await;
    let all = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let path = &format!("{all}/b");
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "p" } } });
    raw.post(all, json!({ "metadata": { "name": "b" }, "spec": spec })).await;
    let mut pod = template("p");
    pod["metadata"]["name"] = json!("p");
    raw.post(&format!("{CORE}/pods"), pod).await;
    let counted = |b: &Value| b["status"]["currentHealthy"] == 1;
    raw.until("the pod counts", path, counted).await;
    let status = &format!("{path}/status");
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    raw.update(status, |b| b["status"]["disruptedPods"] = json!({ "p": now })).await;
    // The pod counts as gone from here on.
    let read = raw.until("it counts as gone", path, |b| b["status"]["currentHealthy"] == 0).await;
    assert_eq!(read["status"]["disruptedPods"]["p"], now.as_str());
    let patch = json!({ "status": { "disruptedPods": null } });
    let patched = raw.patch(Kind::Merge, status, patch).await;
    assert!(patched["status"]["disruptedPods"].as_object().is_none_or(|pods| pods.is_empty()), "{patched}");
    raw.until("it counts again", path, counted).await;
}

#[tokio::test]
async fn an_eviction_waits_for_its_budget_to_allow_it() {
    let (_world, raw) = start().await;
    let all = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let path = &format!("{all}/b");
    let spec = json!({ "minAvailable": 3, "selector": { "matchLabels": { "app": "r" } } });
    raw.post(all, json!({ "metadata": { "name": "b" }, "spec": spec })).await;
    raw.post(&format!("{APPS}/replicasets"), workload("r", 3)).await;
    let of = &format!("{CORE}/pods?labelSelector=app%3Dr");
    let running = |l: &Value| {
        let pods = l["items"].as_array().cloned().unwrap_or_default();
        let there = pods.iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null());
        there.filter(|p| p["status"]["phase"] == "Running").count() == 3 && pods.len() == 3
    };
    let eviction = |list: &Value| {
        let name = list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": name, "namespace": "default" } });
        (format!("{CORE}/pods/{name}/eviction"), body)
    };
    let held_back = |status: kube::core::Status| {
        let causes = status.details.map(|d| d.causes).unwrap_or_default();
        assert!(status.code == 429 && causes[0].reason == "DisruptionBudget", "{causes:?}");
    };
    let (to, body) = eviction(&raw.until("three pods", of, running).await);
    held_back(raw.refused(&to, &body).await);
    raw.update(path, |b| b["spec"]["minAvailable"] = json!(2)).await;
    raw.until("one may go", path, |b| b["status"]["disruptionsAllowed"] == 1).await;
    raw.post(&to, body).await;

    let none = json!({ "spec": { "minAvailable": null, "maxUnavailable": 0 } });
    raw.patch(Kind::Merge, path, none).await;
    let (to, body) = eviction(&raw.until("three pods again", of, running).await);
    held_back(raw.refused(&to, &body).await);
    raw.delete(path).await;
    raw.until_gone(path).await;
    raw.post(&to, body).await;
}

#[tokio::test]
async fn a_replica_set_is_patched_and_goes_with_its_collection() {
    let (_world, raw) = start().await;
    let (all, path) = (format!("{APPS}/replicasets"), &format!("{APPS}/replicasets/r"));
    raw.post(&all, workload("r", 1)).await;
    let ready = |count: i64| move |s: &Value| s["status"]["readyReplicas"] == count;
    raw.until("one", path, ready(1)).await;
    raw.update(&format!("{path}/scale"), |s| s["spec"]["replicas"] = json!(2)).await;
    raw.until("two", path, ready(2)).await;
    // The field with a capital letter is none; the conformance test sends it nonetheless.
    let change = json!({ "metadata": { "labels": { "test-rs": "patched" } }, "spec": { "replicas": 3, "template": {
        "spec": { "TerminationGracePeriodSeconds": 0, "containers": [{ "name": "r", "image": "b" }] } } } });
    let patched = raw.patch(Kind::Strategic, path, change).await;
    assert_eq!(patched["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(2));
    let done = raw.until("three", path, ready(3)).await;
    assert_eq!(done["metadata"]["labels"]["test-rs"], "patched");
    let everywhere = "/apis/apps/v1/replicasets?labelSelector=app%3Dr";
    raw.until_count("in all namespaces", everywhere, 1).await;
    raw.delete(&format!("{all}?labelSelector=app%3Dr")).await;
    raw.until_count("none is left", everywhere, 0).await;
    raw.until_count("nor its pods", &format!("{CORE}/pods?labelSelector=app%3Dr"), 0).await;
}
