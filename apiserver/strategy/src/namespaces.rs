//! Namespaces.

use super::table;
use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, StatusStrategy, TableConvertor,
    UpdateStrategy, copy_field, rules,
};
use crate::{Facts, FieldLabels};
use coracle_api::meta::NameRule;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct Namespaces;

impl ResourceFacts for Namespaces {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for Namespaces {
    fn name_rule(&self) -> NameRule {
        NameRule::Dns1123Label
    }

    /// The label by which selectors find a namespace by name (KEP-2161).
    fn defaults(&self, object: &mut Object) {
        let name = name(object).to_owned();
        if let Some(labels) = object_at(object, "metadata.labels").filter(|_| !name.is_empty()) {
            set(labels, "kubernetes.io/metadata.name", name);
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({ "phase": "Active" }));
        if let Some(spec) = object_at(object, "spec") {
            let finalizers = at_mut(spec, "finalizers").and_then(Value::as_array_mut);
            match finalizers {
                Some(list) if list.iter().any(|f| f == "kubernetes") => {}
                Some(list) => list.push("kubernetes".into()),
                None => set(spec, "finalizers", json!(["kubernetes"])),
            }
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        // Upstream names no index.
        let path = Path::root("spec").field("finalizers");
        for finalizer in strings_at(object, "spec.finalizers") {
            rules::qualified_name(finalizer, &path, errors);
            if !finalizer.contains('/') && finalizer != "kubernetes" {
                errors.invalid(
                    &path,
                    finalizer,
                    "name is neither a standard finalizer name nor is it fully qualified",
                );
            }
        }
    }
}

impl UpdateStrategy for Namespaces {
    /// Only the `finalize` subresource changes `spec.finalizers`.
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        copy_field(new, old, "status");
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for Namespaces {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let phase = str_at(new, "status.phase");
        let path = Path::root("status").field("Phase");
        match (has(new, "metadata.deletionTimestamp"), phase) {
            (false, "Active") | (true, "Terminating") => {}
            (false, _) => {
                Errors(errors).invalid(&path, phase, "may only be 'Active' if `deletionTimestamp` is empty");
            }
            (true, _) => {
                let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
                Errors(errors).invalid(&path, phase, detail);
            }
        }
    }
}

impl TableConvertor for Namespaces {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("Status", "Phase of the namespace"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), str_at(object, "status.phase").into(), table::age(object, now)]
    }
}

impl SelectableFields for Namespaces {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["status.phase"], ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("name", name(object).to_owned()), ("status.phase", str_at(object, "status.phase").to_owned())]
    }
}

crate::usual!(Namespaces: DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);
