//! The cache, for what it keeps alive itself.

use crate::cache::Cache;
use coracle_api::Object;
use coracle_requests::ObjectReader;
use std::sync::{Arc, OnceLock, Weak};

/// Reads from a cache without keeping it alive; one that is gone, or not there yet, is empty.
#[derive(Default)]
pub(super) struct WeakReader(OnceLock<Weak<Cache>>);

impl WeakReader {
    /// A second cache is not taken.
    pub fn read_from(&self, cache: &Arc<Cache>) {
        let _ = self.0.set(Arc::downgrade(cache));
    }

    fn cache(&self) -> Option<Arc<Cache>> {
        self.0.get()?.upgrade()
    }
}

impl ObjectReader for WeakReader {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.cache()?.get(resource, namespace, name)
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        self.cache().map(|cache| cache.list(resource, namespace)).unwrap_or_default()
    }

    fn list_where(&self, resource: &str, namespace: &str, field: &str, value: &str) -> Vec<Arc<Object>> {
        let cache = self.cache();
        cache.map(|cache| cache.list_where(resource, namespace, field, value)).unwrap_or_default()
    }

    fn changed_at(&self, resource: &str) -> Option<u64> {
        ObjectReader::changed_at(&*self.cache()?, resource)
    }
}
