//! Volumes that are attached, grow, and get other attributes.

use crate::cluster::{Cluster, DRIVER};
use crate::driver::Behaviour;
use crate::support::{until_gone, until_object};
use coracle_storage::csi::attachment_name;
use coracle_storage::csi::controller_messages::ControllerRpcType;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttributesClass};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::json;

const MAKES: ControllerRpcType = ControllerRpcType::CreateDeleteVolume;
const ATTACHES: ControllerRpcType = ControllerRpcType::PublishUnpublishVolume;
const GROWS: ControllerRpcType = ControllerRpcType::ExpandVolume;
/// gRPC's codes.
const OUT_OF_RANGE: i32 = 11;
const UNAVAILABLE: i32 = 14;

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

#[tokio::test]
async fn a_pods_volume_is_attached_and_taken_away_whatever_the_driver_does() {
    let mut cluster = Cluster::start(&[MAKES, ATTACHES], json!({ "attachRequired": true })).await;
    cluster.class("disk", json!({})).await;
    cluster.claim("data", json!({})).await;
    let volume = cluster.bound("data").await.name_any();
    let handle = format!("vol-{volume}");
    cluster.driver.told("ControllerPublishVolume", Behaviour::Fail(UNAVAILABLE));
    let pods = cluster.world.in_namespace::<Pod>("default");
    let claimed = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
    let spec = json!({ "nodeName": "n1", "volumes": [claimed], "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "c", "image": "i" }] });
    cluster.world.create(&pods, json!({ "metadata": { "name": "user" }, "spec": spec })).await;
    let name = attachment_name(DRIVER, &handle, "n1");
    let told = |attachment: &VolumeAttachment| {
        let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
        error.is_some_and(|error| error.message.as_deref().unwrap_or_default().contains("told to fail"))
    };
    until_object("an error", &cluster.attachments, &name, told).await;
    cluster.driver.told("ControllerPublishVolume", Behaviour::DoneButFailed(UNAVAILABLE));
    cluster.driver.until("attached", |state| !state.controller.attached.is_empty()).await;
    // It was attached, and who did it is dead before he could say so.
    cluster.restart();
    cluster.driver.heal();
    let attached = until_object("attached", &cluster.attachments, &name, is_attached).await;
    assert_eq!(attached.finalizers(), ["external-attacher/disks-example"]);
    assert_eq!(attached.annotations()["csi.alpha.kubernetes.io/node-id"], "id-n1");
    let device = format!("/dev/{handle}");
    assert_eq!(attached.status.unwrap().attachment_metadata.unwrap()["device"], device);
    let call = cluster.driver.calls("ControllerPublishVolume").pop().unwrap();
    assert_eq!((call.path.as_str(), call.context["made-by"].as_str(), call.mode), ("id-n1", "driver", 1));

    cluster.driver.told("ControllerUnpublishVolume", Behaviour::Hang);
    cluster.claims.delete("data", &DeleteParams::default()).await.unwrap();
    pods.delete("user", &DeleteParams::default()).await.unwrap();
    let failed = |attachment: &VolumeAttachment| {
        attachment.status.as_ref().is_some_and(|status| status.detach_error.is_some())
    };
    until_object("an error", &cluster.attachments, &name, failed).await;
    assert!(cluster.driver.calls("DeleteVolume").is_empty(), "what is attached is not deleted");
    cluster.driver.heal();
    until_gone("the attachment", &cluster.attachments, &name).await;
    until_gone("the volume", &cluster.volumes, &volume).await;
    assert_eq!(cluster.is_clean(), Ok(()));
}

fn resize_state(claim: &PersistentVolumeClaim) -> &str {
    let status = claim.status.as_ref().and_then(|status| status.allocated_resource_statuses.as_ref());
    status.and_then(|status| status.get("storage")).map_or("", String::as_str)
}

fn conditions(claim: &PersistentVolumeClaim) -> Vec<String> {
    let conditions = claim.status.clone().and_then(|status| status.conditions).unwrap_or_default();
    conditions.into_iter().map(|condition| condition.type_).collect()
}

fn has(claim: &PersistentVolumeClaim) -> &str {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get("storage")).map_or("", |size| size.0.as_str())
}

#[tokio::test]
async fn a_claim_grows_and_recovers_from_asking_for_too_much() {
    let cluster = Cluster::start(&[MAKES, GROWS], json!({ "attachRequired": false })).await;
    cluster.class("disk", json!({})).await;
    cluster.claim("data", json!({})).await;
    let volume = cluster.bound("data").await.name_any();
    let asks = |size: &str| json!({ "spec": { "resources": { "requests": { "storage": size } } } });
    cluster.patch("data", asks("2Gi")).await;
    until_object("grown", &cluster.claims, "data", |claim| has(claim) == "2Gi").await;
    assert_eq!(cluster.event("VolumeResizeSuccessful").await, "Resize volume succeeded");

    cluster.driver.told("ControllerExpandVolume", Behaviour::Fail(OUT_OF_RANGE));
    cluster.patch("data", asks("9Gi")).await;
    let refused = until_object("refused", &cluster.claims, "data", |claim| {
        resize_state(claim) == "ControllerResizeInfeasible"
    })
    .await;
    assert_eq!(conditions(&refused), ["Resizing", "ControllerResizeError"]);
    assert_eq!(refused.status.unwrap().allocated_resources.unwrap()["storage"].0, "9Gi");
    let why = cluster.event("VolumeResizeFailed").await;
    let words = format!("resize volume \"{volume}\" by resizer \"{DRIVER}\" failed: rpc error");
    assert!(why.starts_with(&words), "{why}");
    cluster.driver.heal();
    cluster.driver.state.lock().unwrap().controller.needs_node = true;
    // Less than what was refused, and still more than there is.
    cluster.patch("data", asks("3Gi")).await;
    let pending = until_object("the node's turn", &cluster.claims, "data", |claim| {
        resize_state(claim) == "NodeResizePending"
    })
    .await;
    assert_eq!((conditions(&pending), has(&pending)), (vec!["FileSystemResizePending".to_owned()], "2Gi"));
    let grown = cluster.volumes.get(&volume).await.unwrap();
    assert_eq!(grown.spec.unwrap().capacity.unwrap()["storage"].0, "3Gi");
    cluster.event("FileSystemResizeRequired").await;
}

#[tokio::test]
async fn a_claim_that_grows_outlives_who_made_it_grow() {
    let mut cluster = Cluster::start(&[MAKES, GROWS], json!({ "attachRequired": false })).await;
    cluster.class("disk", json!({})).await;
    cluster.claim("data", json!({})).await;
    cluster.bound("data").await;
    // It says less than it was asked for, once.
    cluster.driver.state.lock().unwrap().controller.claimed_bytes = Some(1 << 30);
    cluster.patch("data", json!({ "spec": { "resources": { "requests": { "storage": "1536Mi" } } } })).await;
    let why = cluster.event("VolumeResizeFailed").await;
    assert!(why.ends_with("less than the 1610612736 that it was asked for"), "{why}");
    cluster.driver.state.lock().unwrap().controller.claimed_bytes = None;
    until_object("grown", &cluster.claims, "data", |claim| has(claim) == "1536Mi").await;
    cluster.driver.told("ControllerExpandVolume", Behaviour::DoneButFailed(UNAVAILABLE));
    cluster.patch("data", json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } })).await;
    cluster
        .driver
        .until("grown", |state| state.controller.made.values().any(|made| made.bytes == 2 << 30))
        .await;
    cluster.restart();
    cluster.driver.heal();
    let grown = until_object("grown", &cluster.claims, "data", |claim| has(claim) == "2Gi").await;
    assert!(conditions(&grown).is_empty() && resize_state(&grown).is_empty(), "{grown:?}");
    assert!(cluster.is_clean().unwrap_err().contains("forbidden []"));
}

