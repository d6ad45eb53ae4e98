//! A reader over objects in memory, for tests without a watch cache.

use crate::ObjectReader;
use coracle_api::Object;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Key = (String, String, String);

/// Objects by resource, namespace and name.
#[derive(Default)]
pub struct World {
    objects: RwLock<BTreeMap<Key, Arc<Object>>>,
    generation: AtomicU64,
}

impl World {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Adds or replaces; name and namespace come from the metadata.
    pub fn put(&self, resource: &str, object: Object) {
        self.objects.write().insert(key(resource, &object), Arc::new(object));
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes an object away that is there.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.objects.write().remove(&key).expect("the object was there");
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// A number that changes with the objects.
    pub fn generation(self: &Arc<Self>) -> Arc<dyn Fn() -> u64 + Send + Sync> {
        let world = self.clone();
        Arc::new(move || world.generation.load(Ordering::SeqCst))
    }
}

fn key(resource: &str, object: &Object) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (resource.to_owned(), text("namespace"), text("name"))
}

impl ObjectReader for World {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.objects.read().get(&(resource.to_owned(), namespace.to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        let objects = self.objects.read();
        let fits = |(r, n, _): &Key| r == resource && (namespace.is_empty() || n == namespace);
        objects.iter().filter(|(key, _)| fits(key)).map(|(_, object)| object.clone()).collect()
    }
}
