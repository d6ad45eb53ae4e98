//! Storage classes and classes of volume attributes.

use super::*;
use crate::Facts;
use crate::pods::warnings::{Notes, old_label};
use coracle_api::storage::DEFAULT_MARKS;
use std::collections::HashSet;

pub struct StorageClasses;
pub struct VolumeAttributesClasses;

/// Upstream's limits of what a class tells its driver.
const MAX_PARAMETERS: usize = 512;
const PARAMETERS_MAX_BYTES: usize = 256 * 1024;

impl ResourceFacts for StorageClasses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }
}

impl CreateStrategy for StorageClasses {
    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut notes = Notes::default();
        for (i, term) in list_at(new, "allowedTopologies").iter().enumerate() {
            let path = Path::root("allowedTopologies").index(i).field("matchLabelExpressions");
            for (j, requirement) in list_at(term, "matchLabelExpressions").iter().enumerate() {
                if let Some(text) = old_label(str_at(requirement, "key")) {
                    notes.add(&path.index(j).field("key"), text);
                }
            }
        }
        notes.found
    }

    fn defaults(&self, object: &mut Object) {
        default_str(object, "reclaimPolicy", "Delete");
        default_str(object, "volumeBindingMode", "Immediate");
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        provisioner(object, "provisioner", errors);
        rules::one_of(object, "reclaimPolicy", &["Delete", "Retain"], &Path::root(""), errors);
        let modes = &["Immediate", "WaitForFirstConsumer"];
        rules::one_of(object, "volumeBindingMode", modes, &Path::root(""), errors);
        parameters(object, errors);
        topologies(list_at(object, "allowedTopologies"), errors);
    }
}

impl UpdateStrategy for StorageClasses {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let fields = &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"];
        rules::immutable(new, old, fields, &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for StorageClasses {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Provisioner", "Who makes the volumes"),
                table::string("ReclaimPolicy", "What happens to a volume once its claim is gone"),
                table::string("VolumeBindingMode", "When claims are bound"),
                table::string("AllowVolumeExpansion", "Whether volumes may grow"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let annotations = at(object, "metadata.annotations");
        let marked = DEFAULT_MARKS.iter().any(|mark| annotations.get(mark).is_some_and(|v| v == "true"));
        vec![
            format!("{}{}", name(object), if marked { " (default)" } else { "" }).into(),
            str_at(object, "provisioner").into(),
            str_at(object, "reclaimPolicy").into(),
            str_at(object, "volumeBindingMode").into(),
            bool_at(object, "allowVolumeExpansion").into(),
            table::age(object, now),
        ]
    }
}

crate::usual!(StorageClasses: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// Where volumes of the class may be: each term with values, no key twice, no term twice.
fn topologies(terms: &[Value], errors: &mut Errors) {
    for (i, term) in terms.iter().enumerate() {
        let path = Path::root("allowedTopologies").index(i);
        let mut keys = HashSet::new();
        for (j, requirement) in list_at(term, "matchLabelExpressions").iter().enumerate() {
            let here = path.field("matchLabelExpressions").index(j);
            let (key, values) = (str_at(requirement, "key"), list_at(requirement, "values"));
            if values.is_empty() {
                errors.required(&here.field("values"), "");
            }
            for (k, value) in values.iter().enumerate().filter(|(k, value)| values[..*k].contains(value)) {
                errors.duplicate(&here.field("values").index(k), value.clone());
            }
            rules::qualified_name(key, &here.field("key"), errors);
            if !keys.insert(key) {
                errors.duplicate(&here.field("key"), key);
            }
        }
        if keys.is_empty() || terms[..i].contains(term) {
            errors.duplicate(&path.field("matchLabelExpressions"), "");
        }
    }
}

fn parameters(object: &Object, errors: &mut Errors) {
    let path = Path::root("parameters");
    if entries_at(object, "parameters").count() > MAX_PARAMETERS {
        return errors.too_long(&path, MAX_PARAMETERS);
    }
    let mut bytes = 0;
    for (key, value) in entries_at(object, "parameters") {
        if key.is_empty() {
            errors.invalid(&path, "", "field can not be empty.");
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > PARAMETERS_MAX_BYTES {
        errors.too_long(&path, PARAMETERS_MAX_BYTES);
    }
}

fn provisioner(object: &Object, field: &str, errors: &mut Errors) {
    match str_at(object, field) {
        "" => errors.required(&Path::root(field), ""),
        text => rules::qualified_name(&text.to_lowercase(), &Path::root(field), errors),
    }
}

impl ResourceFacts for VolumeAttributesClasses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }
}

impl CreateStrategy for VolumeAttributesClasses {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        provisioner(object, "driverName", errors);
        parameters(object, errors);
        if entries_at(object, "parameters").next().is_none() {
            errors.required(&Path::root("parameters"), "must contain at least one key/value pair");
        }
    }
}

impl UpdateStrategy for VolumeAttributesClasses {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        for field in ["driverName", "parameters"] {
            if at(new, field) != at(old, field) {
                errors.forbidden(&Path::root(field), &format!("updates to {field} are forbidden."));
            }
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for VolumeAttributesClasses {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("DriverName", "Driver of the volumes"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), str_at(object, "driverName").into(), table::age(object, now)]
    }
}

crate::usual!(VolumeAttributesClasses: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
