//! CSI drivers that come and go, and the pods that have volumes of theirs.

use crate::driver::{self, Driver};
use crate::support::{World, condition, until};
use coracle_storage::csi::messages::NodeRpcType;
use coracle_storage::csi::{attachment_name, unique_name};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const DRIVER: &str = "csi.example";

/// A driver that is not registered yet.
fn make(world: &World) -> Arc<Driver> {
    make_with(world, &[NodeRpcType::StageUnstageVolume])
}

fn make_with(world: &World, capabilities: &[NodeRpcType]) -> Arc<Driver> {
    let driver = driver::driver(DRIVER, &world.root().join("the-driver"), capabilities);
    {
        let mut state = driver.state.lock().unwrap();
        state.max_volumes = 7;
        state.topology = [("topology.example/zone".to_owned(), "z1".to_owned())].into();
    }
    driver
}

/// Serves and registers; the socket of the registration.
fn register(world: &World, driver: &Arc<Driver>, endpoint: &str) -> std::path::PathBuf {
    let registry = world.root().join("plugins_registry");
    std::fs::create_dir_all(&registry).unwrap();
    let endpoint = driver.serve(world.root().join(endpoint));
    driver.register(&registry, &endpoint)
}

async fn csi_driver(world: &World, spec: Value) {
    let path = "/apis/storage.k8s.io/v1/csidrivers";
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER }, "spec": spec });
    world.create_at(path, object).await;
}

async fn csi_node_until(world: &World, wanted: impl Fn(&Value) -> bool) -> Value {
    let api: Api<CSINode> = Api::all(world.admin());
    let look = async || json!(api.get_opt("n1").await.unwrap());
    crate::support::until(look, wanted).await
}

fn with(volume: Value) -> Value {
    let mut named = json!({ "name": "v" });
    named.as_object_mut().unwrap().extend(volume.as_object().unwrap().clone());
    let mount = json!({ "name": "v", "mountPath": "/data" });
    json!({ "terminationGracePeriodSeconds": 1, "volumes": [named],
        "containers": [{ "name": "c", "image": "i:1", "volumeMounts": [mount] }] })
}

