//! PodTemplates and RuntimeClasses.

use super::pods::validate::{resources, toleration};
use super::pods::warnings::{Notes, old_label};
use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, TableConvertor, UpdateStrategy, rules, table, workloads,
};
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;

pub struct PodTemplates;
pub struct RuntimeClasses;

impl ResourceFacts for PodTemplates {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }
}

impl CreateStrategy for PodTemplates {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::warnings(new, old, "template")
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, "template");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        workloads::pod_template(at(object, "template"), &Path::root("template"), &mut Errors(errors));
    }
}

impl UpdateStrategy for PodTemplates {
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        new.get("template") != old.get("template")
    }
}

impl TableConvertor for PodTemplates {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Containers", "Names of the containers"),
                table::string("Images", "Images of the containers"),
                table::string("Pod Labels", "Labels of the pods"),
            ]
        }
    }

    fn row(&self, object: &Object, _now: Timestamp) -> Vec<Value> {
        let [containers, images] = table::containers_and_images(at(object, "template.spec"));
        let labels = table::labels(at(object, "template.metadata.labels"));
        vec![name(object).into(), containers, images, labels.into()]
    }
}

crate::usual!(PodTemplates: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

impl ResourceFacts for RuntimeClasses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }
}

impl CreateStrategy for RuntimeClasses {
    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut notes = Notes::default();
        for (label, _) in entries_at(new, "scheduling.nodeSelector") {
            if let Some(text) = old_label(label) {
                notes.add(&Path::root("scheduling").field("nodeSelector"), text);
            }
        }
        notes.found
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::label(str_at(object, "handler"), &Path::root("handler"), errors);
        // Upstream calls it so.
        let path = Path::root("overhead").field("limits");
        for (resource, quantity) in entries_at(object, "overhead.podFixed") {
            resources::name(resource, &path.key(resource), errors);
            resources::non_negative(quantity, &path.key(resource), errors);
        }
        let path = Path::root("scheduling");
        rules::labels(at(object, "scheduling.nodeSelector"), &path.field("nodeSelector"), errors);
        let all = list_at(object, "scheduling.tolerations");
        for (i, one) in all.iter().enumerate() {
            let here = path.field("tolerations").index(i);
            toleration(one, &here, errors);
            if all[..i].contains(one) {
                let shown = rules::internal::shown(one, rules::internal::TOLERATION);
                errors.0.push(FieldError::duplicate_as(&here, &shown));
            }
        }
    }
}

impl UpdateStrategy for RuntimeClasses {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["handler"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl TableConvertor for RuntimeClasses {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("Handler", "Handler of the container runtime"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), str_at(object, "handler").into(), table::age(object, now)]
    }
}

crate::usual!(RuntimeClasses: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
