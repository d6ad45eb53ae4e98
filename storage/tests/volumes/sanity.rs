//! The judge of calls itself: what upstream's csi-sanity wants refused, it finds.

use crate::driver::{driver, judge};
use coracle_storage::csi::controller_messages as messages;
use coracle_storage::csi::messages as csi;
use csi::{AccessMode, AccessType, CapacityRange, Empty, Mode, MountVolume, NodeRpcType, VolumeCapability};
use messages::ControllerRpcType;
use prost::Message;
use std::sync::Arc;
use tempfile::TempDir;

/// A driver that can all that there is.
fn able(dir: &TempDir) -> Arc<crate::driver::Driver> {
    use ControllerRpcType as C;
    use NodeRpcType as N;
    let driver = driver("d", dir.path(), &[N::StageUnstageVolume, N::ExpandVolume, N::GetVolumeStats]);
    driver.state.lock().unwrap().controller.capabilities = [
        C::CreateDeleteVolume,
        C::PublishUnpublishVolume,
        C::ExpandVolume,
        C::ModifyVolume,
        C::CreateDeleteSnapshot,
        C::ListSnapshots,
        C::GetCapacity,
    ]
    .into();
    driver
}

fn faults(driver: &crate::driver::Driver, method: &str, message: &impl Message) -> Vec<String> {
    judge(&driver.state.lock().unwrap(), &driver.name, method, &message.encode_to_vec())
}

fn writer() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter as i32 }),
    }
}

#[test]
fn calls_that_lack_what_they_need_are_faults() {
    let dir = TempDir::new().unwrap();
    let driver = able(&dir);
    for (method, wanted) in [
        ("NodeStageVolume", &["no volume_id", "staging_target_path", "no volume capability"][..]),
        ("NodePublishVolume", &["no volume_id", "target_path", "no volume capability", "without staging"]),
        ("NodeUnpublishVolume", &["no volume_id", "target_path"]),
        ("NodeUnstageVolume", &["no volume_id", "staging_target_path"]),
        ("NodeExpandVolume", &["no volume_id", "volume_path", "no capacity range"]),
        ("NodeGetVolumeStats", &["no volume_id", "volume_path"]),
        ("CreateVolume", &["no name", "no volume capabilities", "no capacity range"]),
        ("DeleteVolume", &["no volume_id"]),
        ("ControllerPublishVolume", &["no volume_id", "no node_id", "no volume capability"]),
        ("ControllerUnpublishVolume", &["no volume_id", "no node_id"]),
        ("ControllerExpandVolume", &["no volume_id", "no capacity range"]),
        ("ControllerModifyVolume", &["no volume_id", "no mutable_parameters"]),
        ("CreateSnapshot", &["no source_volume_id", "no name"]),
        ("DeleteSnapshot", &["no snapshot_id"]),
    ] {
        let found = faults(&driver, method, &Empty {});
        for fault in wanted {
            assert!(found.iter().any(|found| found.contains(fault)), "{method}: {fault} not in {found:?}");
        }
    }
}

#[test]
fn what_a_driver_does_not_offer_is_not_asked_of_it() {
    let dir = TempDir::new().unwrap();
    let driver = driver("d", dir.path(), &[]);
    for (method, offer) in [
        ("NodeStageVolume", "StageUnstageVolume"),
        ("NodeUnstageVolume", "StageUnstageVolume"),
        ("NodeExpandVolume", "ExpandVolume"),
        ("NodeGetVolumeStats", "GetVolumeStats"),
        ("CreateVolume", "CreateDeleteVolume"),
        ("DeleteVolume", "CreateDeleteVolume"),
        ("ControllerPublishVolume", "PublishUnpublishVolume"),
        ("ControllerUnpublishVolume", "PublishUnpublishVolume"),
        ("ControllerExpandVolume", "ExpandVolume"),
        ("ControllerModifyVolume", "ModifyVolume"),
        ("CreateSnapshot", "CreateDeleteSnapshot"),
        ("DeleteSnapshot", "CreateDeleteSnapshot"),
        ("ListSnapshots", "ListSnapshots"),
        ("GetCapacity", "GetCapacity"),
    ] {
        let fault = format!("{method}: {offer} is not offered");
        assert!(faults(&driver, method, &Empty {}).contains(&fault), "{fault}");
    }
}

#[test]
fn a_whole_life_without_a_fault_has_none() {
    let dir = TempDir::new().unwrap();
    let driver = able(&dir);
    let range = Some(CapacityRange { required_bytes: 5, limit_bytes: 0 });
    let create = messages::CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        capacity_range: range,
        volume_capabilities: vec![writer()],
        ..Default::default()
    };
    let mut stage = csi::NodeStageVolumeRequest {
        volume_id: "v".to_owned(),
        staging_target_path: "/staging".to_owned(),
        volume_capability: Some(writer()),
        ..Default::default()
    };
    let attach = messages::ControllerPublishVolumeRequest {
        volume_id: "v".to_owned(),
        node_id: "d-node".to_owned(),
        volume_capability: Some(writer()),
        ..Default::default()
    };
    let none = [""; 0];
    assert_eq!(faults(&driver, "CreateVolume", &create), none);
    assert_eq!(faults(&driver, "ControllerPublishVolume", &attach), none);
    assert_eq!(faults(&driver, "NodeStageVolume", &stage), none);
    // Modes that it does not know, a volume at two nodes, a size that cannot be.
    stage.volume_capability.as_mut().unwrap().access_mode =
        Some(AccessMode { mode: Mode::SingleNodeSingleWriter as i32 });
    assert_eq!(faults(&driver, "NodeStageVolume", &stage).len(), 1);
    driver.state.lock().unwrap().controller.attached = [("v".to_owned(), "other".to_owned())].into();
    assert_eq!(
        faults(&driver, "ControllerPublishVolume", &attach),
        ["ControllerPublishVolume: a volume of one node is attached to another"]
    );
    let less = Some(CapacityRange { required_bytes: 5, limit_bytes: 4 });
    let create = messages::CreateVolumeRequest { capacity_range: less, ..create };
    assert_eq!(faults(&driver, "CreateVolume", &create), ["CreateVolume: more is required than is allowed"]);
}