#[tokio::test]
async fn a_driver_comes_is_shown_serves_a_pod_and_goes() {
    let world = World::start().await;
    csi_node_until(&world, |node| node["metadata"]["ownerReferences"][0]["name"] == "n1").await;
    csi_driver(&world, json!({ "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"] })).await;
    world.create("p", with(json!({ "csi": { "driver": DRIVER } }))).await;
    let event = world.event("FailedMount").await;
    assert!(
        event.contains("driver name csi.example not found in the list of registered CSI drivers"),
        "{event}"
    );
    let driver = make(&world);
    let socket = register(&world, &driver, "csi.sock");
    let pod = world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    driver.until("registered", |state| state.registered == [(true, String::new())]).await;
    for method in ["NodeGetInfo", "NodePublishVolume"] {
        world.shows(&format!(
            "csi_operations_seconds_count{{driver_name=\"{DRIVER}\",method_name=\"/csi.v1.Node/{method}\",\
             grpc_status_code=\"OK\",migrated=\"false\"}} 1"
        ));
    }
    let plugin = |state: &str| {
        format!("plugin_manager_total_plugins{{socket_path=\"{}\",state=\"{state}\"}} 1", socket.display())
    };
    let registered = plugin("actual_state_of_world");
    until(async || json!(world.figures().contains(&registered)), |known| *known == json!(true)).await;
    world.shows(&plugin("desired_state_of_world"));
    let published = driver.calls("NodePublishVolume");
    assert_eq!((published.len(), &published[0].context["csi.storage.k8s.io/pod.uid"][..]), (1, uid));
    assert!(published[0].path.ends_with(&format!("pods/{uid}/volumes/kubernetes.io~csi/v/mount")));
    let node = csi_node_until(&world, |node| node["spec"]["drivers"][0]["name"] == DRIVER).await;
    assert_eq!(
        node["spec"]["drivers"],
        json!([{ "name": DRIVER, "nodeID": "csi.example-node", "topologyKeys": ["topology.example/zone"],
            "allocatable": { "count": 7 } }])
    );
    let node = world.node_until(|node| node["metadata"]["labels"]["topology.example/zone"] == "z1").await;
    let ids = node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"].as_str().unwrap();
    assert_eq!(ids, r#"{"csi.example":"csi.example-node"}"#);
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.pod_until("p", Value::is_null).await;
    assert!(driver.is_clean());
    std::fs::remove_file(&socket).unwrap();
    csi_node_until(&world, |node| node["spec"]["drivers"].as_array().is_none_or(Vec::is_empty)).await;
    world
        .node_until(|node| node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"].is_null())
        .await;
}

#[tokio::test]
async fn a_driver_is_told_why_it_is_not_taken_on() {
    let world = World::start().await;
    let driver = make(&world);
    driver.told("NodeGetInfo", driver::Behaviour::Fail(13));
    register(&world, &driver, "csi.sock");
    driver
        .until("refused", |state| {
            state.registered.iter().any(|(taken, why)| !taken && why.contains("told to fail"))
        })
        .await;
    driver.heal();
    driver.until("taken on", |state| state.registered.iter().any(|(taken, _)| *taken)).await;
}

#[tokio::test]
async fn a_claims_volume_is_mounted_when_it_is_attached_and_told_in_use_until_it_is_gone() {
    let mut world = World::start().await;
    let driver = make(&world);
    register(&world, &driver, "csi.sock");
    claim(&world).await;
    world.create("p", with(json!({ "persistentVolumeClaim": { "claimName": "data" } }))).await;
    csi_node_until(&world, |node| node["spec"]["drivers"][0]["name"] == DRIVER).await;
    let name = attachment_name(DRIVER, "vol-1", "n1");
    let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": name },
        "spec": { "attacher": DRIVER, "nodeName": "n1", "source": { "persistentVolumeName": "pv" } } });
    world.create_at("/apis/storage.k8s.io/v1/volumeattachments", attachment).await;
    assert_eq!(driver.order(), [""; 0]);
    let api: Api<VolumeAttachment> = Api::all(world.admin());
    let attached = json!({ "status": { "attached": true, "attachmentMetadata": { "device": "sdx" } } });
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(attached)).await.unwrap();
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    assert_eq!(driver.calls("NodeStageVolume")[0].publish_context["device"], "sdx");
    let in_use = unique_name(DRIVER, "vol-1");
    world.node_until(|node| node["status"]["volumesInUse"] == json!([in_use])).await;
    // What others wrote of the attachment is not taken back by a heartbeat.
    world.patch_node_status(json!({ "volumesAttached": [{ "name": in_use, "devicePath": "" }] })).await;
    world.stop_kubelet().await;
    world.start_kubelet();
    world.create("q", json!({ "containers": [{ "name": "c", "image": "i:1" }] })).await;
    world.pod_until("q", |pod| condition(pod, "Ready") == "True").await;
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.pod_until("p", Value::is_null).await;
    let node =
        world.node_until(|node| node["status"]["volumesInUse"].as_array().is_none_or(Vec::is_empty)).await;
    assert_eq!(node["status"]["volumesAttached"][0]["name"], in_use);
    assert!(driver.is_clean(), "{:?}", driver.order());
}

#[tokio::test]
async fn a_driver_that_hangs_keeps_no_other_pod_and_is_no_reason_to_lose_a_volume() {
    let world = World::start().await;
    csi_driver(&world, json!({ "attachRequired": false })).await;
    let driver = make(&world);
    register(&world, &driver, "csi.sock");
    claim(&world).await;
    driver.told("NodeStageVolume", driver::Behaviour::Hang);
    world.create("p", with(json!({ "persistentVolumeClaim": { "claimName": "data" } }))).await;
    driver
        .until("a stage that hangs", |state| state.calls.iter().any(|c| c.method == "NodeStageVolume"))
        .await;
    world.create("q", json!({ "containers": [{ "name": "c", "image": "i:1" }] })).await;
    world.pod_until("q", |pod| condition(pod, "Ready") == "True").await;
    // The call is given up with the pod, and what it may have done is undone.
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), world.pod_until("p", Value::is_null)).await.unwrap();
    assert_eq!(driver.calls("NodeUnpublishVolume").len(), 1);
    driver.until("unstaged", |state| state.calls.iter().any(|c| c.method == "NodeUnstageVolume")).await;
}

