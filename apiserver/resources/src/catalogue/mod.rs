//! Which resources are served right now: the built-in ones, and those that CustomResourceDefinitions add.
//!
//! Custom ones are read lazily from the watch cache: whoever asks after a definition has changed makes the new
//! [`Snapshot`], so an answer is never older than what the cache shows. Built-in resources are looked up first and cost
//! what they cost without definitions.

mod behind;
mod build;
mod definition;
mod served;
mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use definition::{Conversion, Definition, PrinterColumn, ScalePaths, Version, newer_first};
pub use served::{Served, StrategyRef};
pub use snapshot::{Entry, Snapshot};

use crate::cache::Cache;
use crate::conversion::Converter;
use crate::custom::CustomResource;
use behind::Behind;
use coracle_api::Resource;
use coracle_api::catalogue as built_in;
use coracle_store::Revision;
use coracle_strategy as strategy;
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, OnceLock, Weak};

/// Where CustomResourceDefinitions are kept.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// One for a server, shared; see [`Cache::catalogue`].
#[derive(Default)]
pub struct Catalogue {
    cache: OnceLock<Weak<Cache>>,
    converter: OnceLock<Arc<Converter>>,
    present: RwLock<Arc<Snapshot>>,
    /// Held while a snapshot is made, so that it is made once.
    making: Mutex<()>,
}

impl Catalogue {
    /// Custom resources are found from now on. The cache owns the catalogue, so it is not kept alive by it.
    pub(crate) fn attach(&self, cache: &Arc<Cache>) {
        // A second cache would be a second catalogue's.
        let _ = self.cache.set(Arc::downgrade(cache));
    }

    /// The custom resources as of now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let Some(cache) = self.cache.get().and_then(Weak::upgrade) else {
            return self.present.read().clone();
        };
        let changed = cache.changed_at(DEFINITIONS);
        let fresh = |known: &Arc<Snapshot>| known.revision >= changed;
        if let Some(known) = Some(self.present.read().clone()).filter(fresh) {
            return known;
        }
        let _alone = self.making.lock();
        let before = self.present.read().clone();
        if fresh(&before) {
            return before;
        }
        let after = Arc::new(build::snapshot(
            &before,
            changed,
            &cache.snapshot(DEFINITIONS).objects,
            self.converter(),
        ));
        *self.present.write() = after.clone();
        after
    }

    /// The way to conversion webhooks.
    fn converter(&self) -> &Arc<Converter> {
        self.converter.get_or_init(|| {
            let cache = self.cache.get().cloned().unwrap_or_default();
            Arc::new(Converter::new(Arc::new(Behind(cache))))
        })
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

    /// The strategy of what is kept under `<plural>.<group>`, in the version it is kept in.
    pub fn strategy_of(&self, key: &str) -> Option<StrategyRef> {
        if let Some(resource) = built_in::by_storage_key(key) {
            return Some(StrategyRef::BuiltIn(strategy::for_resource(&resource.group, &resource.plural)));
        }
        self.snapshot().entry(key).map(|entry| StrategyRef::Custom(entry.stored().clone()))
    }

    pub fn strategy(&self, resource: &Resource) -> Option<StrategyRef> {
        self.find(&resource.group, &resource.version, &resource.plural).map(|served| served.strategy())
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

impl Snapshot {
    /// Nothing known yet.
    fn empty() -> Self {
        Self { revision: Revision(0), generation: 0, entries: Vec::new() }
    }
}

impl Default for Snapshot {
    fn default() -> Self {
        Self::empty()
    }
}
