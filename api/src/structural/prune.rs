//! Fields that a schema does not specify are dropped.

use super::{OBJECT_FIELDS, Structural, join};
use serde_json::Value;

/// Drops what is not specified and says where it stood: `spec.foo`, `spec.list[2].bar`.
///
/// `root` is an object of its own, whose `apiVersion`, `kind` and `metadata` stay.
pub fn prune(value: &mut Value, schema: &Structural, root: bool) -> Vec<String> {
    let mut dropped = Vec::new();
    visit(value, schema, root || schema.embedded_resource, "", &mut dropped);
    dropped
}

fn visit(value: &mut Value, schema: &Structural, object: bool, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.retain(|key, inner| {
                let here = || join(path, key);
                if object && OBJECT_FIELDS.contains(&key.as_str()) {
                    return true;
                }
                match schema.below(key) {
                    Some(below) => {
                        visit(inner, below, below.embedded_resource, &here(), dropped);
                        true
                    }
                    None if schema.preserve_unknown => true,
                    None => {
                        dropped.push(here());
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                visit(item, below, below.embedded_resource, &format!("{path}[{index}]"), dropped);
            }
        }
        _ => {}
    }
}
