//! Snapshots that drivers take, and what is made of them.

use crate::cluster::{Cluster, DRIVER};
use crate::driver::{Behaviour, Shot};
use crate::objects::{custom, install_snapshots, snapshot, snapshot_class, until_custom, until_no_custom};
use crate::support::{until_gone, until_object};
use coracle_storage::csi::controller_messages::{ContentSource, ControllerRpcType};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

const MAKES: ControllerRpcType = ControllerRpcType::CreateDeleteVolume;
const TAKES: ControllerRpcType = ControllerRpcType::CreateDeleteSnapshot;
const LISTS: ControllerRpcType = ControllerRpcType::ListSnapshots;
const HELD: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
/// gRPC's codes.
const INVALID_ARGUMENT: i32 = 3;
const UNAVAILABLE: i32 = 14;

fn path(name: &str) -> String {
    format!("namespaces/default/volumesnapshots/{name}")
}

fn of_claim() -> Value {
    json!({ "persistentVolumeClaimName": "data" })
}

fn is_ready(object: &Value) -> bool {
    object["status"]["readyToUse"] == true
}

impl Cluster {
    /// With the definitions, a class `shots`, and a bound claim `data`.
    async fn with_snapshots(capabilities: &[ControllerRpcType]) -> Self {
        let cluster = Self::start(capabilities, json!({ "attachRequired": false })).await;
        install_snapshots(&cluster.world.admin()).await;
        cluster.class("disk", json!({})).await;
        cluster.claim("data", json!({})).await;
        cluster.bound("data").await;
        cluster
    }

    async fn delete_snapshot(&self, name: &str) {
        custom(&self.world.admin(), "DELETE", &path(name), Value::Null).await;
    }

    /// The claim and all of its volume go.
    async fn without_data(&self, claim: &str) {
        let volume = self.bound(claim).await.name_any();
        self.claims.delete(claim, &DeleteParams::default()).await.unwrap();
        until_gone("the volume", &self.volumes, &volume).await;
    }
}

#[tokio::test]
async fn a_snapshot_is_taken_as_csi_snapshotter_takes_it_restored_from_and_deleted() {
    let cluster = Cluster::with_snapshots(&[MAKES, TAKES]).await;
    let client = cluster.world.admin();
    let secrets = cluster.world.in_namespace::<Secret>("default");
    let key = json!({ "metadata": { "name": "key-then" }, "stringData": { "password": "pw" } });
    cluster.world.create(&secrets, key).await;
    let parameters = json!({ "depth": "full",
        "csi.storage.k8s.io/snapshotter-secret-name": "key-${volumesnapshot.name}",
        "csi.storage.k8s.io/snapshotter-secret-namespace": "${volumesnapshot.namespace}" });
    snapshot_class(&client, "shots", DRIVER, json!({ "parameters": parameters })).await;
    cluster.driver.state.lock().unwrap().controller.ready_after = 1;
    snapshot(&client, "then", "shots", of_claim()).await;
    until_custom(&client, "cut", &path("then"), |s| !s["status"]["creationTime"].is_null()).await;
    let taken = until_custom(&client, "ready", &path("then"), is_ready).await;
    let uid = taken["metadata"]["uid"].as_str().unwrap();
    let name = format!("snapcontent-{uid}");
    assert_eq!(taken["status"]["boundVolumeSnapshotContentName"], name.as_str());
    assert_eq!(taken["status"]["restoreSize"], "1Gi");
    assert_eq!(taken["status"]["creationTime"], "2023-11-14T22:13:20Z");
    let content = custom(&client, "GET", &format!("volumesnapshotcontents/{name}"), Value::Null).await;
    let (volume, handle) = (cluster.bound("data").await.name_any(), format!("shot-snapshot-{uid}"));
    assert_eq!(content["spec"]["source"]["volumeHandle"], format!("vol-{volume}"));
    assert_eq!(content["spec"]["sourceVolumeMode"], "Filesystem");
    assert_eq!(content["status"]["snapshotHandle"], handle.as_str());
    assert_eq!(
        content["metadata"]["annotations"]["snapshot.storage.kubernetes.io/deletion-secret-name"],
        "key-then"
    );
    let calls = cluster.driver.calls("CreateSnapshot");
    assert!(calls.len() > 1, "asked again until it is ready");
    assert_eq!((calls[0].secrets["password"].as_str(), calls[0].context.len()), ("pw", 1), "{:?}", calls[0]);
    for reason in ["CreatingSnapshot", "SnapshotCreated", "SnapshotReady"] {
        cluster.event(reason).await;
    }
    until_object("let go", &cluster.claims, "data", |claim| !claim.finalizers().contains(&HELD.to_owned()))
        .await;

    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "then" });
    cluster.claim("block", json!({ "dataSource": source, "volumeMode": "Block" })).await;
    let why = cluster.event("ProvisioningFailed").await;
    assert!(why.contains("modifies the mode of the source volume"), "{why}");
    // It is what a claim waits for.
    cluster.delete_snapshot("then").await;
    assert_eq!(cluster.event("SnapshotDeletePending").await, "Snapshot is being used to restore a PVC");
    cluster.claims.delete("block", &DeleteParams::default()).await.unwrap();
    until_no_custom(&client, &path("then")).await;
    until_no_custom(&client, &format!("volumesnapshotcontents/{name}")).await;
    assert_eq!(cluster.driver.calls("DeleteSnapshot")[0].secrets["password"], "pw");
    cluster.without_data("data").await;
    assert_eq!(cluster.is_clean(), Ok(()));
}

