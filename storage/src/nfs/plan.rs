//! What the NFS provisioner does about a claim or a volume.

use crate::facts::{self, PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER};
use crate::provision::{FINALIZER, volume_name};
use crate::volumes::NfsMount;
use k8s_openapi::api::core::v1::{
    NFSVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Names that upstream's nfs-subdir-external-provisioner goes by.
const NAMES: [&str; 3] = [
    "nfs-subdir-external-provisioner",
    "k8s-sigs.io/nfs-subdir-external-provisioner",
    "cluster.local/nfs-subdir-external-provisioner",
];
const ARCHIVED: &str = "archived-";

/// The share in which a class's volumes are directories; `None` where the class is not this provisioner's. A class of the
/// same name that names no server is for upstream's provisioner, which knows its server by itself.
pub fn share(class: &StorageClass) -> Option<NfsMount> {
    let parameters = class.parameters.as_ref().filter(|_| NAMES.contains(&class.provisioner.as_str()))?;
    let path = parameters.get("path").or_else(|| parameters.get("share"))?;
    Some(NfsMount {
        server: parameters.get("server")?.clone(),
        path: path.clone(),
        options: class.mount_options.clone().unwrap_or_default(),
        read_only: false,
    })
}

/// Whether the claim's volume is to be made now.
pub fn is_due(claim: &PersistentVolumeClaim, class: &StorageClass) -> bool {
    let delayed = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let handed =
        STORAGE_PROVISIONER.iter().any(|key| facts::annotation(claim, key) == Some(&class.provisioner));
    claim.metadata.deletion_timestamp.is_none()
        && facts::volume_name(claim).is_none()
        && handed
        && (!delayed || facts::annotation(claim, SELECTED_NODE).is_some())
}

/// The volume's directory, relative to the share: `<namespace>-<claim>-<volume>`, or what the class's `pathPattern` says.
pub fn directory(claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<PathBuf, String> {
    let meta = &claim.metadata;
    let (namespace, name) =
        (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let pattern = class.parameters.as_ref().and_then(|p| p.get("pathPattern")).filter(|p| !p.is_empty());
    let text = match pattern {
        None => format!("{namespace}-{name}-{}", volume_name(claim)),
        Some(pattern) => filled(pattern, claim)?,
    };
    let path = PathBuf::from(text.trim_matches('/'));
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if inside && path.components().next().is_some() {
        return Ok(path);
    }
    Err(format!("pathPattern leads to {text:?}, which is no directory below the share"))
}

/// Puts in `${.PVC.name}`, `${.PVC.namespace}`, `${.PVC.labels.<key>}` and `${.PVC.annotations.<key>}`. What the claim does
/// not have is empty, as upstream has it.
fn filled(pattern: &str, claim: &PersistentVolumeClaim) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), pattern);
    while let Some((before, after)) = rest.split_once("${") {
        let (word, after) =
            after.split_once('}').ok_or_else(|| format!("pathPattern {pattern:?} ends in a word"))?;
        text.push_str(before);
        text.push_str(&value(word, claim).ok_or_else(|| format!("pathPattern knows no {word:?}"))?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

fn value(word: &str, claim: &PersistentVolumeClaim) -> Option<String> {
    let meta = &claim.metadata;
    let of = |map: &Option<BTreeMap<String, String>>, key: &str| {
        Some(map.as_ref().and_then(|map| map.get(key).cloned()).unwrap_or_default())
    };
    match word.trim().strip_prefix(".PVC.")? {
        "name" => meta.name.clone(),
        "namespace" => meta.namespace.clone(),
        field => match field.split_once('.')? {
            ("labels", key) => of(&meta.labels, key),
            ("annotations", key) => of(&meta.annotations, key),
            _ => None,
        },
    }
}

pub fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    share: &NfsMount,
    directory: &Path,
) -> PersistentVolume {
    let wanted = claim.spec.clone().unwrap_or_default();
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume_name(claim)),
            annotations: Some([(PROVISIONED_BY.to_owned(), class.provisioner.clone())].into()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: wanted.access_modes,
            capacity: wanted.resources.and_then(|r| r.requests),
            claim_ref: Some(facts::reference_to(claim)),
            nfs: Some(NFSVolumeSource {
                server: share.server.clone(),
                path: Path::new(&share.path).join(directory).to_string_lossy().into_owned(),
                read_only: None,
            }),
            mount_options: class.mount_options.clone(),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// How a volume ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    NotYet,
    /// The directory gets this name, both relative to the share; then the object goes.
    Archive {
        from: PathBuf,
        to: PathBuf,
    },
    /// The directory goes, then the object.
    Delete(PathBuf),
    /// Only the object goes.
    LetGo,
}

/// What becomes of a volume of the class. `share` is the class's.
pub fn ending(volume: &PersistentVolume, class: &StorageClass, share: &NfsMount) -> Ending {
    let ours = facts::annotation(volume, PROVISIONED_BY) == Some(&class.provisioner);
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let phase = facts::phase(volume);
    if !ours || phase == "Bound" || !(deleting || phase == "Released") {
        return Ending::NotYet;
    }
    let source = volume.spec.as_ref().and_then(|spec| spec.nfs.as_ref());
    let below = source.filter(|nfs| nfs.server == share.server);
    let below = below.and_then(|nfs| Path::new(&nfs.path).strip_prefix(&share.path).ok());
    let inside = |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let kept = facts::reclaim_policy(volume) != "Delete";
    match below.filter(inside).and_then(|path| Some((path, path.file_name()?))) {
        // Who deletes a volume that is kept wants the object gone, and its data where it is.
        _ if kept => {
            if deleting {
                Ending::LetGo
            } else {
                Ending::NotYet
            }
        }
        None if deleting => Ending::LetGo,
        None => Ending::NotYet,
        Some((path, name)) => match on_delete(class) {
            OnDelete::Retain => Ending::LetGo,
            OnDelete::Delete => Ending::Delete(path.to_owned()),
            OnDelete::Archive => {
                let to = PathBuf::from(format!("{ARCHIVED}{}", name.to_string_lossy()));
                Ending::Archive { from: path.to_owned(), to }
            }
        },
    }
}

enum OnDelete {
    Retain,
    Delete,
    Archive,
}

/// Upstream's `onDelete` goes before its `archiveOnDelete`, which is on where nothing is said.
fn on_delete(class: &StorageClass) -> OnDelete {
    let parameter = |name: &str| class.parameters.as_ref().and_then(|p| p.get(name)).map(String::as_str);
    match (parameter("onDelete"), parameter("archiveOnDelete")) {
        (Some("delete"), _) => OnDelete::Delete,
        (Some("retain"), _) => OnDelete::Retain,
        (_, Some("false")) => OnDelete::Delete,
        _ => OnDelete::Archive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn class(parameters: Value) -> StorageClass {
        let mut all = json!({ "server": "nfs.example", "path": "/exports" });
        all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        serde_json::from_value(
            json!({ "metadata": { "name": "nfs-client" }, "provisioner": NAMES[0], "parameters": all }),
        )
        .unwrap()
    }

    fn claim() -> PersistentVolumeClaim {
        serde_json::from_value(json!({ "metadata": { "name": "my-pvc", "namespace": "default", "uid": "xyz",
                "labels": { "team": "a" }, "annotations": { "nfs.io/storage-path": "deep/er",
                    "volume.kubernetes.io/storage-provisioner": NAMES[0] } },
            "spec": { "resources": { "requests": { "storage": "5Gi" } } } }))
        .unwrap()
    }

    #[test]
    fn directories_are_named_as_the_class_says() {
        for (pattern, expected) in [
            ("", Ok("default-my-pvc-pvc-xyz")),
            ("${.PVC.namespace}/${.PVC.annotations.nfs.io/storage-path}", Ok("default/deep/er")),
            ("${.PVC.labels.team}-${.PVC.name}", Ok("a-my-pvc")),
            ("${.PVC.labels.none}", Err("pathPattern leads to \"\", which is no directory below the share")),
            (
                "../${.PVC.name}",
                Err("pathPattern leads to \"../my-pvc\", which is no directory below the share"),
            ),
            ("${.PVC.uid}", Err("pathPattern knows no \".PVC.uid\"")),
            ("${.PVC.name", Err("pathPattern \"${.PVC.name\" ends in a word")),
        ] {
            let made = directory(&claim(), &class(json!({ "pathPattern": pattern })));
            assert_eq!(made, expected.map(PathBuf::from).map_err(str::to_owned), "{pattern}");
        }
    }

    #[test]
    fn a_class_without_a_server_is_somebody_elses() {
        assert!(share(&class(json!({}))).is_some() && is_due(&claim(), &class(json!({}))));
        let mut bare = class(json!({}));
        bare.parameters = Some([("archiveOnDelete".to_owned(), "true".to_owned())].into());
        assert_eq!(share(&bare), None);
        let mut delayed = class(json!({}));
        delayed.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
        assert!(!is_due(&claim(), &delayed), "no node is selected yet");
    }

    #[test]
    fn volumes_end_as_class_and_policy_say() {
        let made = |policy: &str, parameters: Value, phase: &str, path: &str| {
            let class = class(parameters);
            let share = share(&class).unwrap();
            let mut volume = volume(&claim(), &class, &share, Path::new(path));
            volume.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some(policy.to_owned());
            volume.status.get_or_insert_default().phase = Some(phase.to_owned());
            ending(&volume, &class, &share)
        };
        let archive = Ending::Archive { from: "a/b".into(), to: "archived-b".into() };
        for (policy, parameters, phase, path, expected) in [
            ("Delete", json!({}), "Bound", "d", Ending::NotYet),
            ("Retain", json!({}), "Released", "d", Ending::NotYet),
            ("Delete", json!({}), "Released", "a/b", archive),
            ("Delete", json!({ "archiveOnDelete": "false" }), "Released", "d", Ending::Delete("d".into())),
            (
                "Delete",
                json!({ "onDelete": "retain", "archiveOnDelete": "false" }),
                "Released",
                "d",
                Ending::LetGo,
            ),
            ("Delete", json!({}), "Released", "", Ending::NotYet),
            ("Delete", json!({}), "Released", "../x", Ending::NotYet),
        ] {
            assert_eq!(
                made(policy, parameters.clone(), phase, path),
                expected,
                "{policy} {parameters} {phase} {path}"
            );
        }
    }
}
