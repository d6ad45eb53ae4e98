//! Keys of a map, of which JSON has only texts.

use super::scalar::Resolved;
use super::{YamlError, go};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A map under construction. `1` and `"1"` are different keys that become the same one.
#[derive(Default)]
pub(super) struct Keys {
    map: Map<String, Value>,
    /// What those keys were that are no texts.
    others: BTreeMap<String, Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Float,
}

impl Keys {
    pub fn into_map(self) -> Map<String, Value> {
        self.map
    }

    /// The key as Go prints it, if it was there before. The later value counts.
    ///
    /// # Errors
    /// A key that has no text.
    pub fn set(&mut self, key: Resolved, value: Value) -> Result<Option<String>, YamlError> {
        let (text, shown, kind) = match key {
            Resolved::Text(text) => return Ok(self.set_text(text, value)),
            Resolved::Bool(key) => (key.to_string(), key.to_string(), Kind::Bool),
            Resolved::Int(key) => (key.to_string(), key.to_string(), Kind::Int),
            Resolved::Float(key) => (go::float_key(key), go::float(key), Kind::Float),
            Resolved::Null => return Err(unsupported("%!s(<nil>)", "<nil>".to_owned(), &value)),
            Resolved::Unsigned(key) => return Err(unsupported("uint64", format!("{key:#x}"), &value)),
        };
        let kind_before = self.others.insert(text.clone(), kind);
        let before = self.map.insert(text, value);
        Ok((before.is_some() && kind_before == Some(kind)).then_some(shown))
    }

    fn set_text(&mut self, key: String, value: Value) -> Option<String> {
        let shown = self.map.contains_key(&key).then(|| crate::go::quoted(&key));
        let was_other = !self.others.is_empty() && self.others.remove(&key).is_some();
        self.map.insert(key, value);
        shown.filter(|_| !was_other)
    }
}

fn unsupported(kind: &'static str, key: String, value: &Value) -> YamlError {
    YamlError::KeyType { kind, key, value: go::syntax(value) }
}
