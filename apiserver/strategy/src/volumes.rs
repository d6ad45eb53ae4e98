//! PersistentVolumes.

use super::claim_spec::{access_modes, class, modes};
use super::pods::validate::sources::{self, Holder};
use super::pods::validate::{node_selector, update};
use super::pods::volume_defaults;
use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, UpdateStrategy, copy_field,
    rules, table, volume_warnings,
};
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct PersistentVolumes;

/// The sources, of which the first in this order counts.
const KINDS: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Capacity", "Size"),
    table::string("Access Modes", "How the volume may be mounted"),
    table::string("Reclaim Policy", "What happens to the volume once its claim is gone"),
    table::string("Status", "Phase of the volume"),
    table::string("Claim", "Claim that the volume is bound to"),
    table::string("StorageClass", "Class of the volume"),
    table::string("VolumeAttributesClass", "Class of the volume's attributes"),
    table::string("Reason", "Why the volume is in its phase"),
    table::AGE,
    table::wide("VolumeMode", "File system or block device"),
];

impl ResourceFacts for PersistentVolumes {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for PersistentVolumes {
    fn defaults(&self, object: &mut Object) {
        let Some(spec) = object_at(object, "spec") else { return };
        default_str(spec, "persistentVolumeReclaimPolicy", "Retain");
        default(spec, "volumeMode", "Filesystem");
        volume_defaults::source(spec);
    }

    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        volume_warnings::of_volume(new)
    }