/// A claim `data` that is bound to the driver's `vol-1`.
async fn claim(world: &World) {
    let spec = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } });
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "pv",
            "resources": { "requests": { "storage": "1Gi" } } } });
    world.create_at("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.admin(), "default");
    let uid = claims.get("data").await.unwrap().metadata.uid;
    let mut volume =
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv" }, "spec": spec });
    volume["spec"]["claimRef"] = json!({ "namespace": "default", "name": "data", "uid": uid });
    world.create_at("/api/v1/persistentvolumes", volume).await;
    let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
    claims.patch_status("data", &PatchParams::default(), &Patch::Merge(bound)).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_has_ended_keeps_no_volume() {
    let world = World::start().await;
    csi_driver(&world, json!({ "attachRequired": false })).await;
    let driver = make(&world);
    register(&world, &driver, "csi.sock");
    claim(&world).await;
    let mut spec = with(json!({ "persistentVolumeClaim": { "claimName": "data" } }));
    spec["restartPolicy"] = "Never".into();
    world.create("p", spec).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    driver.told("NodeUnpublishVolume", driver::Behaviour::Fail(13));
    world.runtime.exit("c", 0);
    world.pod_until("p", |pod| pod["status"]["phase"] == "Succeeded").await;
    driver
        .until("asked to unpublish", |state| state.calls.iter().any(|c| c.method == "NodeUnpublishVolume"))
        .await;
    driver.heal();
    driver.until("released", |state| state.staged.is_empty() && state.published.is_empty()).await;
    assert_eq!(world.pods_on_disk(), 1, "the rest stays until it is deleted");
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.pod_until("p", Value::is_null).await;
}

#[tokio::test]
async fn a_claim_whose_volume_grew_is_told_when_the_node_has_followed() {
    let world = World::start().await;
    csi_driver(&world, json!({ "attachRequired": false })).await;
    let driver = make_with(&world, &[NodeRpcType::StageUnstageVolume, NodeRpcType::ExpandVolume]);
    register(&world, &driver, "csi.sock");
    claim(&world).await;
    world.create("p", with(json!({ "persistentVolumeClaim": { "claimName": "data" } }))).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    // As the driver's resizer leaves it.
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.admin(), "default");
    let pending = json!([{ "type": "FileSystemResizePending", "status": "True" }, { "type": "Other", "status": "True" }]);
    let pending = Patch::Merge(json!({ "status": { "conditions": pending } }));
    claims.patch_status("data", &PatchParams::default(), &pending).await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(world.admin());
    let larger = Patch::Merge(json!({ "spec": { "capacity": { "storage": "2Gi" } } }));
    volumes.patch("pv", &PatchParams::default(), &larger).await.unwrap();
    // A change of the pod has its volumes looked at before it is time.
    let changed = Patch::Merge(json!({ "metadata": { "labels": { "look": "now" } } }));
    world.pods().patch("p", &PatchParams::default(), &changed).await.unwrap();
    let look = async || json!(claims.get("data").await.unwrap().status);
    let status = crate::support::until(look, |status| status["capacity"]["storage"] == "2Gi").await;
    let conditions = status["conditions"].as_array().unwrap();
    assert_eq!(conditions.iter().map(|c| c["type"].as_str().unwrap()).collect::<Vec<_>>(), ["Other"]);
    assert_eq!(driver.calls("NodeExpandVolume")[0].bytes, 2 << 30);
    let told = world.event("FileSystemResizeSuccessful").await;
    assert_eq!(told, "MountVolume.NodeExpandVolume succeeded for volume \"pv\"");
}
