//! ControllerRevisions.

use super::*;
use crate::Facts;

pub struct ControllerRevisions;

impl ResourceFacts for ControllerRevisions {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for ControllerRevisions {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::non_negative_at(object, "revision", &Path::root(""), errors);
        if !has(object, "data") {
            errors.required(&Path::root("data"), "data is mandatory");
        }
    }
}

impl UpdateStrategy for ControllerRevisions {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["data"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for ControllerRevisions {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Controller", "Owner of the revision"),
                table::string("Revision", "Number of the revision"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let owner = list_at(object, "metadata.ownerReferences").iter().find(|o| bool_at(o, "controller"));
        let controller = owner.map(|owner| {
            let group = str_at(owner, "apiVersion").rsplit_once('/').map(|(group, _)| format!(".{group}"));
            let kind = str_at(owner, "kind").to_lowercase();
            format!("{kind}{}/{}", group.unwrap_or_default(), str_at(owner, "name"))
        });
        vec![
            name(object).into(),
            table::cell_or_none(&controller.unwrap_or_default()),
            workloads::count(object, "revision").into(),
            table::age(object, now),
        ]
    }
}

crate::usual!(ControllerRevisions: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
