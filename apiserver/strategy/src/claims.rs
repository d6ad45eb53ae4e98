//! PersistentVolumeClaims.

use super::claim_spec::{access_modes, class, spec};
use super::pods::validate::update as pods;
use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, UpdateStrategy, copy_field,
    rules, table, volume_warnings,
};
use crate::Facts;
use coracle_api::storage::OLD_CLASS;
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

impl ResourceFacts for PersistentVolumeClaims {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for PersistentVolumeClaims {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        volume_warnings::of_claim(new)
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({ "phase": "Pending" }));
        if let Some(spec) = at_mut(object, "spec") {
            drop_sources(spec);
            same_sources(spec);
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        spec(&object["spec"], &Path::root("spec"), &mut Errors(errors));
    }
}

impl UpdateStrategy for PersistentVolumeClaims {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
        if let Some(spec) = at_mut(new, "spec") {
            same_sources(spec);
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        update(new, old, &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for PersistentVolumeClaims {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        status(new, &mut Errors(errors));
    }
}

impl TableConvertor for PersistentVolumeClaims {
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

crate::usual!(PersistentVolumeClaims: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// What upstream drops of a new claim: sources in other namespaces are behind a gate that is off, and the old field takes
/// only claims and snapshots.
fn drop_sources(spec: &mut Value) {
    if !str_at(spec, "dataSourceRef.namespace").is_empty() {
        remove(spec, "dataSourceRef");
    }
    let (group, kind) = (str_at(spec, "dataSource.apiGroup"), str_at(spec, "dataSource.kind"));
    let claims = group.is_empty() && kind == "PersistentVolumeClaim";
    let snapshots = (group, kind) == ("snapshot.storage.k8s.io", "VolumeSnapshot");
    if !claims && !snapshots && !has(spec, "dataSourceRef") {
        remove(spec, "dataSource");
    }
}

/// The two fields say the same, whichever was given.
fn same_sources(spec: &mut Value) {
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        if has(spec, from) && !has(spec, to) {
            let source = at(spec, from).clone();
            set(spec, to, source);
        }
    }
}

/// What a controller may say of a claim's growth.
fn status(claim: &Object, errors: &mut Errors) {
    const STATES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let (status, path) = (&claim["status"], Path::root("status"));
    for (resource, quantity) in entries_at(status, "capacity") {
        basic(quantity, &path.field("capacity").key(resource), errors);
    }
    let here = path.field("allocatedResourceStatus");
    for (resource, state) in entries_at(status, "allocatedResourceStatuses") {
        resource_of_claims(resource, &here, errors);
        if !STATES.contains(&state.as_str().unwrap_or_default()) {
            errors.not_supported(&here, resource, STATES);
        }
    }
    let here = path.field("allocatedResources");
    for (resource, quantity) in entries_at(status, "allocatedResources") {
        if resource_of_claims(resource, &here, errors) {
            basic(quantity, &here.key(resource), errors);
        }
    }
}

/// Storage, or a resource with a domain of its own. Whether it is one.
fn resource_of_claims(resource: &str, path: &Path, errors: &mut Errors) -> bool {
    let before = errors.0.len();
    rules::qualified_name(resource, path, errors);
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    if errors.0.len() == before && native && resource != "storage" {
        errors.not_supported(path, resource, &["storage"]);
    }
    errors.0.len() == before
}

/// Upstream quotes the whole number.
fn basic(quantity: &Value, path: &Path, errors: &mut Errors) {
    if let Some(amount) = rules::parse_quantity(quantity).filter(|amount| amount.is_negative()) {
        errors.invalid(path, amount.units(), "must be a valid resource quantity");
    }
}

/// The binder may give a volume, and a class where there was none; a bound claim may grow.
fn update(new: &Object, old: &Object, errors: &mut Errors) {
    let path = Path::root("spec");
    let bound = str_at(old, "status.phase") == "Bound";
    let (mut leveled, mut before) = (new["spec"].clone(), old["spec"].clone());
    // Of a claim that was written before both fields were filled in.
    same_sources(&mut before);
    if str_at(old, "spec.volumeName").is_empty() {
        copy_field(&mut leveled, &before, "volumeName");
    }
    let annotation = |object| at(object, "metadata.annotations").get(OLD_CLASS).and_then(Value::as_str);
    let (is, was) = (annotation(new), annotation(old));
    let named = str_at(new, "spec.storageClassName");
    if !has(old, "spec.storageClassName") && was.is_none_or(|was| was == named) {
        copy_field(&mut leveled, &before, "storageClassName");
    }
    let moved = was.is_some_and(|was| was == named) && !has(old, "spec.storageClassName") && is.is_none();
    if is != was && !moved {
        let here = Path::root("metadata").field("annotations").field(OLD_CLASS);
        errors.invalid(&here, is.unwrap_or_default(), "field is immutable");
    }
    if bound {
        level_size(&mut leveled, &before);
        if has(new, "spec.volumeAttributesClassName") {
            copy_field(&mut leveled, &before, "volumeAttributesClassName");
        }
    }
    if leveled != before {
        let mut lines = vec!["spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims".to_owned()];
        pods::differences(&leveled, &before, &path, &mut lines);
        errors.forbidden(&path, &lines.join("\n"));
    }
    attributes_class(new, old, &path, errors);
    let size = |object: &Object, of: &str| at(object, of).get("storage").and_then(rules::parse_quantity);
    let (asked, before) = (size(new, "spec.resources.requests"), size(old, "spec.resources.requests"));
    let actual = size(old, "status.capacity");
    if asked < before && asked <= Some(actual.unwrap_or_default()) {
        let here = path.field("resources").field("requests").field("storage");
        errors.forbidden(&here, "field can not be less than status.capacity");
    }
}

/// Only the storage that is asked for may change.
fn level_size(leveled: &mut Value, old: &Value) {
    let size = at(old, "resources.requests").get("storage").cloned();
    if let (Some(size), Some(requests)) = (size, at_mut(leveled, "resources.requests")) {
        set(requests, "storage", size);
    }
}

/// A class that has been given is not taken away.
fn attributes_class(new: &Object, old: &Object, path: &Path, errors: &mut Errors) {
    if !has(old, "spec.volumeAttributesClassName") {
        return;
    }
    let here = path.field("volumeAttributesClassName");
    let was = str_at(old, "spec.volumeAttributesClassName");
    if !has(new, "spec.volumeAttributesClassName") {
        errors.forbidden(&here, "update from non-nil value to nil is forbidden");
    } else if str_at(new, "spec.volumeAttributesClassName").is_empty() && !was.is_empty() {
        errors.forbidden(&here, "update from non-nil value to an empty string is forbidden");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, merge};

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
                vec!["spec.resources[storage]: Invalid value: \"0\": must be greater than zero"],
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
        let mut has_some = bound("2Gi");
        has_some["status"]["capacity"] = json!({ "storage": "1Gi" });
        assert_eq!(changed(has_some.clone(), bound("1Gi")), ["spec.resources.requests.storage"]);
        assert!(changed(has_some, bound("1500Mi")).is_empty(), "back to what the volume may still become");
    }

    #[test]
    fn a_status_counts_storage_alone() {
        let told = |status: Value| {
            let (new, old) = (claim(json!({ "status": status })), claim(json!({})));
            crate::testing::status_errors(&PersistentVolumeClaims, &new, &old)
        };
        assert!(told(json!({ "capacity": { "storage": "1Gi" }, "allocatedResources": { "storage": "1Gi", "a.b/c": "1" } })).is_empty());
        assert_eq!(
            told(
                json!({ "capacity": { "storage": "-1" }, "allocatedResources": { "cpu": "1", "storage": "-2" } })
            ),
            [
                "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
                "status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"",
                "status.allocatedResources[storage]: Invalid value: -2: must be a valid resource quantity",
            ]
        );
        assert_eq!(
            told(json!({ "allocatedResourceStatuses": { "storage": "Foo" } })),
            [
                "status.allocatedResourceStatus: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\", \"ControllerResizeInfeasible\", \"NodeResizeInProgress\", \"NodeResizeInfeasible\", \"NodeResizePending\""
            ]
        );
    }

    #[test]
    fn sources_are_said_in_both_fields() {
        let made = |spec: Value| {
            let mut object = claim(json!({ "spec": spec }));
            PersistentVolumeClaims.prepare_create(&mut object, &World::default().env());
            let mut errors = Vec::new();
            PersistentVolumeClaims.validate(&object, &World::default().env(), &mut errors);
            (object, texts(&errors))
        };
        let other = json!({ "kind": "PersistentVolumeClaim", "name": "c" });
        for field in ["dataSource", "dataSourceRef"] {
            let (object, errors) = made(json!({ field: other }));
            assert!(errors.is_empty(), "{errors:?}");
            assert_eq!((&object["spec"]["dataSource"], &object["spec"]["dataSourceRef"]), (&other, &other));
        }
        let unknown = json!({ "apiGroup": "a.b", "kind": "K", "name": "n" });
        assert!(
            !has(&made(json!({ "dataSource": unknown })).0, "spec.dataSource"),
            "the old field takes two kinds"
        );
        assert_eq!(made(json!({ "dataSourceRef": unknown })).1, [""; 0]);
        assert_eq!(
            made(json!({ "dataSource": other, "dataSourceRef": unknown })).1,
            ["spec: Invalid value: \"spec.dataSource\": must match dataSourceRef"]
        );
        assert_eq!(
            made(json!({ "dataSourceRef": { "kind": "K", "name": "n" } })).1[0],
            "spec.dataSource: Invalid value: \"K\": must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        );
        let (mut old, _) = made(json!({ "dataSource": other }));
        let new = old.clone();
        remove(&mut old, "spec.dataSourceRef");
        let mut errors = Vec::new();
        PersistentVolumeClaims.validate_update(&new, &old, &World::default().env(), &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
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
