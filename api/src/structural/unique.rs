//! Lists that are sets or maps hold nothing twice.

use super::Structural;
use crate::error::FieldError;
use crate::schema::ListType;
use serde_json::{Map, Value};

/// Whether a schema has sets or keyed lists anywhere, so that [`duplicates`] has something to find.
pub fn has_unique(schema: &Structural) -> bool {
    matches!(schema.list_type, Some(ListType::Set | ListType::Map))
        || schema.properties.values().any(has_unique)
        || schema.items.as_deref().is_some_and(has_unique)
        || schema.additional.as_deref().is_some_and(has_unique)
}

/// Every element of a set or of a keyed list that is there before, below `path`.
pub fn duplicates(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if let Some(below) = schema.below(key) {
                    duplicates(inner, below, &schema.place(path, key), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type {
                Some(ListType::Set) => twice(items, path, Value::clone, errors),
                Some(ListType::Map) => twice(items, path, |item| keys(item, schema), errors),
                _ => {}
            }
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                duplicates(item, below, &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

/// The fields that tell an element from the others.
pub(super) fn keys(item: &Value, schema: &Structural) -> Value {
    let known = schema.list_map_keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(known.collect::<Map<String, Value>>())
}

fn twice(items: &[Value], path: &str, mark: impl Fn(&Value) -> Value, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let mark = mark(item);
        if !seen.insert(mark.to_string()) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &mark));
        }
    }
}
