//! DeviceClasses, ResourceClaims and ResourceClaimTemplates.

use super::super::pods::validate::volumes::template_metadata;
use super::*;
use crate::{Facts, keep_metadata};

pub struct DeviceClasses;
pub struct ResourceClaims;
pub struct ResourceClaimTemplates;

/// Upstream's number of configurations of a class.
const CONFIG_MAX: usize = 32;
const NAME_AND_AGE: &[Column] = &[table::NAME, table::AGE];

impl ResourceFacts for DeviceClasses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }
}

impl CreateStrategy for DeviceClasses {
    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        selectors(spec, &path, errors);
        let here = path.field("config");
        each(list_at(spec, "config"), CONFIG_MAX, &here, no_key, errors, &mut configuration);
        let extended = str_at(spec, "extendedResourceName");
        if has(spec, "extendedResourceName") && !validation::is_extended_resource(extended) {
            let here = path.field("extendedResourceName");
            errors.invalid(&here, extended, "must be a valid extended resource name");
        }
    }
}

impl TableConvertor for DeviceClasses {
    fn columns(&self) -> &'static [Column] {
        NAME_AND_AGE
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), table::age(object, now)]
    }
}

crate::usual!(DeviceClasses: UpdateStrategy, StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

impl ResourceFacts for ResourceClaims {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for ResourceClaims {
    fn defaults(&self, object: &mut Object) {
        object_at(object, "spec").into_iter().for_each(requests::defaults);
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({}));
    }

    fn validate_create(&self, object: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        admin_access(object, requests::asks_for_admin_access(&object["spec"]), env, errors);
        requests::check(&object["spec"], &Path::root("spec"), errors);
    }
}

impl UpdateStrategy for ResourceClaims {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for ResourceClaims {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        keep_metadata(new, old);
        status::drop_deallocated(new, old);
    }

    fn validate_status_update(&self, new: &Object, old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let granted = status::has_admin_access(old);
        admin_access(new, status::has_admin_access(new).filter(|_| granted.is_none()), env, errors);
        status::check(new, old, errors);
    }
}

impl TableConvertor for ResourceClaims {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("State", "Whether devices are allocated and in use"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let deleted = has(object, "metadata.deletionTimestamp");
        let allocated = has(object, "status.allocation");
        let states = [
            ("deleted", deleted),
            ("pending", !allocated && !deleted),
            ("allocated", allocated),
            ("reserved", allocated && !list_at(object, "status.reservedFor").is_empty()),
        ];
        let states: Vec<&str> = states.into_iter().filter(|s| s.1).map(|s| s.0).collect();
        vec![name(object).into(), states.join(",").into(), table::age(object, now)]
    }
}

crate::usual!(ResourceClaims: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

impl ResourceFacts for ResourceClaimTemplates {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }
}

impl CreateStrategy for ResourceClaimTemplates {
    fn defaults(&self, object: &mut Object) {
        object_at(object, "spec.spec").into_iter().for_each(requests::defaults);
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate_create(&self, object: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        let asking = requests::asks_for_admin_access(at(object, "spec.spec"));
        admin_access(object, asking, env, errors);
        template_metadata(at(object, "spec.metadata"), &path.field("metadata"), errors);
        requests::check(at(object, "spec.spec"), &path.field("spec"), errors);
    }
}

impl UpdateStrategy for ResourceClaimTemplates {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for ResourceClaimTemplates {
    fn columns(&self) -> &'static [Column] {
        NAME_AND_AGE
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), table::age(object, now)]
    }
}

crate::usual!(ResourceClaimTemplates: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
