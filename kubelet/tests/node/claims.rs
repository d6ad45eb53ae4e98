//! Pods with claims, and the drivers that prepare them.

use crate::dra_driver::DraDriver;
use crate::support::{World, condition, until};
use coracle_kubelet::dra::messages::HealthStatus;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;

const DRIVER: &str = "gpu.example.com";
const SERVICES: [&str; 3] = ["v1beta1.DRAPlugin", "v1.DRAPlugin", "v1alpha1.DRAResourceHealth"];

fn driver() -> Arc<DraDriver> {
    DraDriver::new(DRIVER, &SERVICES)
}

/// A pod whose containers use one request of its claim `claim`, both, and none.
fn spec(claim: &str) -> Value {
    let container = |name: &str, claims: Value| json!({ "name": name, "image": "i:1", "resources": { "claims": claims } });
    json!({ "terminationGracePeriodSeconds": 1, "resourceClaims": [{ "name": "card", "resourceClaimName": claim }],
        "containers": [container("one", json!([{ "name": "card", "request": "second" }])),
            container("both", json!([{ "name": "card" }])), container("none", json!([]))] })
}

async fn claim(world: &World, name: &str) {
    let request = |name: &str| json!({ "name": name, "exactly": { "deviceClassName": "gpu" } });
    let spec = json!({ "devices": { "requests": [request("first"), request("second")] } });
    let claim = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": name }, "spec": spec });
    world.create_at("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim).await;
}

/// Writes what the scheduler would.
async fn allocate(world: &World, claim: &str, pods: &[&str]) {
    let mut reserved = Vec::new();
    for name in pods {
        let uid = world.pods().get(name).await.unwrap().metadata.uid;
        reserved.push(json!({ "resource": "pods", "name": name, "uid": uid }));
    }
    let result = |request: &str, device: &str| json!({ "request": request, "driver": DRIVER, "pool": "pool", "device": device });
    let allocation = json!({ "devices": { "results": [result("first", "one"), result("second", "two")] } });
    let status = json!({ "status": { "allocation": allocation, "reservedFor": reserved } });
    let claims: Api<ResourceClaim> = Api::namespaced(world.admin(), "default");
    claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

fn cdi(world: &World, container: &str) -> Vec<String> {
    world.runtime.config(container).cdi_devices.into_iter().map(|device| device.name).collect()
}

/// The entries of the kubelet's checkpoint.
fn kept(world: &World) -> Value {
    let text = std::fs::read_to_string(world.root().join("dra_manager_state")).unwrap();
    let checkpoint: Value = serde_json::from_str(&text).unwrap();
    let data: Value = serde_json::from_str(checkpoint["Data"].as_str().unwrap()).unwrap();
    data["Entries"].clone()
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

#[tokio::test]
async fn a_pod_waits_for_its_claim_has_its_devices_and_gives_them_back_before_it_has_ended() {
    let world = World::start().await;
    claim(&world, "c").await;
    world.create("p", spec("c")).await;
    let uid = world.pods().get("p").await.unwrap().metadata.uid.unwrap();
    let event = world.event("FailedPrepareDynamicResources").await;
    assert!(
        event.starts_with("Failed to prepare dynamic resources: prepare dynamic resources: pod p (")
            && event.contains(&format!("({uid}) is not allowed to use ResourceClaim c (")),
        "{event}"
    );
    allocate(&world, "c", &["p"]).await;
    world.event_that("FailedPrepareDynamicResources", "DRA driver gpu.example.com is not registered").await;
    let driver = driver();
    driver.register(&world.root());
    world.pod_until("p", is_ready).await;
    driver.until("registered", |state| state.registered == [(true, String::new())]).await;
    world.shows(
        "dra_grpc_operations_duration_seconds_count{driver_name=\"gpu.example.com\",\
         method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\",grpc_status_code=\"OK\"} 1",
    );
    assert_eq!(cdi(&world, "one"), ["gpu.example.com/device=two"]);
    assert_eq!(cdi(&world, "both"), ["gpu.example.com/device=one", "gpu.example.com/device=two"]);
    assert_eq!(cdi(&world, "none"), [""; 0]);
    assert_eq!(driver.state.lock().path, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources");
    assert!(kept(&world)[0]["PodUIDs"].get(&uid).is_some());

    driver.refuse(Some("busy"));
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    driver
        .until("asked", |state| {
            state.calls.iter().filter(|call| *call == "NodeUnprepareResources c").count() > 1
        })
        .await;
    let pod = serde_json::to_value(world.pods().get("p").await.unwrap()).unwrap();
    assert_eq!(pod["status"]["phase"], "Running", "others may not have its devices yet");
    driver.refuse(None);
    world.pod_until("p", Value::is_null).await;
    assert!(driver.state.lock().prepared.is_empty());
    assert_eq!(kept(&world), json!([]));
}

#[tokio::test]
async fn a_pod_that_has_ended_gives_its_claim_back_and_stays() {
    let world = World::start().await;
    let driver = driver();
    driver.register(&world.root());
    claim(&world, "c").await;
    let mut spec = spec("c");
    spec["restartPolicy"] = "Never".into();
    world.create("p", spec).await;
    allocate(&world, "c", &["p"]).await;
    world.pod_until("p", is_ready).await;
    for container in ["one", "both", "none"] {
        world.runtime.exit(container, 0);
    }
    world.pod_until("p", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(driver.state.lock().calls, ["NodePrepareResources c", "NodeUnprepareResources c"]);
}

#[tokio::test]
async fn a_claim_that_two_pods_share_is_prepared_once_and_given_back_with_the_last() {
    let mut world = World::start().await;
    let driver = driver();
    driver.register(&world.root());
    claim(&world, "c").await;
    for name in ["p", "q"] {
        world.create(name, spec("c")).await;
    }
    allocate(&world, "c", &["p", "q"]).await;
    for name in ["p", "q"] {
        world.pod_until(name, is_ready).await;
    }
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.pod_until("p", Value::is_null).await;
    assert_eq!(driver.state.lock().calls, ["NodePrepareResources c"]);
    // What is prepared is still known after a restart, and given back for a pod that went meanwhile.
    world.stop_kubelet().await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    world.pods().delete("q", &now).await.unwrap();
    world.start_kubelet();
    driver
        .until("given back", |state| state.calls == ["NodePrepareResources c", "NodeUnprepareResources c"])
        .await;
    world.until_nothing_runs().await;
}

#[tokio::test]
async fn a_restart_prepares_nothing_anew_and_a_reboot_does() {
    let mut world = World::start().await;
    let driver = driver();
    driver.register(&world.root());
    claim(&world, "c").await;
    world.create("p", spec("c")).await;
    allocate(&world, "c", &["p"]).await;
    world.pod_until("p", is_ready).await;
    world.stop_kubelet().await;
    world.start_kubelet();
    world.runtime.exit("one", 1);
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    world.pod_until("p", restarted).await;
    assert_eq!(driver.state.lock().calls, ["NodePrepareResources c"]);
    assert_eq!(cdi(&world, "one"), ["gpu.example.com/device=two"]);
    world.stop_kubelet().await;
    world.reboot();
    world.start_kubelet();
    driver.until("prepared anew", |state| state.calls == ["NodePrepareResources c"; 2]).await;
    world.pod_until("p", is_ready).await;
}

#[tokio::test]
async fn a_driver_that_refuses_is_asked_again() {
    let world = World::start().await;
    let driver = DraDriver::new(DRIVER, &["v1beta1.DRAPlugin"]);
    driver.refuse(Some("no such device"));
    driver.register(&world.root());
    claim(&world, "c").await;
    world.create("p", spec("c")).await;
    allocate(&world, "c", &["p"]).await;
    let refused = "NodePrepareResources failed for ResourceClaim c: no such device";
    world.event_that("FailedPrepareDynamicResources", refused).await;
    driver.refuse(None);
    world.pod_until("p", is_ready).await;
    let path = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources";
    assert_eq!(driver.state.lock().path, path);
    let stranger = DraDriver::new("other.example.com", &["1.0.0"]);
    stranger.register(&world.root());
    let told = |why: &str| why.contains("none of services supported by the plugin ([\"1.0.0\"])");
    stranger.until("refused", |state| state.registered.iter().any(|(taken, why)| !taken && told(why))).await;
}

#[tokio::test]
async fn what_a_driver_says_of_health_stands_in_the_pods_status() {
    let world = World::start().await;
    let driver = driver();
    driver.say("two", HealthStatus::Healthy, "");
    driver.register(&world.root());
    claim(&world, "c").await;
    world.create("p", spec("c")).await;
    allocate(&world, "c", &["p"]).await;
    let of = |pod: &Value| pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"].clone();
    let said = |health: Value| json!([{ "name": "claim:card/second", "resources": [health] }]);
    let id = "gpu.example.com/device=two";
    world.pod_until("p", |pod| of(pod) == said(json!({ "resourceID": id, "health": "Healthy" }))).await;
    driver.say("two", HealthStatus::Unhealthy, "too hot");
    let hot = json!({ "resourceID": id, "health": "Unhealthy", "message": "too hot" });
    world.pod_until("p", |pod| of(pod) == said(hot.clone())).await;
    driver.kill();
    world.pod_until("p", |pod| of(pod) == said(json!({ "resourceID": id, "health": "Unknown" }))).await;
}

#[tokio::test]
async fn devices_for_extended_resources_come_by_the_claim_that_the_scheduler_made() {
    let world = World::start().await;
    let driver = driver();
    driver.register(&world.root());
    claim(&world, "made").await;
    let resources = json!({ "requests": { "example.com/gpu": 1 }, "limits": { "example.com/gpu": 1 } });
    let container = json!({ "name": "c", "image": "i:1", "resources": resources });
    let spec =
        json!({ "schedulerName": "none", "automountServiceAccountToken": false, "containers": [container] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": spec });
    world.create_at("/api/v1/namespaces/default/pods", pod).await;
    allocate(&world, "made", &["p"]).await;
    let mapping = json!({ "containerName": "c", "resourceName": "example.com/gpu", "requestName": "first" });
    let status = json!({ "status": { "extendedResourceClaimStatus": { "resourceClaimName": "made", "requestMappings": [mapping] } } });
    world.pods().patch_status("p", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let target = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1" });
    let binding =
        json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" }, "target": target });
    world.create_at("/api/v1/namespaces/default/pods/p/binding", binding).await;
    world.pod_until("p", is_ready).await;
    assert_eq!(cdi(&world, "c"), ["gpu.example.com/device=one"]);
}

#[tokio::test]
async fn slices_of_a_driver_that_stays_away_are_removed() {
    let mut world = World::start().await;
    let slices: Api<ResourceSlice> = Api::all(world.admin());
    let names = async || {
        let all = slices.list(&ListParams::default()).await.unwrap();
        json!(all.items.into_iter().filter_map(|slice| slice.metadata.name).collect::<Vec<_>>())
    };
    let make = async |name: &str, driver: &str, node: &str| {
        let pool = json!({ "name": name, "generation": 1, "resourceSliceCount": 1 });
        let spec = json!({ "driver": driver, "nodeName": node, "pool": pool, "devices": [{ "name": "d" }] });
        let slice = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": name }, "spec": spec });
        world.create_at("/apis/resource.k8s.io/v1/resourceslices", slice).await;
    };
    world.node_until(|node| !node.is_null()).await;
    let driver = driver();
    driver.register(&world.root());
    driver.until("registered", |state| !state.registered.is_empty()).await;
    make("own", DRIVER, "n1").await;
    make("other-driver", "other.example.com", "n1").await;
    make("other-node", DRIVER, "n2").await;
    driver.kill();
    until(names, |names| *names == json!(["other-driver", "other-node"])).await;
    // When a kubelet begins, nobody has registered yet.
    world.stop_kubelet().await;
    world.start_kubelet();
    until(names, |names| *names == json!(["other-node"])).await;
}