#[tokio::test]
async fn a_claim_is_made_of_a_snapshot() {
    let cluster = Cluster::with_snapshots(&[MAKES, TAKES]).await;
    let client = cluster.world.admin();
    snapshot_class(&client, "shots", DRIVER, json!({ "deletionPolicy": "Retain" })).await;
    snapshot(&client, "then", "shots", of_claim()).await;
    let taken = until_custom(&client, "ready", &path("then"), is_ready).await;
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "then" });
    cluster.claim("restored", json!({ "dataSource": source })).await;
    let copy = cluster.bound("restored").await.name_any();
    let made = cluster.driver.state.lock().unwrap().controller.made[&copy].clone();
    let Some(ContentSource::Snapshot(id)) = made.source else { panic!("{made:?}") };
    assert_eq!(id.id, format!("shot-snapshot-{}", taken["metadata"]["uid"].as_str().unwrap()));
    // What is retained outlives its snapshot, and its content too.
    let content =
        format!("volumesnapshotcontents/snapcontent-{}", taken["metadata"]["uid"].as_str().unwrap());
    cluster.delete_snapshot("then").await;
    until_no_custom(&client, &path("then")).await;
    custom(&client, "DELETE", &content, Value::Null).await;
    until_no_custom(&client, &content).await;
    assert!(cluster.driver.calls("DeleteSnapshot").is_empty());
    assert_eq!(cluster.driver.state.lock().unwrap().controller.snapshots.len(), 1);
}

#[tokio::test]
async fn a_driver_that_is_not_ready_is_asked_for_nothing() {
    let cluster = Cluster::with_snapshots(&[MAKES, TAKES]).await;
    let client = cluster.world.admin();
    cluster.driver.state.lock().unwrap().controller.not_ready = true;
    // Another life of it, which nobody has asked yet.
    cluster.driver.kill();
    cluster.serve().await;
    snapshot_class(&client, "shots", DRIVER, json!({})).await;
    snapshot(&client, "then", "shots", of_claim()).await;
    let probed = cluster.driver.state.lock().unwrap().controller.probed;
    cluster.driver.until("probed twice", |state| state.controller.probed > probed + 1).await;
    assert!(cluster.driver.calls("CreateSnapshot").is_empty());
    cluster.driver.state.lock().unwrap().controller.not_ready = false;
    until_custom(&client, "ready", &path("then"), is_ready).await;
}

