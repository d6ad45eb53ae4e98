//! Whether a driver has room for a new volume where the node is (KEP-1472).

use super::matching::requested;
use crate::cache::NodeInfo;
use crate::framework::Cluster;
use coracle_api::quantity::Quantity;
use coracle_api::selector::LabelSelector;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::Value;

fn bytes(value: &Value) -> Option<i64> {
    value.as_str()?.parse::<Quantity>().ok().map(Quantity::units)
}

/// The largest volume that the object says can be made.
fn limit(capacity: &Value) -> Option<i64> {
    bytes(&capacity["maximumVolumeSize"]).or_else(|| bytes(&capacity["capacity"]))
}

/// The built-in provisioner, whose name no CSIDriver can bear.
const LOCAL_PATH: &str = "coracle.io/local-path";

/// Whether it is told how much room there is for the class: by a driver that says so, and by local-path for those classes whose
/// sizes hold (`sizeLimit: file`).
fn is_told(cluster: &dyn Cluster, class: &StorageClass) -> bool {
    match cluster.csi_driver(&class.provisioner) {
        Some(driver) => driver["spec"]["storageCapacity"] == true,
        None => {
            let limit = class.parameters.as_ref().and_then(|parameters| parameters.get("sizeLimit"));
            class.provisioner == LOCAL_PATH && limit.is_some_and(|limit| limit == "file")
        }
    }
}

/// True where nobody tells.
pub fn has_room(
    cluster: &dyn Cluster,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &NodeInfo,
) -> bool {
    if !is_told(cluster, class) {
        return true;
    }
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    let wanted = requested(claim);
    cluster.csi_storage_capacities().iter().any(|capacity| {
        let near = || {
            let topology = LabelSelector::from_object(&capacity["nodeTopology"]).ok();
            topology.is_some_and(|t| t.matches_with(|key| node.label(key)))
        };
        capacity["storageClassName"] == class_name && limit(capacity).is_some_and(|l| l >= wanted) && near()
    })
}
