//! What the local-path provisioner of one node does about a claim or a volume.

use crate::facts::{self, HOSTNAME, LOCAL_PATH, PROVISIONED_BY, SELECTED_NODE, SizeLimit};
use crate::place;
use crate::provision::{FINALIZER, volume_name};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use std::path::Path;

/// The node on which the claim's volume is to be made now.
pub fn node_of<'a>(claim: &'a PersistentVolumeClaim, class: Option<&StorageClass>) -> Option<&'a str> {
    let due = class.is_some_and(|class| class.provisioner == LOCAL_PATH)
        && claim.metadata.deletion_timestamp.is_none()
        && facts::volume_name(claim).is_none();
    facts::annotation(claim, SELECTED_NODE).filter(|_| due)
}

/// `pvc-<uid>_<namespace>_<name>`.
pub fn directory(claim: &PersistentVolumeClaim) -> String {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    format!("{}_{namespace}_{name}", volume_name(claim))
}

/// The parameter of a class that says whether sizes hold.
const SIZE_LIMIT: &str = "sizeLimit";

/// What a class says of the sizes of its volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Nothing: they hold on nodes whose file system has quotas of projects.
    WherePossible,
    Never,
    /// They hold, in one way alone.
    By(SizeLimit),
}

/// What the class says of sizes; why not where nobody knows it.
pub fn limit(class: &StorageClass) -> Result<Limit, String> {
    Ok(match class.parameters.as_ref().and_then(|all| all.get(SIZE_LIMIT)).map(String::as_str) {
        None => Limit::WherePossible,
        Some("none") => Limit::Never,
        Some("quota") => Limit::By(SizeLimit::Quota),
        Some("file") => Limit::By(SizeLimit::File),
        Some(other) => {
            let known = "\"none\", \"quota\" and \"file\"";
            return Err(format!("parameter {SIZE_LIMIT}: {other:?} is not supported, supported are {known}"));
        }
    })
}

/// What holds a volume to its size on a node.
pub fn holds(limit: Limit, has_quotas: bool) -> Option<SizeLimit> {
    match limit {
        Limit::WherePossible => has_quotas.then_some(SizeLimit::Quota),
        Limit::Never => None,
        Limit::By(limit) => Some(limit),
    }
}

pub fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    hostname: &str,
    directory: &Path,
    limit: Option<SizeLimit>,
) -> PersistentVolume {
    let mut annotations: BTreeMap<_, _> = [(PROVISIONED_BY.to_owned(), LOCAL_PATH.to_owned())].into();
    annotations.extend(limit.map(|limit| (facts::SIZE_LIMIT.to_owned(), limit.as_str().to_owned())));
    let wanted = claim.spec.clone().unwrap_or_default();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume_name(claim)),
            annotations: Some(annotations),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: wanted.access_modes,
            capacity: wanted.resources.and_then(|r| r.requests),
            claim_ref: Some(facts::reference_to(claim)),
            host_path: Some(source(directory, limit)),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(pinned(hostname)),
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

/// What has a size that holds is never made of nothing, and neither is what lies on a disk that may not be mounted.
pub fn source(directory: &Path, limit: Option<SizeLimit>) -> HostPathVolumeSource {
    let made = limit.is_some() || directory.parent().is_some_and(place::Place::is_further);
    HostPathVolumeSource {
        path: directory.to_string_lossy().into_owned(),
        type_: Some(if made { "Directory" } else { "DirectoryOrCreate" }.to_owned()),
    }
}