#[tokio::test]
async fn whatever_the_driver_does_there_is_one_snapshot_and_none_in_the_end() {
    let cluster = Cluster::with_snapshots(&[MAKES, TAKES]).await;
    let client = cluster.world.admin();
    snapshot_class(&client, "shots", DRIVER, json!({})).await;
    let faults = [
        Behaviour::Fail(UNAVAILABLE),
        Behaviour::Fail(INVALID_ARGUMENT),
        Behaviour::DoneButFailed(UNAVAILABLE),
        Behaviour::Lie,
        Behaviour::Hang,
        Behaviour::Die,
        Behaviour::DoneAndDie,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let name = format!("then-{number}");
        let asked = |method: &'static str, times: usize| {
            let before = cluster.driver.calls(method).len();
            cluster.driver.until("asked", move |state| {
                state.calls.iter().filter(|call| call.method == method).count() >= before + times
            })
        };
        cluster.driver.told("CreateSnapshot", fault);
        // A dead one is asked once.
        let times = if matches!(fault, Behaviour::Die | Behaviour::DoneAndDie) { 1 } else { 2 };
        let often = asked("CreateSnapshot", times);
        snapshot(&client, &name, "shots", of_claim()).await;
        often.await;
        cluster.heal().await;
        let taken = until_custom(&client, "ready", &path(&name), is_ready).await;
        assert!(taken["status"]["error"].is_null(), "{taken}");
        assert_eq!(cluster.driver.state.lock().unwrap().controller.snapshots.len(), 1);
        // An answer of nothing is all that a deletion is told: a lie about it nobody can see.
        if fault != Behaviour::Lie {
            cluster.driver.told("DeleteSnapshot", fault);
        }
        let once = asked("DeleteSnapshot", 1);
        cluster.delete_snapshot(&name).await;
        once.await;
        cluster.heal().await;
        until_no_custom(&client, &path(&name)).await;
    }
    let why = cluster.event("SnapshotContentCheckandUpdateFailed").await;
    let words = "Failed to check and update snapshot content: failed to take snapshot of the volume vol-";
    assert!(why.starts_with(words), "{why}");
    cluster.without_data("data").await;
    assert_eq!(cluster.is_clean(), Ok(()));
}

#[tokio::test]
async fn a_snapshot_that_goes_while_it_is_taken_leaves_none() {
    let mut cluster = Cluster::with_snapshots(&[MAKES, TAKES]).await;
    let client = cluster.world.admin();
    snapshot_class(&client, "shots", DRIVER, json!({})).await;
    cluster.driver.told("CreateSnapshot", Behaviour::DoneButFailed(UNAVAILABLE));
    snapshot(&client, "then", "shots", of_claim()).await;
    cluster.driver.until("taken", |state| !state.controller.snapshots.is_empty()).await;
    // Killed before it knew the snapshot's name; snapshot and claim are deleted while nobody looks.
    cluster.kill();
    cluster.delete_snapshot("then").await;
    let volume = cluster.bound("data").await.name_any();
    cluster.claims.delete("data", &DeleteParams::default()).await.unwrap();
    let held =
        until_object("held", &cluster.claims, "data", |c| c.metadata.deletion_timestamp.is_some()).await;
    assert!(held.finalizers().contains(&HELD.to_owned()), "{:?}", held.finalizers());
    cluster.driver.heal();
    cluster.restart();
    until_no_custom(&client, &path("then")).await;
    until_gone("the volume", &cluster.volumes, &volume).await;
    assert_eq!(cluster.is_clean(), Ok(()));
}