#[tokio::test]
async fn a_volume_gets_the_attributes_that_its_claim_names() {
    let cluster =
        Cluster::start(&[MAKES, ControllerRpcType::ModifyVolume], json!({ "attachRequired": false })).await;
    cluster.class("disk", json!({})).await;
    let classes: Api<VolumeAttributesClass> = Api::all(cluster.world.admin());
    for (name, iops) in [("silver", "10"), ("gold", "1000")] {
        let class =
            json!({ "metadata": { "name": name }, "driverName": DRIVER, "parameters": { "iops": iops } });
        cluster.world.create(&classes, class).await;
    }
    cluster.claim("data", json!({ "volumeAttributesClassName": "silver" })).await;
    let volume = cluster.bound("data").await;
    assert_eq!(volume.spec.as_ref().unwrap().volume_attributes_class_name.as_deref(), Some("silver"));
    let iops =
        || cluster.driver.state.lock().unwrap().controller.made[&volume.name_any()].mutable["iops"].clone();
    assert_eq!(iops(), "10");
    cluster.driver.told("ControllerModifyVolume", Behaviour::Fail(OUT_OF_RANGE));
    cluster.patch("data", json!({ "spec": { "volumeAttributesClassName": "gold" } })).await;
    let state = |claim: &PersistentVolumeClaim| {
        claim
            .status
            .as_ref()
            .and_then(|status| status.modify_volume_status.clone())
            .map(|status| status.status)
    };
    until_object("refused", &cluster.claims, "data", |claim| state(claim).as_deref() == Some("Infeasible"))
        .await;
    cluster.driver.heal();
    // Wanting something else, and then it again, is a new attempt.
    cluster.patch("data", json!({ "spec": { "volumeAttributesClassName": "silver" } })).await;
    cluster.patch("data", json!({ "spec": { "volumeAttributesClassName": "gold" } })).await;
    let current = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.clone())
    };
    let done =
        until_object("modified", &cluster.claims, "data", |c| current(c).as_deref() == Some("gold")).await;
    assert!(state(&done).is_none() && conditions(&done).is_empty(), "{done:?}");
    assert_eq!(iops(), "1000");
}
