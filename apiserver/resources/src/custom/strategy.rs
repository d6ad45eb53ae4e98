//! What the generic path asks of a custom resource.

use super::{CustomResource, fields, validate};
use coracle_api::{FieldError, Object};
use coracle_strategy::Facts;
use coracle_strategy::{
    Column, CreateStrategy, DEFAULT_COLUMNS, Env, ResourceFacts, SelectableFields, StatusStrategy,
    TableConvertor, UpdateStrategy, copy_field,
};
use jiff::Timestamp;
use serde_json::Value;

impl ResourceFacts for CustomResource {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }

    fn has_status(&self) -> bool {
        self.version().has_status
    }
}

impl CreateStrategy for CustomResource {
    /// Drops what the schema does not specify, and fills in its defaults: webhooks may have added the one and left out
    /// the other.
    fn defaults(&self, object: &mut Object) {
        self.settle(object);
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        if self.version().has_status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
            // It is the schema that may say what a status is without one.
            self.schema().fill(object);
        }
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        validate::created(self, object, errors);
    }

    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        validate::warnings(new, old)
    }
}

impl UpdateStrategy for CustomResource {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        if self.version().has_status {
            copy_field(new, old, "status");
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        env.warn(validate::updated(self, new, old, false, errors));
    }

    /// Everything but metadata counts; a status of its own has been put back already.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
        let counts = |key: &&String| *key != "metadata";
        new.keys().filter(counts).any(|key| new.get(key) != old.get(key))
            || old.keys().filter(counts).any(|key| !new.contains_key(key))
    }
}

impl StatusStrategy for CustomResource {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    /// All but the status stays as it was, but for who owns what.
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        let mut kept = old.clone();
        copy_field(&mut kept, new, "status");
        let owners = new["metadata"].get("managedFields").cloned();
        if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
            match owners {
                Some(list) => metadata.insert("managedFields".to_owned(), list),
                None => metadata.remove("managedFields"),
            };
        }
        *new = kept;
    }

    fn validate_status_update(&self, new: &Object, old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        env.warn(validate::updated(self, new, old, true, errors));
    }
}

impl TableConvertor for CustomResource {
    fn columns(&self) -> &'static [Column] {
        DEFAULT_COLUMNS
    }

    fn column_definitions(&self) -> Value {
        self.table().definitions()
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        self.table().row(object, now)
    }
}

impl SelectableFields for CustomResource {
    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        fields::of(self, object)
    }

    fn selects_anywhere(&self) -> bool {
        true
    }
}

coracle_strategy::usual!(CustomResource: DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);
