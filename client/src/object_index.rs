//! Keys of an informer's objects, by something that several of them share.

use crate::object::ObjectKey;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Default)]
pub struct ObjectIndex {
    keys: HashMap<Arc<str>, BTreeSet<Arc<ObjectKey>>>,
}

impl ObjectIndex {
    /// Returns the value as it is kept here, once for all who share it.
    pub fn add(&mut self, value: &str, key: &Arc<ObjectKey>) -> Arc<str> {
        let value = self.keys.get_key_value(value).map_or_else(|| value.into(), |(known, _)| known.clone());
        self.keys.entry(value.clone()).or_default().insert(key.clone());
        value
    }

    pub fn remove(&mut self, value: &str, key: &Arc<ObjectKey>) {
        let Some(keys) = self.keys.get_mut(value) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(value);
        }
    }

    /// In the order of their keys.
    pub fn get(&self, value: &str) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.keys.get(value).into_iter().flatten()
    }

    /// Those of one namespace.
    pub fn get_in<'a>(&'a self, value: &str, namespace: &'a str) -> impl Iterator<Item = &'a Arc<ObjectKey>> {
        let from = ObjectKey::new(namespace, "");
        let keys = self.keys.get(value).map(|keys| keys.range::<ObjectKey, _>(&from..));
        keys.into_iter().flatten().take_while(move |key| key.namespace == namespace)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
