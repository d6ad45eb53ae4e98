//! Which resources are served right now: the built-in ones, and those that CustomResourceDefinitions add.
//!
//! The watch cache hands over the definitions whenever they change, just before it shows them, so an answer is never
//! older than what the cache shows. Built-in resources are looked up first and cost what they cost without definitions.

mod build;
mod served;
mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod weak_reader;

pub use served::{Served, StrategyRef};
pub use snapshot::{Entry, Snapshot};

use crate::cache::{Cache, Defined, Objects, ServedResources};
use crate::conversion::Converter;
use crate::custom::CustomResource;
use coracle_api::Resource;
use coracle_api::catalogue as built_in;
use coracle_requests::CustomVersion;
use coracle_strategy::SelectableFields;
use parking_lot::RwLock;
use std::sync::Arc;
use weak_reader::WeakReader;

/// One for a server, shared; see [`Resources`](crate::Resources).
pub struct Catalogue {
    /// What conversion webhooks are found by.
    reader: Arc<WeakReader>,
    converter: Arc<Converter>,
    present: RwLock<Arc<Snapshot>>,
}

impl Default for Catalogue {
    fn default() -> Self {
        let reader = Arc::new(WeakReader::default());
        Self { converter: Arc::new(Converter::new(reader.clone())), reader, present: RwLock::default() }
    }
}

impl Catalogue {
    /// Conversion webhooks are found from now on. The cache keeps the catalogue alive, so it is not kept alive by it.
    pub(crate) fn read_from(&self, cache: &Arc<Cache>) {
        self.reader.read_from(cache);
    }

    /// The custom resources as of now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.present.read().clone()
    }

    /// Changes with every change of what is served; equal values mean that nothing has changed in between.
    pub fn generation(&self) -> u64 {
        self.snapshot().generation
    }

    /// By the three parts of a request's path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Served> {
        if let Some(resource) = built_in::by_plural(group, version, plural) {
            return Some(Served::BuiltIn(resource));
        }
        self.snapshot().served(group, version, plural).cloned().map(Served::Custom)
    }

    pub fn by_plural(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.find(group, version, plural).map(|served| served.resource().clone())
    }

    /// By what an object says of itself.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        if let Some(resource) = built_in::by_kind(group, version, kind) {
            return Some(resource.clone());
        }
        let snapshot = self.snapshot();
        let mut served = snapshot.resources();
        served
            .find(|c| c.resource.kind == kind && is_of(&c.resource, group, version))
            .map(|c| c.resource.clone())
    }

    /// The resource whose own form is the stored one, by `<plural>.<group>` of a storage key. Of custom resources it may
    /// be a version that is not served.
    pub fn by_storage_key(&self, key: &str) -> Option<Arc<Resource>> {
        if let Some(resource) = built_in::by_storage_key(key) {
            return Some(resource.clone());
        }
        self.snapshot().entry(key).map(|entry| entry.stored().resource.clone())
    }

    /// Every served version of a resource, the preferred one first.
    pub fn versions(&self, group: &str, plural: &str) -> Vec<Arc<Resource>> {
        let same = |r: &&Arc<Resource>| r.group == group && r.plural == plural;
        let known: Vec<_> = built_in::catalogue().iter().filter(same).cloned().collect();
        if !known.is_empty() {
            return known;
        }
        self.snapshot().versions(group, plural)
    }

    /// The custom resource of a version that is served.
    pub fn custom(&self, group: &str, version: &str, plural: &str) -> Option<Arc<CustomResource>> {
        self.snapshot().served(group, version, plural).cloned()
    }
}

fn is_of(resource: &Resource, group: &str, version: &str) -> bool {
    resource.group == group && resource.version == version
}

impl ServedResources for Catalogue {
    fn index_of(&self, key: &str) -> Option<Arc<dyn SelectableFields>> {
        Some(self.snapshot().entry(key)?.stored().clone())
    }

    fn define(&self, definitions: &Objects) -> Vec<Defined> {
        let after = Arc::new(build::snapshot(&self.snapshot(), definitions, &self.converter));
        *self.present.write() = after.clone();
        let defined = |entry: &Entry| Defined {
            key: entry.definition.key.as_str().into(),
            serial: entry.definition.serial,
            index: entry.stored().clone(),
        };
        after.entries().iter().map(defined).collect()
    }

    fn resource_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.by_kind(group, version, kind)
    }

    fn resource_of_plural(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.by_plural(group, version, plural)
    }

    fn custom_version(&self, group: &str, version: &str, plural: &str) -> Option<Arc<dyn CustomVersion>> {
        Some(self.custom(group, version, plural)?)
    }
}
