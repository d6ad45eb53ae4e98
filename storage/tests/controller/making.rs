//! Volumes that are made for claims, and go with them.

use crate::cluster::{Cluster, DRIVER};
use crate::driver::Behaviour;
use crate::support::{until_gone, until_object};
use coracle_storage::csi::controller_messages::{ContentSource, ControllerRpcType};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

const MAKES: ControllerRpcType = ControllerRpcType::CreateDeleteVolume;
/// gRPC's codes.
const INVALID_ARGUMENT: i32 = 3;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNAVAILABLE: i32 = 14;

#[tokio::test]
async fn a_claim_gets_a_volume_as_external_provisioner_makes_it_and_loses_it() {
    let cluster = Cluster::start(&[MAKES], json!({ "attachRequired": false })).await;
    let secrets = cluster.world.in_namespace::<Secret>("default");
    let key = json!({ "metadata": { "name": "key-data" }, "stringData": { "password": "pw" } });
    cluster.world.create(&secrets, key).await;
    cluster
        .class(
            "disk",
            json!({ "mountOptions": ["noatime"], "parameters": { "tier": "gold",
            "csi.storage.k8s.io/fstype": "ext4",
            "csi.storage.k8s.io/provisioner-secret-name": "key-${pvc.name}",
            "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}" } }),
        )
        .await;
    cluster.claim("data", json!({})).await;
    let volume = cluster.bound("data").await;
    let claim = until_object("let go", &cluster.claims, "data", |claim| {
        !claim.finalizers().contains(&"coracle.io/csi-provisioning".to_owned())
    })
    .await;
    assert_eq!(volume.name_any(), format!("pvc-{}", claim.uid().unwrap()));
    assert_eq!(volume.annotations()["pv.kubernetes.io/provisioned-by"], DRIVER);
    assert!(volume.finalizers().contains(&"external-provisioner.volume.kubernetes.io/finalizer".to_owned()));
    let spec = volume.spec.clone().unwrap();
    assert_eq!(spec.mount_options.unwrap(), ["noatime"]);
    let csi = spec.csi.unwrap();
    assert_eq!(csi.volume_handle, format!("vol-{}", volume.name_any()));
    assert_eq!(
        (csi.fs_type.as_deref(), &csi.volume_attributes.unwrap()["made-by"]),
        (Some("ext4"), &"driver".to_owned())
    );
    let call = &cluster.driver.calls("CreateVolume")[0];
    assert_eq!((call.secrets["password"].as_str(), call.context.len()), ("pw", 1), "{call:?}");
    assert_eq!((call.mount_flags.clone(), call.bytes), (vec!["noatime".to_owned()], 1 << 30));
    let said = cluster.event("ProvisioningSucceeded").await;
    assert_eq!(said, format!("Successfully provisioned volume {}", volume.name_any()));
    cluster.claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the volume", &cluster.volumes, &volume.name_any()).await;
    assert_eq!(cluster.driver.calls("DeleteVolume")[0].secrets["password"], "pw");
    assert_eq!(cluster.is_clean(), Ok(()));
}

#[tokio::test]
async fn whatever_the_driver_does_there_is_one_volume_in_the_end() {
    let cluster = Cluster::start(&[MAKES], json!({ "attachRequired": false })).await;
    cluster.class("disk", json!({})).await;
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
        let name = format!("data-{number}");
        let before = cluster.driver.calls("CreateVolume").len();
        cluster.driver.told("CreateVolume", fault);
        cluster.claim(&name, json!({})).await;
        cluster
            .driver
            .until("asked", |state| {
                let calls = state.calls.iter().filter(|call| call.method == "CreateVolume");
                // A dead one is asked once.
                calls.count() > before + usize::from(!matches!(fault, Behaviour::Die | Behaviour::DoneAndDie))
            })
            .await;
        cluster.heal().await;
        let volume = cluster.bound(&name).await;
        cluster.claims.delete(&name, &DeleteParams::default()).await.unwrap();
        until_gone("the volume", &cluster.volumes, &volume.name_any()).await;
    }
    let message = cluster.event("ProvisioningFailed").await;
    assert!(
        message.starts_with("failed to provision volume with StorageClass \"disk\": rpc error"),
        "{message}"
    );
    assert_eq!(cluster.is_clean(), Ok(()));
}

