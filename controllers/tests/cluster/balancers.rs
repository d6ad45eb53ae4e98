//! Services of type LoadBalancer on bare machines.

use crate::cluster;
use crate::raw::{Kind, Raw, condition};
use crate::support::until_list;
use coracle_api::node_addresses::CHECKED_ADDRESSES;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

async fn node(raw: &Raw, name: &str, address: &str) {
    let met = json!({ CHECKED_ADDRESSES: address });
    raw.post("/api/v1/nodes", json!({ "metadata": { "name": name, "annotations": met } })).await;
    let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": jiff::Timestamp::now() });
    let addresses =
        json!([{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name }]);
    let status = json!({ "status": { "conditions": [ready], "addresses": addresses } });
    raw.patch(Kind::Strategic, &format!("/api/v1/nodes/{name}/status"), status).await;
}

fn service(name: &str, port: i32) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "type": "LoadBalancer", "selector": { "app": name },
        "ports": [{ "port": port }] } })
}

fn addresses(service: &Value) -> Vec<&str> {
    let all = service["status"]["loadBalancer"]["ingress"].as_array();
    all.into_iter().flatten().filter_map(|i| i["ip"].as_str()).collect()
}

fn held(service: &Value) -> bool {
    service["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)))
}

#[tokio::test]
async fn a_service_gets_the_nodes_own_addresses_and_gives_them_back() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    node(&raw, "n1", "192.0.2.1").await;
    raw.post(SERVICES, service("web", 80)).await;
    let path = &format!("{SERVICES}/web");
    let got = raw.until("an address", path, |s| addresses(s) == ["192.0.2.1"]).await;
    assert!(held(&got), "{got}");
    assert_eq!(got["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");
    node(&raw, "n2", "192.0.2.2").await;
    raw.until("both addresses", path, |s| addresses(s) == ["192.0.2.1", "192.0.2.2"]).await;
    let label = json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
    raw.patch(Kind::Merge, "/api/v1/nodes/n1", label).await;
    raw.until("without the excluded node", path, |s| addresses(s) == ["192.0.2.2"]).await;

    // A second one for the same port waits for the first to go.
    raw.post(SERVICES, service("late", 80)).await;
    let events = world.in_namespace::<Event>("default");
    let told = |reason: &'static str, text: &'static str| {
        move |all: &[Event]| {
            all.iter().any(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref() == Some(text))
        }
    };
    let refused = "Error syncing load balancer: failed to ensure load balancer: port 80/TCP of 192.0.2.2 is taken by Service default/web";
    until_list("the refusal", &events, "", told("SyncLoadBalancerFailed", refused)).await;
    let late = &format!("{SERVICES}/late");
    let pending = raw.until("pending", late, held).await;
    assert_eq!(addresses(&pending), [""; 0]);

    // Another type gives back; the address goes to who waited.
    raw.patch(Kind::Merge, path, json!({ "spec": { "type": "ClusterIP" } })).await;
    let plain = raw.until("given back", path, |s| !held(s)).await;
    assert_eq!(plain["status"]["loadBalancer"], json!({}));
    raw.until("the second has it now", late, |s| addresses(s) == ["192.0.2.2"]).await;
    raw.delete(late).await;
    raw.until_gone(late).await;
    for (reason, text) in [
        ("EnsuringLoadBalancer", "Ensuring load balancer"),
        ("EnsuredLoadBalancer", "Ensured load balancer"),
        ("DeletingLoadBalancer", "Deleting load balancer"),
        ("DeletedLoadBalancer", "Deleted load balancer"),
    ] {
        until_list(reason, &events, "", told(reason, text)).await;
    }
}

#[tokio::test]
async fn what_others_answer_for_is_left_alone() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    node(&raw, "n1", "192.0.2.1").await;
    let mut foreign = service("foreign", 80);
    foreign["spec"]["loadBalancerClass"] = json!("example.com/other");
    raw.post(SERVICES, foreign).await;
    raw.post(SERVICES, service("own", 80)).await;
    let own = &format!("{SERVICES}/own");
    raw.until("its own", own, |s| addresses(s) == ["192.0.2.1"]).await;
    let left = raw.get(&format!("{SERVICES}/foreign")).await;
    assert!(!held(&left) && addresses(&left).is_empty(), "{left}");
    // What somebody else writes to a status stands until the Service or the nodes change.
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.1" }] } } });
    raw.patch(Kind::Merge, &format!("{own}/status"), status).await;
    let mark = json!({ "metadata": { "annotations": { "seen": "true" } } });
    let marked = raw.patch(Kind::Merge, own, mark).await;
    assert_eq!(addresses(&marked), ["203.0.113.1"]);
    raw.patch(Kind::Merge, own, json!({ "spec": { "sessionAffinity": "ClientIP" } })).await;
    raw.until("its own again", own, |s| addresses(s) == ["192.0.2.1"]).await;
}

/// As conformance's test of a Service's status writes it: Go's clients send null for a time that is not set.
#[tokio::test]
async fn a_condition_without_a_time_hides_no_service() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    node(&raw, "n1", "192.0.2.1").await;
    raw.post(SERVICES, service("web", 80)).await;
    let path = &format!("{SERVICES}/web");
    raw.until("an address", path, |s| addresses(s) == ["192.0.2.1"]).await;
    let condition = json!({ "type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "set",
        "lastTransitionTime": null });
    let status = json!({ "status": { "conditions": [condition] } });
    raw.patch(Kind::Merge, &format!("{path}/status"), status).await;
    raw.patch(Kind::Merge, path, json!({ "spec": { "loadBalancerSourceRanges": ["198.51.100.0/24"] } }))
        .await;
    raw.delete(path).await;
    raw.until_gone(path).await;
}

#[tokio::test]
async fn policy_local_follows_the_ready_endpoints() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    node(&raw, "n1", "192.0.2.1").await;
    node(&raw, "n2", "192.0.2.2").await;
    let mut local = service("web", 80);
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    let made = raw.post(SERVICES, local).await;
    assert!(made["spec"]["healthCheckNodePort"].is_i64(), "{made}");
    let path = &format!("{SERVICES}/web");
    raw.until("nothing yet", path, |s| held(s) && addresses(s).is_empty()).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({ "metadata": { "name": "p", "labels": { "app": "web" } },
        "spec": { "nodeName": "n2", "containers": [{ "name": "c", "image": "a" }] } });
    raw.post(pods, pod).await;
    raw.until("the pod's node", path, |s| addresses(s) == ["192.0.2.2"]).await;
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    raw.patch(Kind::Strategic, &format!("{pods}/p/status"), unready).await;
    raw.until("nothing again", path, |s| addresses(s).is_empty()).await;
}

#[tokio::test]
async fn a_condition_that_somebody_left_without_a_time_stays_so() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    raw.post(SERVICES, service("web", 80)).await;
    let path = &format!("{SERVICES}/web");
    let timeless = json!({ "type": "E2E", "status": "True", "reason": "R", "message": "m" });
    let status = json!({ "status": { "conditions": [timeless] } });
    raw.patch(Kind::Strategic, &format!("{path}/status"), status).await;
    node(&raw, "n1", "192.0.2.1").await;
    let got = raw.until("an address", path, |s| addresses(s) == ["192.0.2.1"]).await;
    let told = condition(&got, "E2E");
    assert_eq!((told["reason"].as_str(), told["lastTransitionTime"].is_null()), (Some("R"), true), "{got}");
}
