//! Nodes that are small, large, down and gone, and their pods.

use crate::cluster;
use crate::raw::{Kind, Raw, condition};
use crate::support::{World, until_list};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn node(raw: &Raw, name: &str, ready: &str) {
    raw.post("/api/v1/nodes", json!({ "metadata": { "name": name } })).await;
    set_ready(raw, name, ready).await;
}

async fn set_ready(raw: &Raw, name: &str, ready: &str) {
    let condition = json!({ "type": "Ready", "status": ready, "lastHeartbeatTime": jiff::Timestamp::now() });
    let status = json!({ "status": { "conditions": [condition] } });
    raw.patch(Kind::Strategic, &format!("/api/v1/nodes/{name}/status"), status).await;
}

async fn pod(raw: &Raw, name: &str, node: &str, more: Value) -> String {
    let mut spec = json!({ "nodeName": node, "containers": [{ "name": "c", "image": "a" }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    raw.post(PODS, json!({ "metadata": { "name": name, "finalizers": ["example.com/keep"] }, "spec": spec }))
        .await;
    format!("{PODS}/{name}")
}

fn taints(node: &Value) -> Vec<String> {
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    all.iter().map(|t| format!("{}:{}", t["key"].as_str().unwrap(), t["effect"].as_str().unwrap())).collect()
}

async fn start() -> (World, Raw) {
    let world = cluster().await;
    let raw = Raw::of(&world);
    (world, raw)
}

#[tokio::test]
async fn a_node_is_told_how_long_its_copies_are_good_for() {
    let (_world, raw) = start().await;
    node(&raw, "n", "True").await;
    let path = "/api/v1/nodes/n";
    let ttl = |n: &Value| n["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0";
    raw.until("a lifetime", path, ttl).await;
    let wrong = json!({ "metadata": { "annotations": { "node.alpha.kubernetes.io/ttl": "7" } } });
    raw.patch(Kind::Merge, path, wrong).await;
    raw.until("put right", path, ttl).await;
}

#[tokio::test]
async fn a_nodes_former_labels_follow_todays() {
    let (_world, raw) = start().await;
    let labels = json!({ "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "plan9", "kubernetes.io/arch": "arm64" });
    raw.post("/api/v1/nodes", json!({ "metadata": { "name": "n", "labels": labels } })).await;
    raw.until("both", "/api/v1/nodes/n", |n| {
        let labels = &n["metadata"]["labels"];
        labels["beta.kubernetes.io/os"] == "linux" && labels["beta.kubernetes.io/arch"] == "arm64"
    })
    .await;
}

#[tokio::test]
async fn the_pods_of_a_node_that_is_down_are_evicted_with_the_reason() {
    let (world, raw) = start().await;
    node(&raw, "up", "True").await;
    node(&raw, "down", "True").await;
    let now = json!({ "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 }] });
    let soon = pod(&raw, "soon", "down", now).await;
    let later = pod(&raw, "later", "down", json!({})).await;
    set_ready(&raw, "down", "False").await;
    let both = ["node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"];
    raw.until("tainted", "/api/v1/nodes/down", |n| {
        let mut taints = taints(n);
        taints.sort();
        taints == both
    })
    .await;
    let gone = raw.until("evicted", &soon, |p| !p["metadata"]["deletionTimestamp"].is_null()).await;
    let mark = condition(&gone, "DisruptionTarget");
    assert_eq!((&mark["status"], &mark["reason"]), (&json!("True"), &json!("DeletionByTaintManager")));
    assert_eq!(mark["message"], "Taint manager: deleting due to NoExecute taint");
    // Admission lets pods endure it for five minutes.
    assert!(raw.get(&later).await["metadata"]["deletionTimestamp"].is_null());
    let events = world.in_namespace::<Event>("default");
    let told = |all: &[Event]| {
        all.iter().any(|e| e.message.as_deref() == Some("Marking for deletion Pod default/soon"))
    };
    until_list("the event", &events, "", told).await;
    let registered = |all: &[Event]| {
        all.iter().any(|e| e.message.as_deref() == Some("Node up event: Registered Node up in Controller"))
    };
    until_list("the node's event", &events, "", registered).await;
    set_ready(&raw, "down", "True").await;
    raw.until("free again", "/api/v1/nodes/down", |n| taints(n).is_empty()).await;
    world.until_counted("node_collector_evictions_total{zone=\"\"} 1").await;
    world.until_counted("node_collector_zone_size{zone=\"\"} 2").await;
    world.until_counted("node_collector_unhealthy_nodes_in_zone{zone=\"\"} 0").await;
    world.until_counted("node_collector_zone_health{zone=\"\"} 100").await;
    world.until_counted("taint_eviction_controller_pod_deletions_total 1").await;
    world.until_counted("taint_eviction_controller_pod_deletion_duration_seconds_bucket{le=\"240\"} 1").await;
}

#[tokio::test]
async fn nobody_is_evicted_while_every_node_is_down() {
    let (_world, raw) = start().await;
    node(&raw, "a", "True").await;
    node(&raw, "b", "True").await;
    set_ready(&raw, "a", "False").await;
    let has = |n: &Value, effect: &str| taints(n).contains(&format!("node.kubernetes.io/not-ready:{effect}"));
    raw.until("its pods shall go", "/api/v1/nodes/a", |n| has(n, "NoExecute")).await;
    set_ready(&raw, "b", "False").await;
    for name in ["a", "b"] {
        let path = format!("/api/v1/nodes/{name}");
        raw.until("nobody else comes, and nobody has to go", &path, |n| {
            has(n, "NoSchedule") && !has(n, "NoExecute")
        })
        .await;
    }
    set_ready(&raw, "b", "True").await;
    raw.until("it goes on", "/api/v1/nodes/a", |n| has(n, "NoExecute")).await;
}

#[tokio::test]
async fn a_dying_pod_of_a_node_out_of_service_is_let_go() {
    let (_world, raw) = start().await;
    node(&raw, "up", "True").await;
    node(&raw, "out", "True").await;
    let path = pod(&raw, "p", "out", json!({})).await;
    raw.until("running", &path, |p| p["status"]["phase"] == "Running").await;
    set_ready(&raw, "out", "False").await;
    let taint =
        json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" });
    raw.update("/api/v1/nodes/out", |n| {
        if n["spec"]["taints"].is_null() {
            n["spec"]["taints"] = json!([]);
        }
        n["spec"]["taints"].as_array_mut().unwrap().push(taint.clone());
    })
    .await;
    // Evicted by the taint, and then by force: it has failed, and only its finalizer keeps it.
    let failed = raw.until("failed", &path, |p| p["status"]["phase"] == "Failed").await;
    assert!(!failed["metadata"]["deletionTimestamp"].is_null(), "{failed}");
    raw.patch(Kind::Merge, &path, json!({ "metadata": { "finalizers": null } })).await;
    raw.until_gone(&path).await;
}

#[tokio::test]
async fn a_pod_that_never_ran_fails_before_it_goes() {
    let (_world, raw) = start().await;
    let path = pod(&raw, "p", "", json!({ "schedulingGates": [{ "name": "example.com/wait" }] })).await;
    raw.delete(&path).await;
    let failed = raw.until("failed", &path, |p| p["status"]["phase"] == "Failed").await;
    assert_eq!(failed["metadata"]["deletionGracePeriodSeconds"], 0);
    raw.patch(Kind::Merge, &path, json!({ "metadata": { "finalizers": null } })).await;
    raw.until_gone(&path).await;
}

/// People do not say when they added a taint; a pod's time runs all the same, and ends with the taint.
#[tokio::test]
async fn a_taint_without_a_time_is_endured_for_as_long_as_is_tolerated() {
    let (_world, raw) = start().await;
    node(&raw, "n1", "True").await;
    let tolerates = |seconds: i64| {
        let toleration =
            json!({ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        json!({ "tolerations": [toleration] })
    };
    let brief = pod(&raw, "brief", "n1", tolerates(1)).await;
    let long = pod(&raw, "long", "n1", tolerates(600)).await;
    let taint = |taints: Value| json!({ "spec": { "taints": taints } });
    let added = raw
        .patch(Kind::Merge, "/api/v1/nodes/n1", taint(json!([{ "key": "k", "effect": "NoExecute" }])))
        .await;
    assert!(added["spec"]["taints"][0]["timeAdded"].is_null(), "{added}");
    raw.until("evicted", &brief, |p| !p["metadata"]["deletionTimestamp"].is_null()).await;
    raw.patch(Kind::Merge, "/api/v1/nodes/n1", taint(Value::Null)).await;
    let told = |list: &Value| {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().any(|e| e["message"] == "Cancelling deletion of Pod default/long")
    };
    raw.until("the other pod is let be", "/api/v1/namespaces/default/events", told).await;
    assert!(raw.get(&long).await["metadata"]["deletionTimestamp"].is_null());
}