#[tokio::test]
async fn a_claim_that_goes_while_its_volume_is_made_leaves_none() {
    let mut cluster = Cluster::start(&[MAKES], json!({ "attachRequired": false })).await;
    cluster.class("disk", json!({})).await;
    cluster.driver.told("CreateVolume", Behaviour::DoneButFailed(UNAVAILABLE));
    cluster.claim("data", json!({})).await;
    cluster.driver.until("made", |state| !state.controller.made.is_empty()).await;
    // Killed before it could write anything of the volume, and the claim is deleted while nobody looks.
    cluster.kill();
    cluster.claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_object("held", &cluster.claims, "data", |claim| claim.metadata.deletion_timestamp.is_some()).await;
    cluster.driver.heal();
    cluster.restart();
    until_gone("the claim", &cluster.claims, "data").await;
    assert_eq!(cluster.is_clean(), Ok(()));
    assert!(cluster.volumes.list(&Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_volume_is_deleted_again_and_again_until_the_driver_has_done_it() {
    let mut cluster = Cluster::start(&[MAKES], json!({ "attachRequired": false })).await;
    cluster.class("disk", json!({})).await;
    cluster.claim("data", json!({})).await;
    let volume = cluster.bound("data").await.name_any();
    cluster.driver.told("DeleteVolume", Behaviour::Hang);
    cluster.claims.delete("data", &DeleteParams::default()).await.unwrap();
    cluster.driver.until("asked", |state| state.calls.iter().any(|call| call.method == "DeleteVolume")).await;
    cluster.restart();
    cluster.driver.kill();
    cluster.driver.heal();
    cluster.serve().await;
    until_gone("the volume", &cluster.volumes, &volume).await;
    assert_eq!(cluster.is_clean(), Ok(()));
}

#[tokio::test]
async fn a_driver_with_its_own_sidecars_is_left_alone() {
    let cluster = Cluster::start(&[MAKES], json!({ "attachRequired": false })).await;
    let objects: Api<CSIDriver> = Api::all(cluster.world.admin());
    let patch = |value: serde_json::Value| {
        Patch::Merge(json!({ "metadata": { "annotations": { "coracle.io/controller": value } } }))
    };
    objects.patch(DRIVER, &PatchParams::default(), &patch(serde_json::Value::Null)).await.unwrap();
    cluster.class("disk", json!({})).await;
    cluster.claim("data", json!({})).await;
    cluster.event("ExternalProvisioning").await;
    assert!(cluster.driver.order().is_empty(), "{:?}", cluster.driver.order());
    objects.patch(DRIVER, &PatchParams::default(), &patch("built-in".into())).await.unwrap();
    cluster.bound("data").await;
}

#[tokio::test]
async fn a_driver_whose_sidecar_works_is_left_to_it_until_it_has_gone() {
    let mut cluster = Cluster::start(&[MAKES], json!({ "attachRequired": false })).await;
    let leases = cluster.world.in_namespace::<Lease>("default");
    let spec = json!({ "holderIdentity": "sidecar", "leaseDurationSeconds": 3600,
        "renewTime": jiff::Timestamp::now().to_string() });
    cluster.world.create(&leases, json!({ "metadata": { "name": DRIVER }, "spec": spec })).await;
    cluster.restart();
    cluster.class("disk", json!({})).await;
    cluster.claim("data", json!({})).await;
    cluster.event("ExternalProvisioning").await;
    assert!(cluster.driver.calls("CreateVolume").is_empty());
    leases.delete(DRIVER, &DeleteParams::default()).await.unwrap();
    cluster.bound("data").await;
}

#[tokio::test]
async fn a_volume_is_made_where_the_pod_will_be_and_another_place_is_tried_when_it_is_full() {
    let cluster = Cluster::start(&[MAKES], json!({ "attachRequired": false })).await;
    cluster.driver.state.lock().unwrap().controller.has_topology = true;
    cluster.class("disk", json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    cluster.driver.told("CreateVolume", Behaviour::Fail(RESOURCE_EXHAUSTED));
    cluster.claim("data", json!({})).await;
    let on =
        |node: &str| json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": node } } });
    cluster.patch("data", on("n1")).await;
    cluster.driver.until("asked", |state| state.calls.iter().any(|call| call.method == "CreateVolume")).await;
    let other = |claim: &PersistentVolumeClaim| {
        !claim.annotations().contains_key("volume.kubernetes.io/selected-node")
    };
    until_object("to be scheduled anew", &cluster.claims, "data", other).await;
    cluster.driver.heal();
    cluster.patch("data", on("n2")).await;
    let volume = cluster.bound("data").await;
    let zone = |zone: &str| [("zone".to_owned(), zone.to_owned())].into();
    let made = cluster.driver.state.lock().unwrap().controller.made[&volume.name_any()].clone();
    assert_eq!(made.preferred, [zone("b"), zone("a")]);
    let terms = volume.spec.unwrap().node_affinity.unwrap().required.unwrap().node_selector_terms;
    assert_eq!(terms[0].match_expressions.as_ref().unwrap()[0].values.as_ref().unwrap(), &["b"]);
}

#[tokio::test]
async fn a_claim_is_cloned_and_a_populators_claim_is_left_to_it() {
    let cluster =
        Cluster::start(&[MAKES, ControllerRpcType::CloneVolume], json!({ "attachRequired": false })).await;
    cluster.class("disk", json!({})).await;
    cluster.claim("data", json!({})).await;
    let original = cluster.bound("data").await;
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "data" } });
    cluster.claim("copy", source).await;
    let copy = cluster.bound("copy").await;
    let made = cluster.driver.state.lock().unwrap().controller.made[&copy.name_any()].clone();
    let Some(ContentSource::Volume(id)) = made.source else { panic!("{made:?}") };
    assert_eq!(id.id, original.spec.unwrap().csi.unwrap().volume_handle);
    let small = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "data" },
        "resources": { "requests": { "storage": "1Mi" } } });
    cluster.claim("small", small).await;
    let why = cluster.event("ProvisioningFailed").await;
    assert!(why.contains("new PVC request must be greater than or equal in size"), "{why}");
    let foreign =
        json!({ "dataSourceRef": { "apiGroup": "example.com", "kind": "Image", "name": "debian" } });
    let calls = cluster.driver.calls("CreateVolume").len();
    cluster.claim("populated", foreign).await;
    let claims = &cluster.claims;
    until_object("noticed", claims, "populated", |claim| {
        claim.annotations().contains_key("volume.kubernetes.io/storage-provisioner")
    })
    .await;
    cluster.claim("after", json!({})).await;
    cluster.bound("after").await;
    assert_eq!(cluster.driver.calls("CreateVolume").len(), calls + 1);
}

