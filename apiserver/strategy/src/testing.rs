//! A small world for the tests of strategies.

use super::{Env, Object, ObjectReader, Strategy};
use coracle_api::{FieldError, UserInfo};
use jiff::Timestamp;
use parking_lot::Mutex;
#[cfg(test)]
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects by `<plural>.<group>/<namespace>/<name>`.
#[derive(Default)]
pub struct World {
    pub objects: BTreeMap<String, Arc<Object>>,
    pub user: UserInfo,
    pub warnings: Mutex<Vec<String>>,
}

impl World {
    pub fn with(mut self, key: &str, object: Object) -> Self {
        self.objects.insert(key.to_owned(), Arc::new(object));
        self
    }

    pub fn env(&self) -> Env<'_> {
        Env { user: &self.user, group: "", now: Timestamp::UNIX_EPOCH, read: self, warnings: &self.warnings }
    }
}

impl ObjectReader for World {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.get(&format!("{resource}/{namespace}/{name}")).cloned()
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        let prefix =
            if namespace.is_empty() { format!("{resource}/") } else { format!("{resource}/{namespace}/") };
        self.objects.iter().filter(|(k, _)| k.starts_with(&prefix)).map(|(_, v)| v.clone()).collect()
    }
}

/// What the defaulted object is refused for when it is created, as the client reads it.
pub fn errors(strategy: &dyn Strategy, mut object: Object) -> Vec<String> {
    strategy.defaults(&mut object);
    let mut errors = Vec::new();
    strategy.validate(&object, &World::default().env(), &mut errors);
    texts(&errors)
}

/// What the change of a stored object is refused for.
pub fn update_errors(strategy: &dyn Strategy, new: &Object, old: &Object) -> Vec<String> {
    let mut errors = Vec::new();
    strategy.validate_update(new, old, &World::default().env(), &mut errors);
    texts(&errors)
}

/// What the change of a stored object's status is refused for.
pub fn status_errors(strategy: &dyn Strategy, new: &Object, old: &Object) -> Vec<String> {
    let mut errors = Vec::new();
    strategy.validate_status_update(new, old, &World::default().env(), &mut errors);
    texts(&errors)
}

pub fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Applies a JSON merge patch.
#[cfg(test)]
pub fn merge(target: &mut Value, patch: &Value) {
    json_patch::merge(target, patch);
}
