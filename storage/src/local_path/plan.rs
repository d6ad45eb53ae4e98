//! What the local-path provisioner of one node does about a claim or a volume.

use crate::facts::{self, HOSTNAME, LOCAL_PATH, PROVISIONED_BY, SELECTED_NODE};
use crate::provision::{FINALIZER, volume_name};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ObjectMeta;
use std::path::{Path, PathBuf};

/// Whether this node makes the claim's volume now.
pub fn is_ours(claim: &PersistentVolumeClaim, class: Option<&StorageClass>, node: &str) -> bool {
    class.is_some_and(|class| class.provisioner == LOCAL_PATH)
        && claim.metadata.deletion_timestamp.is_none()
        && facts::volume_name(claim).is_none()
        && facts::annotation(claim, SELECTED_NODE) == Some(node)
}

/// `root/pvc-<uid>_<namespace>_<name>`.
pub fn directory(root: &Path, claim: &PersistentVolumeClaim) -> PathBuf {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    root.join(format!("{}_{namespace}_{name}", volume_name(claim)))
}

pub fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    hostname: &str,
    directory: &Path,
) -> PersistentVolume {
    let wanted = claim.spec.clone().unwrap_or_default();
    let requirement = NodeSelectorRequirement {
        key: HOSTNAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![hostname.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume_name(claim)),
            annotations: Some([(PROVISIONED_BY.to_owned(), LOCAL_PATH.to_owned())].into()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: wanted.access_modes,
            capacity: wanted.resources.and_then(|r| r.requests),
            claim_ref: Some(facts::reference_to(claim)),
            host_path: Some(HostPathVolumeSource {
                path: directory.to_string_lossy().into_owned(),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: Some(
                class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned()),
            ),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// Whether this node's provisioner made the volume. `hostname` is the label of this node.
pub fn is_ours_to_keep(volume: &PersistentVolume, hostname: &str) -> bool {
    facts::annotation(volume, PROVISIONED_BY) == Some(LOCAL_PATH) && is_pinned_to(volume, hostname)
}

/// How a volume of ours ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    NotYet,
    /// Removes this directory, then the object.
    Delete(PathBuf),
    /// Only our finalizer goes: the data is kept, as the policy says.
    LetGo,
}

/// `hostname` is the label of this node. A path outside `root` is never removed, whoever wrote it there.
pub fn ending(volume: &PersistentVolume, hostname: &str, root: &Path) -> Ending {
    let ours = is_ours_to_keep(volume, hostname);
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let phase = facts::phase(volume);
    if !ours || phase == "Bound" || !(deleting || phase == "Released") {
        return Ending::NotYet;
    }
    let wants_delete = facts::reclaim_policy(volume) == "Delete";
    let path = volume.spec.as_ref().and_then(|s| s.host_path.as_ref()).map(|h| PathBuf::from(&h.path));
    let safe = path.filter(|p| p.parent() == Some(root) && p.file_name().is_some());
    match safe {
        Some(path) if wants_delete => Ending::Delete(path),
        _ if deleting => Ending::LetGo,
        _ => Ending::NotYet,
    }
}

fn is_pinned_to(volume: &PersistentVolume, hostname: &str) -> bool {
    let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref());
    let terms = affinity.and_then(|a| a.required.as_ref()).map(|r| r.node_selector_terms.as_slice());
    let requirements = terms.unwrap_or_default().iter().flat_map(|t| t.match_expressions.iter().flatten());
    requirements
        .filter(|r| r.key == HOSTNAME && r.operator == "In")
        .any(|r| r.values.as_deref() == Some(&[hostname.to_owned()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim() -> PersistentVolumeClaim {
        serde_json::from_value(json!({ "metadata": { "name": "data", "namespace": "x", "uid": "u",
                "annotations": { "volume.kubernetes.io/selected-node": "n" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local-path",
                "resources": { "requests": { "storage": "1Gi" } } } }))
        .unwrap()
    }

    fn class() -> StorageClass {
        serde_json::from_value(json!({ "metadata": { "name": "local-path" }, "provisioner": LOCAL_PATH }))
            .unwrap()
    }

    fn made(phase: &str, policy: &str, deleting: bool, path: &str) -> PersistentVolume {
        let mut volume = volume(&claim(), &class(), "n", Path::new(path));
        volume.status.get_or_insert_default().phase = Some(phase.into());
        volume.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some(policy.into());
        if deleting {
            volume.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        }
        volume
    }

    #[test]
    fn only_the_selected_node_makes_the_volume() {
        assert!(is_ours(&claim(), Some(&class()), "n"));
        assert!(!is_ours(&claim(), Some(&class()), "m"));
        assert!(!is_ours(&claim(), None, "n"));
        let path = directory(Path::new("/data"), &claim());
        assert_eq!(path, Path::new("/data/pvc-u_x_data"));
        assert!(facts::is_bound_to(&volume(&claim(), &class(), "n", &path), &claim()));
    }

    #[test]
    fn a_volume_ends_by_its_policy_and_never_outside_the_root() {
        let root = Path::new("/data");
        let inside = "/data/pvc-u_x_data";
        let gone = Ending::Delete(PathBuf::from(inside));
        let cases = [
            (made("Released", "Delete", false, inside), "n", gone),
            (made("Released", "Delete", false, inside), "m", Ending::NotYet),
            (made("Bound", "Delete", true, inside), "n", Ending::NotYet),
            (made("Released", "Retain", false, inside), "n", Ending::NotYet),
            (made("Released", "Retain", true, inside), "n", Ending::LetGo),
            (made("Released", "Delete", false, "/etc"), "n", Ending::NotYet),
            (made("Released", "Delete", true, "/data/../etc"), "n", Ending::LetGo),
            (made("Available", "Delete", false, inside), "n", Ending::NotYet),
        ];
        for (i, (volume, hostname, expected)) in cases.into_iter().enumerate() {
            assert_eq!(ending(&volume, hostname, root), expected, "case {i}");
        }
    }
}
