//! PersistentVolumeClaims.

use super::pods::validate::resources;
use super::value::*;
use super::volumes::access_modes;
use super::{Column, Env, Strategy, copy_field, rules, table};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct PersistentVolumeClaims;

/// Also for the claim templates of StatefulSets.
pub fn defaults(claim: &mut Object) {
    if let Some(spec) = object_at(claim, "spec") {
        default(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = object_at(claim, "status") {
        default_str(status, "phase", "Pending");
    }
}

const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Status", "Phase of the claim"),
    table::string("Volume", "Volume that the claim is bound to"),
    table::string("Capacity", "Size of the bound volume"),
    table::string("Access Modes", "How the bound volume may be mounted"),
    table::string("StorageClass", "Class that the claim asks for"),
    table::string("VolumeAttributesClass", "Class of the volume's attributes"),
    table::AGE,
    table::wide("VolumeMode", "File system or block device"),
];

impl Strategy for PersistentVolumeClaims {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({ "phase": "Pending" }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        spec(&object["spec"], &Path::root("spec"), &mut Errors(errors));
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        update(new, old, &mut Errors(errors));
    }

    fn has_status(&self) -> bool {
        true
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let phase = if has(object, "metadata.deletionTimestamp") {
            "Terminating"
        } else {
            str_at(object, "status.phase")
        };
        let bound = !str_at(object, "spec.volumeName").is_empty();
        let shown = |text: String| Value::from(if bound { text } else { String::new() });
        vec![
            name(object).into(),
            phase.into(),
            str_at(object, "spec.volumeName").into(),
            shown(rules::quantity_text(at(object, "status.capacity.storage"))),
            shown(access_modes(object, "status.accessModes")),
            class(object).into(),
            table::cell_or_unset(str_at(object, "spec.volumeAttributesClassName")),
            table::age(object, now),
            table::cell_or_unset(str_at(object, "spec.volumeMode")),
        ]
    }
}

/// The class, which an old annotation may name.
pub fn class(object: &Object) -> &str {
    let old = at(object, "metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    old.and_then(Value::as_str).unwrap_or_else(|| str_at(object, "spec.storageClassName"))
}

/// Also for the claims of ephemeral volumes.
pub fn spec(spec: &Value, path: &Path, errors: &mut Errors) {
    modes(spec, path, errors);
    let storage = path.field("resources").field("requests").key("storage");
    match at(spec, "resources.requests").get("storage") {
        None => errors.required(&path.field("resources").key("storage"), ""),
        Some(quantity) if rules::parse_quantity(quantity).is_some_and(coracle_api::Quantity::is_zero) => {
            errors.invalid(&storage, rules::quantity_text(quantity), "must be greater than zero");
        }
        Some(quantity) => resources::non_negative(quantity, &storage, errors),
    }
    let class = str_at(spec, "storageClassName");
    if !class.is_empty() {
        rules::subdomain(class, &path.field("storageClassName"), errors);
    }
    rules::one_of_if_set(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
    rules::label_selector(at(spec, "selector"), &path.field("selector"), errors);
}

/// The access modes of a claim or a volume.
pub fn modes(spec: &Value, path: &Path, errors: &mut Errors) {
    const SUPPORTED: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let (modes, path) = (list_at(spec, "accessModes"), path.field("accessModes"));
    if modes.is_empty() {
        errors.required(&path, "at least 1 access mode is required");
    }
    for mode in strings_at(spec, "accessModes").filter(|m| !SUPPORTED.contains(m)) {
        errors.not_supported(&path, mode, SUPPORTED);
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The binder may give a volume, and a class where there was none; a bound claim may grow.
fn update(new: &Object, old: &Object, errors: &mut Errors) {
    let path = Path::root("spec");
    let bound = str_at(old, "status.phase") == "Bound";
    let mut leveled = new["spec"].clone();
    if str_at(old, "spec.volumeName").is_empty() {
        copy_field(&mut leveled, &old["spec"], "volumeName");
    }
    if !has(old, "spec.storageClassName") {
        copy_field(&mut leveled, &old["spec"], "storageClassName");
    }
    if bound {
        copy_field(&mut leveled, &old["spec"], "resources");
    }
    copy_field(&mut leveled, &old["spec"], "volumeAttributesClassName");
    if leveled != old["spec"] {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&path, detail);
    }
    let size = |object: &Object, of: &str| at(object, of).get("storage").and_then(rules::parse_quantity);
    let (asked, before) = (size(new, "spec.resources.requests"), size(old, "spec.resources.requests"));
    let actual = size(old, "status.capacity");
    if asked < before && actual.is_none_or(|actual| asked < Some(actual)) {
        let here = path.field("resources").field("requests").field("storage");
        errors.forbidden(&here, "field can not be less than status.capacity");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::testing::{World, merge};

    fn claim(patch: Value) -> Object {
        let mut object = json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } });
        merge(&mut object, &patch);
        PersistentVolumeClaims.defaults(&mut object);
        object
    }

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn mistakes() {
        for (patch, expected) in [
            (json!({}), vec![]),
            (
                json!({ "spec": { "accessModes": [] } }),
                vec!["spec.accessModes: Required value: at least 1 access mode is required"],
            ),
            (json!({ "spec": { "resources": null } }), vec!["spec.resources[storage]: Required value"]),
            (
                json!({ "spec": { "resources": { "requests": { "storage": "0" } } } }),
                vec!["spec.resources.requests[storage]: Invalid value: \"0\": must be greater than zero"],
            ),
        ] {
            let mut errors = Vec::new();
            PersistentVolumeClaims.validate(&claim(patch), &World::default().env(), &mut errors);
            assert_eq!(texts(&errors), expected);
        }
    }

    #[test]
    fn only_the_binder_and_growth_change_a_claim() {
        let changed = |old: Value, new: Value| {
            let mut errors = Vec::new();
            let (new, old) = (claim(new), claim(old));
            PersistentVolumeClaims.validate_update(&new, &old, &World::default().env(), &mut errors);
            errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>()
        };
        assert!(changed(json!({}), json!({ "spec": { "volumeName": "v" } })).is_empty());
        assert_eq!(
            changed(json!({ "spec": { "volumeName": "v" } }), json!({ "spec": { "volumeName": "w" } })),
            ["spec"]
        );
        let bound = |size: &str| json!({ "status": { "phase": "Bound" }, "spec": { "resources": { "requests": { "storage": size } } } });
        assert!(changed(bound("1Gi"), bound("2Gi")).is_empty());
        assert_eq!(changed(bound("2Gi"), bound("1Gi")), ["spec.resources.requests.storage"]);
    }

    #[test]
    fn rows() {
        let bound = claim(json!({ "spec": { "volumeName": "v", "storageClassName": "s" },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"] } }));
        let row = PersistentVolumeClaims.row(&bound, Timestamp::UNIX_EPOCH);
        assert_eq!(row, ["c", "Bound", "v", "1Gi", "RWO", "s", "<unset>", "<unknown>", "Filesystem"]);
        let row = PersistentVolumeClaims.row(&claim(json!({})), Timestamp::UNIX_EPOCH);
        assert_eq!(row[..5], ["c", "Pending", "", "", ""]);
    }
}
