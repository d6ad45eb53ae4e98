//! The cache, for what it owns itself.

use crate::cache::Cache;
use coracle_api::Object;
use coracle_requests::Reader;
use std::sync::{Arc, Weak};

/// Reads from a cache without keeping it alive; one that is gone is empty.
pub(super) struct Behind(pub Weak<Cache>);

impl Reader for Behind {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.0.upgrade()?.get(resource, namespace, name)
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        self.0.upgrade().map(|cache| cache.list(resource, namespace)).unwrap_or_default()
    }

    fn list_where(&self, resource: &str, namespace: &str, field: &str, value: &str) -> Vec<Arc<Object>> {
        let cache = self.0.upgrade();
        cache.map(|cache| cache.list_where(resource, namespace, field, value)).unwrap_or_default()
    }

    fn changed_at(&self, resource: &str) -> Option<u64> {
        Reader::changed_at(&*self.0.upgrade()?, resource)
    }
}
