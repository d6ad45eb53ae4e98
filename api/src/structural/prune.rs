//! Fields that a schema does not specify are dropped.

use super::{OBJECT_FIELDS, Structural, join};
use serde_json::Value;

/// Drops what is not specified and says where it stood, in the order of the names: `spec.foo`, `spec.list[2].bar`.
///
/// `root` is an object of its own, whose `apiVersion`, `kind` and `metadata` stay.
pub fn prune(value: &mut Value, schema: &Structural, root: bool) -> Vec<String> {
    let mut walk = Walk { path: String::new(), dropped: Vec::new() };
    walk.value(value, schema, root || schema.embedded_resource, schema.preserve_unknown);
    walk.dropped.sort();
    walk.dropped
}

struct Walk {
    path: String,
    dropped: Vec<String>,
}

impl Walk {
    /// `object`: whether this is one of its own. `keeps`: whether unknown fields stay here.
    fn value(&mut self, value: &mut Value, schema: &Structural, object: bool, keeps: bool) {
        match value {
            Value::Object(map) => map.retain(|key, inner| {
                if object && OBJECT_FIELDS.contains(&key.as_str()) {
                    return true;
                }
                let Some(below) = schema.below(key) else {
                    if !keeps {
                        self.dropped.push(join(&self.path, key));
                    }
                    return keeps;
                };
                if inner.is_object() || inner.is_array() {
                    let length = self.path.len();
                    if length > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(key);
                    self.value(inner, below, below.embedded_resource, below.preserve_unknown);
                    self.path.truncate(length);
                }
                true
            }),
            Value::Array(items) => {
                let Some(below) = &schema.items else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    if !item.is_object() && !item.is_array() {
                        continue;
                    }
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    // A list that keeps what it does not know does so in its items.
                    self.value(item, below, below.embedded_resource, keeps || below.preserve_unknown);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }
}
