//! Kinds of volumes that not every kubelet can mount. A node may say which it can, by the annotation
//! [`well_known::VOLUME_KINDS`]; of one that says nothing nobody knows.

use super::lookup::{is_bound, volume_name};
use crate::cache::{NodeInfo, PodInfo, rare_kind};
use crate::framework::{Cluster, Status};
use coracle_api::well_known;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

/// The rare kinds of a pod's volumes, inline and of bound claims, in the order of its volumes.
pub fn of_pod(cluster: &dyn Cluster, pod: &PodInfo) -> Vec<&'static str> {
    let claimed = |name: String| {
        let claim = cluster.claim(&pod.key.namespace, &name).filter(|claim| is_bound(claim))?;
        of_volume(cluster.volume(volume_name(&claim)?)?.spec.as_ref()?)
    };
    pod.placing_volumes().filter_map(rare_kind).chain(pod.claim_names().filter_map(claimed)).collect()
}

fn of_volume(spec: &PersistentVolumeSpec) -> Option<&'static str> {
    let kinds = [
        (spec.aws_elastic_block_store.is_some(), "awsElasticBlockStore"),
        (spec.azure_disk.is_some(), "azureDisk"),
        (spec.azure_file.is_some(), "azureFile"),
        (spec.cephfs.is_some(), "cephfs"),
        (spec.cinder.is_some(), "cinder"),
        (spec.fc.is_some(), "fc"),
        (spec.flex_volume.is_some(), "flexVolume"),
        (spec.flocker.is_some(), "flocker"),
        (spec.gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (spec.glusterfs.is_some(), "glusterfs"),
        (spec.iscsi.is_some(), "iscsi"),
        (spec.photon_persistent_disk.is_some(), "photonPersistentDisk"),
        (spec.portworx_volume.is_some(), "portworxVolume"),
        (spec.quobyte.is_some(), "quobyte"),
        (spec.rbd.is_some(), "rbd"),
        (spec.scale_io.is_some(), "scaleIO"),
        (spec.storageos.is_some(), "storageos"),
        (spec.vsphere_volume.is_some(), "vsphereVolume"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind)
}

/// Whether the node can mount these, by its own word.
pub fn check(kinds: &[&str], node: &NodeInfo) -> Status {
    let Some(said) = node.annotation(well_known::VOLUME_KINDS) else { return Status::Success };
    match kinds.iter().find(|kind| !said.split(',').any(|said| said == **kind)) {
        Some(kind) => Status::unresolvable(format!("node(s) cannot mount volumes of kind {kind:?}")),
        None => Status::Success,
    }
}
