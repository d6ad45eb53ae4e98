//! What the attach/detach controller does about a node's volumes.

use crate::csi::{attachment_name, unique_name};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use std::time::Duration;

/// How long a node that is not well may say that it uses a volume that no pod wants; upstream's
/// `maxWaitForUnmountDuration`. Shorter, and a node that comes back writes to a volume that another has; longer, and a pod
/// that moved waits.
pub const MAX_WAIT_FOR_UNMOUNT: Duration = Duration::from_secs(6 * 60);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A volume of a driver, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachable {
    /// The PersistentVolume.
    pub volume: String,
    pub driver: String,
    /// As nodes call it.
    pub unique: String,
    /// The VolumeAttachment on this node.
    pub attachment: String,
    /// One node at a time.
    pub exclusive: bool,
}

/// `None` where nothing is attached.
pub fn attachable(volume: &PersistentVolume, node: &str) -> Option<Attachable> {
    let spec = volume.spec.as_ref()?;
    let source = spec.csi.as_ref()?;
    let shared = |mode: &String| mode == "ReadWriteMany" || mode == "ReadOnlyMany";
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    Some(Attachable {
        volume: volume.metadata.name.clone().unwrap_or_default(),
        driver: source.driver.clone(),
        unique: unique_name(&source.driver, &source.volume_handle),
        attachment: attachment_name(&source.driver, &source.volume_handle, node),
        exclusive: !modes.is_empty() && !modes.iter().any(shared),
    })
}

/// A driver that nobody has described wants its volumes attached.
pub fn wants_attachment(driver: Option<&CSIDriver>) -> bool {
    driver.is_none_or(|driver| driver.spec.attach_required.unwrap_or(true))
}

pub fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

pub fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

/// What a node says of itself, as far as detaching depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    pub exists: bool,
    pub ready: bool,
    pub out_of_service: bool,
    pub uses_volume: bool,
}

impl NodeState {
    pub fn of(node: Option<&Node>, unique: &str) -> Self {
        let status = node.and_then(|node| node.status.as_ref());
        let taints = node.and_then(|node| node.spec.as_ref()?.taints.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let in_use = status.and_then(|status| status.volumes_in_use.as_ref());
        Self {
            exists: node.is_some(),
            ready: conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True"),
            out_of_service: taints.into_iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE),
            uses_volume: in_use.into_iter().flatten().any(|volume| volume == unique),
        }
    }
}

/// What becomes of a volume that no pod of the node wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    Now,
    /// Though the node says that it uses it.
    ByForce,
    /// Until the node says otherwise, and no longer than this.
    Wait(Option<Duration>),
}

/// `unwanted` is how long no pod has wanted the volume.
pub fn detach(node: NodeState, unwanted: Duration) -> Detach {
    match node {
        NodeState { exists: false, .. } | NodeState { uses_volume: false, .. } => Detach::Now,
        NodeState { out_of_service: true, .. } => Detach::ByForce,
        // It is alive and will unmount; data that is on its way would be lost.
        NodeState { ready: true, .. } => Detach::Wait(None),
        _ if unwanted >= MAX_WAIT_FOR_UNMOUNT => Detach::ByForce,
        _ => Detach::Wait(Some(MAX_WAIT_FOR_UNMOUNT.saturating_sub(unwanted))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_in_use_is_detached_only_when_the_node_is_lost() {
        let lost = NodeState { exists: true, ready: false, out_of_service: false, uses_volume: true };
        let second = Duration::from_secs(1);
        for (node, unwanted, expected) in [
            (NodeState { uses_volume: false, ..lost }, second, Detach::Now),
            (NodeState { exists: false, ..lost }, second, Detach::Now),
            (NodeState { ready: true, ..lost }, MAX_WAIT_FOR_UNMOUNT * 2, Detach::Wait(None)),
            (lost, second, Detach::Wait(Some(MAX_WAIT_FOR_UNMOUNT - second))),
            (lost, MAX_WAIT_FOR_UNMOUNT, Detach::ByForce),
            (NodeState { out_of_service: true, ..lost }, second, Detach::ByForce),
        ] {
            assert_eq!(detach(node, unwanted), expected, "{node:?} after {unwanted:?}");
        }
    }

    #[test]
    fn a_node_is_read_as_it_is_written() {
        let node: Node = serde_json::from_value(json!({ "metadata": {},
            "spec": { "taints": [{ "key": OUT_OF_SERVICE, "effect": "NoExecute" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }], "volumesInUse": ["u"] } }))
        .unwrap();
        let state = NodeState { exists: true, ready: false, out_of_service: true, uses_volume: true };
        assert_eq!(NodeState::of(Some(&node), "u"), state);
        assert!(!NodeState::of(Some(&node), "other").uses_volume && !NodeState::of(None, "u").exists);
    }

    #[test]
    fn volumes_of_one_node_are_exclusive() {
        let volume = |modes: serde_json::Value| -> PersistentVolume {
            serde_json::from_value(json!({ "metadata": { "name": "pv" }, "spec": { "accessModes": modes,
                "csi": { "driver": "d", "volumeHandle": "h" } } }))
            .unwrap()
        };
        assert!(attachable(&volume(json!(["ReadWriteOnce"])), "n").unwrap().exclusive);
        assert!(attachable(&volume(json!(["ReadWriteOncePod"])), "n").unwrap().exclusive);
        assert!(!attachable(&volume(json!(["ReadWriteOnce", "ReadOnlyMany"])), "n").unwrap().exclusive);
        assert!(!attachable(&volume(json!([])), "n").unwrap().exclusive);
        assert!(wants_attachment(None));
    }
}