#[tokio::test]
async fn the_room_of_a_driver_is_told() {
    let cluster =
        Cluster::start(&[MAKES, ControllerRpcType::GetCapacity], json!({ "storageCapacity": true })).await;
    {
        let mut state = cluster.driver.state.lock().unwrap();
        (state.controller.has_topology, state.controller.room) = (true, 5 << 30);
    }
    cluster.class("disk", json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    let all: Api<CSIStorageCapacity> = Api::namespaced(cluster.world.admin(), "kube-system");
    let labels = format!("csi.storage.k8s.io/drivername={DRIVER}");
    let told = crate::support::until_list("one a zone", &all, &labels, |all| all.len() == 2).await;
    assert!(told.iter().all(|room| room.storage_class_name == "disk"));
    assert!(told.iter().all(|room| room.capacity.as_ref().unwrap().0 == "5Gi"), "{told:?}");
    let zones: Vec<_> = told
        .iter()
        .map(|room| room.node_topology.clone().unwrap().match_labels.unwrap()["zone"].clone())
        .collect();
    assert!(zones.contains(&"a".to_owned()) && zones.contains(&"b".to_owned()), "{zones:?}");
}

/// What a driver must bear of its caller, and may refuse, is in its service; that nothing is asked of it that it may refuse is
/// said by its list of violations, which every test of whole lives looks at. This one walks all calls.
#[tokio::test]
async fn every_call_that_the_driver_offers_is_made_once_or_again_but_never_wrongly() {
    let all = [
        MAKES,
        ControllerRpcType::PublishUnpublishVolume,
        ControllerRpcType::ExpandVolume,
        ControllerRpcType::GetCapacity,
    ];
    let cluster = Cluster::start(&all, json!({ "attachRequired": true, "storageCapacity": true })).await;
    cluster.class("disk", json!({})).await;
    for fault in [Behaviour::DoneButFailed(UNAVAILABLE), Behaviour::Fail(UNAVAILABLE)] {
        for method in ["CreateVolume", "ControllerExpandVolume", "DeleteVolume"] {
            cluster.driver.told(method, fault);
        }
        cluster.claim("data", json!({})).await;
        let asked = |method: &'static str| {
            cluster.driver.until("asked", move |state| state.calls.iter().any(|call| call.method == method))
        };
        asked("CreateVolume").await;
        cluster.driver.heal();
        let volume = cluster.bound("data").await.name_any();
        cluster.driver.told("ControllerExpandVolume", fault);
        cluster.driver.told("DeleteVolume", fault);
        cluster.patch("data", json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } })).await;
        asked("ControllerExpandVolume").await;
        cluster.driver.state.lock().unwrap().behaviours.remove("ControllerExpandVolume");
        let grown = |claim: &PersistentVolumeClaim| {
            let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
            capacity.is_some_and(|capacity| capacity["storage"].0 == "2Gi")
        };
        until_object("grown", &cluster.claims, "data", grown).await;
        cluster.claims.delete("data", &DeleteParams::default()).await.unwrap();
        asked("DeleteVolume").await;
        cluster.driver.heal();
        until_gone("the volume", &cluster.volumes, &volume).await;
        assert_eq!(cluster.is_clean(), Ok(()));
        cluster.driver.state.lock().unwrap().calls.clear();
    }
}
