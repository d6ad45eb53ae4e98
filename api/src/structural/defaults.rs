//! Values that a schema gives to what is missing.

use super::Structural;
use serde_json::Value;

/// Gives every missing field its default, and every null that may not be null.
pub fn fill(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let missing = map.get(name).is_none_or(|v| v.is_null() && !property.nullable);
                if missing {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, inner) in map.iter_mut() {
                let Some(below) = schema.below(key) else { continue };
                replace_null(inner, below);
                fill(inner, below);
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for item in items {
                replace_null(item, below);
                fill(item, below);
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, schema: &Structural) {
    if let (Value::Null, false, Some(default)) = (&value, schema.nullable, &schema.default) {
        *value = default.clone();
    }
}

/// Drops nulls of fields and entries of maps that may not be null and have no default: they count as not given.
pub fn drop_nulls(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(map) => map.retain(|key, inner| {
            let Some(below) = schema.below(key) else { return true };
            if inner.is_null() && !below.nullable && below.default.is_none() {
                return false;
            }
            drop_nulls(inner, below);
            true
        }),
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls(item, below));
            }
        }
        _ => {}
    }
}
