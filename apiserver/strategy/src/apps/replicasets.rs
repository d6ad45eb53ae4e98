//! ReplicaSets.

use super::*;
use crate::{Facts, FieldLabels};

pub struct ReplicaSets;

impl ResourceFacts for ReplicaSets {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for ReplicaSets {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::named_warnings(new, old, workloads::TEMPLATE)
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, workloads::TEMPLATE);
        if let Some(spec) = object_at(object, "spec") {
            default(spec, "replicas", 1);
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "replicas": 0 }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        workloads::non_negative(object, &["replicas", "minReadySeconds"], errors);
        let (template, path) = (at(object, workloads::TEMPLATE), Path::root("spec").field("template"));
        if workloads::selector_of_template(object, "deployment", "invalid label selector", errors) {
            workloads::long_running_template(template, "ReplicaSet", &path, errors);
        }
    }
}

impl UpdateStrategy for ReplicaSets {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.selector"], &mut Errors(errors));
    }
}

impl StatusStrategy for ReplicaSets {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        workloads::counts(new, &["replicas", "terminatingReplicas"], &parts, &mut Errors(errors));
    }
}

impl TableConvertor for ReplicaSets {
    fn columns(&self) -> &'static [Column] {
        workloads::REPLICA_COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        workloads::replica_row(object, now, table::selector(at(object, "spec.selector")))
    }
}

impl SelectableFields for ReplicaSets {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["status.replicas"], ..FieldLabels::VERSIONED }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("status.replicas", workloads::count(object, "status.replicas").to_string())]
    }
}

crate::usual!(ReplicaSets: DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);
