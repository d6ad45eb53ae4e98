//! ConfigMaps.

use super::table;
use super::value::*;
use super::{Column, CreateStrategy, Env, ResourceFacts, TableConvertor, UpdateStrategy, rules};
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;

pub struct ConfigMaps;

/// Bytes of all values of one ConfigMap or Secret, upstream's limit.
pub const MAX_BYTES: usize = 1024 * 1024;

impl ResourceFacts for ConfigMaps {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for ConfigMaps {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let mut bytes = 0;
        for (key, value) in entries_at(object, "data") {
            let path = Path::root("data").key(key);
            rules::config_key(key, &path, errors);
            if at(object, "binaryData").get(key).is_some() {
                errors.invalid(&path, key.as_str(), "duplicate of key present in binaryData");
            }
            bytes += value.as_str().map_or(0, str::len);
        }
        for (key, value) in entries_at(object, "binaryData") {
            rules::config_key(key, &Path::root("binaryData").key(key), errors);
            bytes += value.as_str().map_or(0, decoded_len);
        }
        if bytes > MAX_BYTES {
            // A path without a name, as upstream prints it.
            errors.too_long(&Path::root("[]"), MAX_BYTES);
        }
    }
}

impl UpdateStrategy for ConfigMaps {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        frozen(new, old, &["data", "binaryData"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for ConfigMaps {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("Data", "Number of entries"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let count = entries_at(object, "data").count() + entries_at(object, "binaryData").count();
        vec![name(object).into(), count.into(), table::age(object, now)]
    }
}

crate::usual!(ConfigMaps: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// Bytes that a base64 text stands for.
pub fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// What an immutable object must keep: the mark itself and its contents.
pub fn frozen(new: &Object, old: &Object, contents: &[&str], errors: &mut Errors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !bool_at(old, "immutable") {
        return;
    }
    if !bool_at(new, "immutable") {
        errors.forbidden(&Path::root("immutable"), DETAIL);
    }
    for field in contents {
        if at(new, field) != at(old, field) {
            errors.forbidden(&Path::root(field), DETAIL);
        }
    }
}