    fn prepare_create(&self, object: &mut Object, env: &Env) {
        remove(object, "metadata.generation");
        let now = coracle_api::meta::time::format_seconds(env.now);
        set(object, "status", json!({ "phase": "Pending", "lastPhaseTransitionTime": now }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        volume(object, &Path::root("spec"), &mut Errors(errors));
    }
}

impl UpdateStrategy for PersistentVolumes {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        let mut leveled = new["spec"].clone();
        // The one part that may be added later.
        if has(old, "spec.csi") && !has(old, "spec.csi.controllerExpandSecretRef") {
            remove(&mut leveled, "csi.controllerExpandSecretRef");
        }
        let (is, was) = (own_sources(&leveled), own_sources(&old["spec"]));
        if is != was {
            let here = path.field("persistentvolumesource");
            let mut lines = vec!["spec.persistentvolumesource is immutable after creation".to_owned()];
            update::differences(&is, &was, &path, &mut lines);
            errors.forbidden(&here, &lines.join("\n"));
        }
        // Upstream's path begins here.
        let mode = Path::root("volumeMode");
        errors.immutable(&mode, at(new, "spec.volumeMode"), at(old, "spec.volumeMode"));
        let (is, was) = (at(new, "spec.nodeAffinity"), at(old, "spec.nodeAffinity"));
        if !was.is_null() && is != was {
            let shown = rules::internal::shown_or_null(is, rules::internal::VOLUME_NODE_AFFINITY);
            errors.invalid_as(&Path::root("nodeAffinity"), &shown, "field is immutable");
        }
        if has(old, "spec.volumeAttributesClassName") && !has(new, "spec.volumeAttributesClassName") {
            let detail = "update from non-nil value to nil is forbidden";
            errors.forbidden(&path.field("volumeAttributesClassName"), detail);
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for PersistentVolumes {
    /// The time of a new phase is now, unless whoever says so says another.
    fn prepare_status_update(&self, new: &mut Object, old: &Object, env: &Env) {
        copy_field(new, old, "spec");
        let moved = str_at(new, "status.phase") != str_at(old, "status.phase");
        let time = at(new, "status.lastPhaseTransitionTime");
        let said = !time.is_null() && time != at(old, "status.lastPhaseTransitionTime");
        if let Some(status) = object_at(new, "status").filter(|_| moved && !said) {
            set(status, "lastPhaseTransitionTime", coracle_api::meta::time::format_seconds(env.now));
        }
    }
}

impl TableConvertor for PersistentVolumes {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let phase = if has(object, "metadata.deletionTimestamp") {
            "Terminating"
        } else {
            str_at(object, "status.phase")
        };
        let claim = at(object, "spec.claimRef");
        let claim = match claim.is_null() {
            true => String::new(),
            false => format!("{}/{}", str_at(claim, "namespace"), str_at(claim, "name")),
        };
        vec![
            name(object).into(),
            rules::quantity_text(at(object, "spec.capacity.storage")).into(),
            access_modes(object, "spec.accessModes").into(),
            str_at(object, "spec.persistentVolumeReclaimPolicy").into(),
            phase.into(),
            claim.into(),
            class(object).into(),
            table::cell_or_unset(str_at(object, "spec.volumeAttributesClassName")),
            str_at(object, "status.reason").into(),
            table::age(object, now),
            table::cell_or_unset(str_at(object, "spec.volumeMode")),
        ]
    }
}

crate::usual!(PersistentVolumes: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn sources(spec: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    KINDS.into_iter().map(|kind| (kind, at(spec, kind))).filter(|(_, source)| !source.is_null())
}

fn own_sources(spec: &Value) -> Value {
    sources(spec)
        .map(|(field, value)| (field.to_owned(), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn volume(object: &Object, path: &Path, errors: &mut Errors) {
    let spec = &object["spec"];
    modes(spec, "", path, errors);
    capacity(spec, path, errors);
    rules::one_of(spec, "persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"], path, errors);
    affinity(spec, &path.field("nodeAffinity"), errors);
    let holder = Holder { in_pod: false, name: name(object) };
    for (i, (kind, source)) in sources(spec).enumerate() {
        // Upstream's path of what is wrong inside a disk of that kind has another name.
        let inside = if kind == "gcePersistentDisk" { "persistentDisk" } else { kind };
        if i > 0 {
            errors.forbidden(&path.field(kind), "may not specify more than 1 volume type");
            continue;
        }
        sources::source(kind, source, holder, &path.field(inside), errors);
        if kind == "local" && !has(spec, "nodeAffinity") {
            errors.required(&path.field("nodeAffinity"), "Local volume requires node affinity");
        }
    }
    if sources(spec).next().is_none() {
        errors.required(path, "must specify a volume type");
    }
    let root = str_at(spec, "hostPath.path");
    let is_root = root.starts_with('/') && root.split('/').all(|part| matches!(part, "" | "."));
    if is_root && str_at(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let here = path.field("persistentVolumeReclaimPolicy");
        errors.forbidden(&here, "may not be 'recycle' for a hostPath mount of '/'");
    }
    classes(spec, path, errors);
    rules::one_of_if_there(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
    attributes_class(spec, path, errors);
}

fn capacity(spec: &Value, path: &Path, errors: &mut Errors) {
    let (path, all) = (path.field("capacity"), at(spec, "capacity"));
    let count = entries_at(spec, "capacity").count();
    if count == 0 {
        errors.required(&path, "");
    }
    if all.get("storage").is_none() || count > 1 {
        errors.not_supported_as(&path, &all.to_string(), &["storage"]);
    }
    for (resource, size) in entries_at(spec, "capacity") {
        let here = path.key(resource);
        if let Some(negative) = rules::parse_quantity(size).filter(|size| size.is_negative()) {
            errors.invalid(&here, negative.units(), "must be a valid resource quantity");
        }
        rules::positive(size, &here, errors);
    }
}

fn affinity(spec: &Value, path: &Path, errors: &mut Errors) {
    match at(spec, "nodeAffinity.required") {
        Value::Null if has(spec, "nodeAffinity") => {
            errors.required(&path.field("required"), "must specify required node constraints");
        }
        Value::Null => {}
        required => node_selector(required, &path.field("required"), errors),
    }
}

fn classes(spec: &Value, path: &Path, errors: &mut Errors) {
    let class = str_at(spec, "storageClassName");
    if !class.is_empty() {
        rules::subdomain(class, &path.field("storageClassName"), errors);
    }
}

fn attributes_class(spec: &Value, path: &Path, errors: &mut Errors) {
    if !has(spec, "volumeAttributesClassName") {
        return;
    }
    let here = path.field("volumeAttributesClassName");
    match str_at(spec, "volumeAttributesClassName") {
        "" => errors.required(&here, "an empty string is disallowed"),
        class => rules::subdomain(class, &here, errors),
    }
    if !has(spec, "csi") {
        errors.required(&path.field("csi"), "has to be specified when using volumeAttributesClassName");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, merge};

    fn volume(patch: Value) -> Object {
        let mut object = json!({ "metadata": { "name": "v" }, "spec": { "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "hostPath": { "path": "/x" } } });
        merge(&mut object, &patch);
        PersistentVolumes.defaults(&mut object);
        object
    }

    #[test]
    fn defaults_mistakes_and_rows() {
        let object = volume(json!({ "spec": { "claimRef": { "namespace": "d", "name": "c" } } }));
        assert_eq!(object["spec"]["hostPath"], json!({ "path": "/x", "type": "" }));
        let row = PersistentVolumes.row(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(row[..6], ["v", "1Gi", "RWO,RWX", "Retain", "", "d/c"]);
        for (patch, expected) in [
            (json!({}), None),
            (
                json!({ "spec": { "hostPath": null } }),
                Some("spec: Required value: must specify a volume type"),
            ),
            (json!({ "spec": { "capacity": null } }), Some("spec.capacity: Required value")),
            (
                json!({ "spec": { "hostPath": null, "local": { "path": "/x" } } }),
                Some("spec.nodeAffinity: Required value: Local volume requires node affinity"),
            ),
        ] {
            let mut errors = Vec::new();
            PersistentVolumes.validate(&volume(patch), &World::default().env(), &mut errors);
            assert_eq!(errors.first().map(ToString::to_string).as_deref(), expected);
        }
    }

    #[test]
    fn a_phase_has_its_time() {
        let (env, time) = (World::default(), "1970-01-01T00:00:00Z");
        let mut new = volume(json!({}));
        PersistentVolumes.prepare_create(&mut new, &env.env());
        assert_eq!(new["status"], json!({ "phase": "Pending", "lastPhaseTransitionTime": time }));
        let at = |phase: &str, time: &str| {
            volume(json!({ "status": { "phase": phase, "lastPhaseTransitionTime": time } }))
        };
        let old = at("Bound", "2026-01-01T00:00:00Z");
        for (mut new, expected) in [
            (at("Bound", "2026-01-01T00:00:00Z"), "2026-01-01T00:00:00Z"),
            (at("Released", "2026-01-01T00:00:00Z"), time),
            (at("Released", "2026-02-02T00:00:00Z"), "2026-02-02T00:00:00Z"),
        ] {
            PersistentVolumes.prepare_status_update(&mut new, &old, &env.env());
            assert_eq!(new["status"]["lastPhaseTransitionTime"], expected);
        }
    }

    #[test]
    fn the_source_stays() {
        let mut errors = Vec::new();
        let moved = volume(json!({ "spec": { "hostPath": { "path": "/y" } } }));
        PersistentVolumes.validate_update(&moved, &volume(json!({})), &World::default().env(), &mut errors);
        assert_eq!(errors[0].field, "spec.persistentvolumesource");
    }
}