/// To the node with this label.
pub fn pinned(hostname: &str) -> VolumeNodeAffinity {
    let requirement = NodeSelectorRequirement {
        key: HOSTNAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![hostname.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

/// The hostname label of the node that a volume of ours lies on.
pub fn home(volume: &PersistentVolume) -> Option<&str> {
    let ours = facts::annotation(volume, PROVISIONED_BY) == Some(LOCAL_PATH);
    let affinity = volume.spec.as_ref().filter(|_| ours)?.node_affinity.as_ref();
    let terms = affinity.and_then(|a| a.required.as_ref()).map(|r| r.node_selector_terms.as_slice());
    let requirements = terms.unwrap_or_default().iter().flat_map(|t| t.match_expressions.iter().flatten());
    let mut hosts = requirements.filter(|r| r.key == HOSTNAME && r.operator == "In");
    match hosts.next()?.values.as_deref() {
        Some([one]) => Some(one),
        _ => None,
    }
}

/// Whether a volume of ours ends.
pub fn ends(volume: &PersistentVolume) -> bool {
    let phase = facts::phase(volume);
    home(volume).is_some()
        && phase != "Bound"
        && (volume.metadata.deletion_timestamp.is_some() || phase == "Released")
}

/// How a volume of ours ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    NotYet,
    /// Removes what is of this name below the node's root, then the object.
    Delete(String),
    /// Only our finalizer goes: the data is kept, as the policy says.
    LetGo,
}

/// `root` is where its node keeps volumes. A path outside it is never removed, whoever wrote it there.
pub fn ending(volume: &PersistentVolume, root: &Path) -> Ending {
    if !ends(volume) {
        return Ending::NotYet;
    }
    let wants_delete = facts::reclaim_policy(volume) == "Delete";
    match directory_of(volume, root) {
        Some(directory) if wants_delete => Ending::Delete(directory),
        _ if volume.metadata.deletion_timestamp.is_some() => Ending::LetGo,
        _ => Ending::NotYet,
    }
}

/// The volume's name below its node's root, as [`place::below`] has it.
pub fn directory_of(volume: &PersistentVolume, root: &Path) -> Option<String> {
    place::below(root, Path::new(&volume.spec.as_ref()?.host_path.as_ref()?.path))
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
        let mut volume = volume(&claim(), &class(), "n", Path::new(path), None);
        volume.status.get_or_insert_default().phase = Some(phase.into());
        volume.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some(policy.into());
        if deleting {
            volume.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        }
        volume
    }

    #[test]
    fn a_volume_is_made_on_the_selected_node() {
        assert_eq!(node_of(&claim(), Some(&class())), Some("n"));
        assert_eq!(node_of(&claim(), None), None);
        assert_eq!(directory(&claim()), "pvc-u_x_data");
        let volume = volume(&claim(), &class(), "n", Path::new("/data/pvc-u_x_data"), None);
        assert!(facts::is_bound_to(&volume, &claim()) && facts::size_limit(&volume).is_none());
        assert_eq!(home(&volume), Some("n"));
        assert_eq!(directory_of(&volume, Path::new("/data")).as_deref(), Some("pvc-u_x_data"));
    }

    #[test]
    fn sizes_hold_where_the_class_says_so() {
        let of = |limit: &str| StorageClass {
            parameters: Some([("sizeLimit".to_owned(), limit.to_owned())].into()),
            ..class()
        };
        let cases = [
            (class(), Limit::WherePossible, [None, Some(SizeLimit::Quota)]),
            (of("none"), Limit::Never, [None; 2]),
            (of("quota"), Limit::By(SizeLimit::Quota), [Some(SizeLimit::Quota); 2]),
            (of("file"), Limit::By(SizeLimit::File), [Some(SizeLimit::File); 2]),
        ];
        for (class, says, without_and_with_quotas) in cases {
            assert_eq!(limit(&class), Ok(says));
            assert_eq!([false, true].map(|quotas| holds(says, quotas)), without_and_with_quotas);
        }
        let unknown = limit(&of("wish")).unwrap_err();
        assert!(unknown.starts_with("parameter sizeLimit: \"wish\" is not supported"), "{unknown}");
        for how in [SizeLimit::File, SizeLimit::Quota] {
            let volume = volume(&claim(), &class(), "n", Path::new("/data/a"), Some(how));
            assert_eq!(facts::size_limit(&volume), Some(how));
        }
    }

    #[test]
    fn a_volume_ends_by_its_policy_and_never_outside_the_root() {
        let root = Path::new("/data");
        let inside = "/data/pvc-u_x_data";
        let gone = Ending::Delete("pvc-u_x_data".to_owned());
        let cases = [
            (made("Released", "Delete", false, inside), gone),
            (made("Bound", "Delete", true, inside), Ending::NotYet),
            (made("Released", "Retain", false, inside), Ending::NotYet),
            (made("Released", "Retain", true, inside), Ending::LetGo),
            (made("Released", "Delete", false, "/etc"), Ending::NotYet),
            (made("Released", "Delete", true, "/data/../etc"), Ending::LetGo),
            (made("Available", "Delete", false, inside), Ending::NotYet),
        ];
        for (i, (volume, expected)) in cases.into_iter().enumerate() {
            assert_eq!(ending(&volume, root), expected, "case {i}");
        }
    }
}
