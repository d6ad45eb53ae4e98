//! ReplicationControllers.

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, StatusStrategy, TableConvertor, rules,
    table, workloads,
};
use crate::{Facts, FieldLabels};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct ReplicationControllers;

impl ResourceFacts for ReplicationControllers {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for ReplicationControllers {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::named_warnings(new, old, workloads::TEMPLATE)
    }

    /// The labels of the template are also the selector and the labels of the controller, unless it has its own.
    fn defaults(&self, object: &mut Object) {
        // Absent is a mistake of its own here.
        if has(object, workloads::TEMPLATE) {
            workloads::template_defaults(object, workloads::TEMPLATE);
        }
        let labels = at(object, "spec.template.metadata.labels").clone();
        let own = entries_at(object, "metadata.labels").next().is_some();
        let selector = entries_at(object, "spec.selector").next().is_some();
        let given = labels.as_object().is_some_and(|l| !l.is_empty());
        if let Some(metadata) = object_at(object, "metadata").filter(|_| given && !own) {
            set(metadata, "labels", labels.clone());
        }
        let Some(spec) = object_at(object, "spec") else { return };
        if given && !selector {
            set(spec, "selector", labels);
        }
        default(spec, "replicas", 1);
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "replicas": 0 }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        workloads::non_negative(object, &["replicas", "minReadySeconds"], errors);
        let (selector, template) = (at(object, "spec.selector"), at(object, workloads::TEMPLATE));
        if entries_at(object, "spec.selector").next().is_none() {
            errors.required(&path.field("selector"), "");
        }
        if template.is_null() {
            errors.required(&path.field("template"), "");
            return;
        }
        let labels = at(template, "metadata.labels");
        if !rules::selects(&json!({ "matchLabels": selector }), labels) {
            let here = path.field("template").field("metadata").field("labels");
            errors.invalid(&here, labels.clone(), "`selector` does not match template `labels`");
        }
        workloads::long_running_template(template, "ReplicationController", &path.field("template"), errors);
    }
}

impl StatusStrategy for ReplicationControllers {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        workloads::counts(new, &["replicas"], &parts, &mut Errors(errors));
    }
}

impl TableConvertor for ReplicationControllers {
    fn columns(&self) -> &'static [Column] {
        workloads::REPLICA_COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        workloads::replica_row(object, now, table::labels(at(object, "spec.selector")))
    }
}

impl SelectableFields for ReplicationControllers {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["status.replicas"], ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("status.replicas", workloads::count(object, "status.replicas").to_string())]
    }
}

crate::usual!(ReplicationControllers: UpdateStrategy, DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);
