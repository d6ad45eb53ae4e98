//! What the key space holds of a key.

use super::{KeyValue, Revision, Value};
use imbl::OrdMap;
use std::sync::Arc;

pub(super) type Present = OrdMap<Arc<str>, Item>;

/// A value with its revisions, shared with every reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub value: Value,
    pub created: Revision,
    pub modified: Revision,
}

impl Item {
    pub fn with_key(&self, key: &Arc<str>) -> KeyValue {
        KeyValue {
            key: key.clone(),
            value: self.value.clone(),
            created: self.created,
            modified: self.modified,
        }
    }
}

impl From<&KeyValue> for Item {
    fn from(kv: &KeyValue) -> Self {
        Self { value: kv.value.clone(), created: kv.created, modified: kv.modified }
    }
}
