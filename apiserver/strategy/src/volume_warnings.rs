//! What is out of date about PersistentVolumes and their claims, in upstream's words.

use super::pods::warnings::{Notes, fraction, node_term};
use super::value::*;
use coracle_api::storage::OLD_CLASS;
use serde_json::Value;

const OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// Kinds of volumes that are gone or will go.
const DEAD: [(&str, &str); 6] = [
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

fn annotation(object: &Value, key: &str, since: &str, field: &str, notes: &mut Notes) {
    if !at(object, "metadata.annotations")[key].is_null() {
        let here = Path::root("metadata").field("annotations").key(key);
        notes.add(&here, &format!("deprecated since {since}; use \"{field}\" attribute instead"));
    }
}

pub fn of_volume(volume: &Value) -> Vec<String> {
    let (mut notes, spec, path) = (Notes::default(), at(volume, "spec"), Path::root("spec"));
    annotation(volume, OLD_CLASS, "v1.8", "storageClassName", &mut notes);
    annotation(volume, OPTIONS, "v1.31", "mountOptions", &mut notes);
    if str_at(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic \
                    provisioning.";
        notes.add(&path.field("persistentVolumeReclaimPolicy"), text);
    }
    let terms = path.field("nodeAffinity").field("required").field("nodeSelectorTerms");
    for (i, term) in list_at(spec, "nodeAffinity.required.nodeSelectorTerms").iter().enumerate() {
        node_term(term, &terms.index(i), &mut notes);
    }
    for (kind, text) in DEAD.iter().filter(|(kind, _)| has(spec, kind)) {
        notes.add(&path.field(kind), text);
    }
    notes.found
}

pub fn of_claim(claim: &Value) -> Vec<String> {
    let mut notes = Notes::default();
    annotation(claim, OLD_CLASS, "v1.8", "storageClassName", &mut notes);
    for field in ["requests", "limits"] {
        let amounts = at(at(claim, "spec.resources"), field);
        fraction(amounts, "storage", &Path::root("spec").field("resources").field(field), &mut notes);
    }
    notes.found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn old_ways_of_volumes_and_claims() {
        let term = json!({ "matchExpressions": [{ "key": "beta.kubernetes.io/os", "operator": "Exists" }] });
        let volume = json!({ "metadata": { "annotations": { OLD_CLASS: "a", OPTIONS: "ro" } }, "spec": {
            "persistentVolumeReclaimPolicy": "Recycle", "rbd": { "image": "i" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [term] } } } });
        assert_eq!(
            of_volume(&volume),
            [
                "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \
                 \"storageClassName\" attribute instead",
                "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; use \
                 \"mountOptions\" attribute instead",
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning.",
                "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is \
                 deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
            ]
        );
        let claim = json!({ "spec": { "resources": { "requests": { "storage": "500m" } } } });
        assert_eq!(
            of_claim(&claim),
            [
                "spec.resources.requests[storage]: fractional byte value \"500m\" is invalid, must be an integer"
            ]
        );
    }
}
