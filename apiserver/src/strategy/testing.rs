//! A small world for the tests of strategies.

use super::{Env, Object, Reader};
use coracle_api::UserInfo;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects by `<plural>.<group>/<namespace>/<name>`.
#[derive(Default)]
pub struct World {
    pub objects: BTreeMap<String, Arc<Object>>,
    pub user: UserInfo,
}

impl World {
    pub fn with(mut self, key: &str, object: Object) -> Self {
        self.objects.insert(key.to_owned(), Arc::new(object));
        self
    }

    pub fn env(&self) -> Env<'_> {
        Env { user: &self.user, now: Timestamp::UNIX_EPOCH, read: self }
    }
}

impl Reader for World {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.get(&format!("{resource}/{namespace}/{name}")).cloned()
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        let prefix =
            if namespace.is_empty() { format!("{resource}/") } else { format!("{resource}/{namespace}/") };
        self.objects.iter().filter(|(k, _)| k.starts_with(&prefix)).map(|(_, v)| v.clone()).collect()
    }
}

/// Applies a JSON merge patch.
pub fn merge(target: &mut Value, patch: &Value) {
    json_patch::merge(target, patch);
}