#[tokio::test]
async fn a_snapshot_that_was_made_elsewhere_is_bound_once_the_driver_knows_it() {
    let cluster = Cluster::with_snapshots(&[MAKES, TAKES, LISTS]).await;
    let client = cluster.world.admin();
    snapshot_class(&client, "shots", DRIVER, json!({})).await;
    let content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "old" }, "spec": { "driver": DRIVER, "deletionPolicy": "Delete",
            "source": { "snapshotHandle": "tape-7" },
            "volumeSnapshotRef": { "namespace": "default", "name": "then" } } });
    custom(&client, "POST", "volumesnapshotcontents", content).await;
    let source = json!({ "volumeSnapshotContentName": "old" });
    snapshot(&client, "other", "shots", source.clone()).await;
    let refused = until_custom(&client, "refused", &path("other"), |s| !s["status"]["error"].is_null()).await;
    let why = &refused["status"]["error"]["message"];
    assert_eq!(why, "VolumeSnapshotContent [old] is bound to a different snapshot");
    assert!(cluster.driver.calls("ListSnapshots").is_empty(), "nobody has bound it");
    snapshot(&client, "then", "shots", source).await;
    let missing = until_custom(&client, "an error", &path("then"), |s| !s["status"]["error"].is_null()).await;
    let why = missing["status"]["error"]["message"].as_str().unwrap();
    assert!(why.contains("can not find snapshot for snapshotID tape-7"), "{why}");
    let shot = Shot { id: "tape-7".to_owned(), source: "gone".to_owned(), bytes: 5 << 30, ..Shot::default() };
    cluster.driver.state.lock().unwrap().controller.snapshots.insert("tape".to_owned(), shot);
    let bound = until_custom(&client, "ready", &path("then"), is_ready).await;
    assert_eq!(bound["status"]["restoreSize"], "5Gi");
    assert_eq!(bound["status"]["boundVolumeSnapshotContentName"], "old");
    assert!(cluster.driver.calls("CreateSnapshot").is_empty());
    cluster.delete_snapshot("then").await;
    until_no_custom(&client, &path("then")).await;
    until_no_custom(&client, "volumesnapshotcontents/old").await;
    assert!(cluster.driver.state.lock().unwrap().controller.snapshots.is_empty());
}

#[tokio::test]
async fn who_cannot_or_may_not_take_snapshots_does_not() {
    let cluster = Cluster::with_snapshots(&[MAKES]).await;
    let client = cluster.world.admin();
    snapshot_class(&client, "shots", DRIVER, json!({})).await;
    snapshot_class(&client, "foreign", "other.example", json!({})).await;
    snapshot(&client, "foreign", "foreign", of_claim()).await;
    snapshot(&client, "then", "shots", of_claim()).await;
    let refused = until_custom(&client, "refused", &path("then"), |s| !s["status"]["error"].is_null()).await;
    let why = refused["status"]["error"]["message"].as_str().unwrap();
    assert!(why.ends_with("CSI driver disks.example does not support snapshots"), "{why}");
    cluster.delete_snapshot("then").await;
    until_no_custom(&client, &path("then")).await;
    let foreign = custom(&client, "GET", &path("foreign"), Value::Null).await;
    assert!(foreign["status"].is_null() && foreign["metadata"]["finalizers"].is_null(), "{foreign}");

    // Upstream's snapshot-controller is there: it binds.
    let leases = cluster.world.in_namespace::<Lease>("default");
    let spec = json!({ "holderIdentity": "pod", "leaseDurationSeconds": 3600,
        "renewTime": jiff::Timestamp::now().to_string() });
    cluster
        .world
        .create(&leases, json!({ "metadata": { "name": "snapshot-controller-leader" }, "spec": spec }))
        .await;
    snapshot(&client, "theirs", "shots", of_claim()).await;
    cluster.claim("after", json!({})).await;
    cluster.bound("after").await;
    let theirs = custom(&client, "GET", &path("theirs"), Value::Null).await;
    assert!(theirs["status"].is_null(), "{theirs}");
    assert!(cluster.driver.state.lock().unwrap().controller.violations.is_empty());
}
