//! The generic path of every resource: create, get, list, watch, update, patch, delete.
//!
//! A resource contributes its [`Strategy`]. Resources are known by name only where upstream has a handler of its own, too: binding
//! and eviction ([`pods`]), [`resize`], and the small rules of [`subresource`] and [`delete`].

mod admission;
pub mod apply;
mod collection;
mod commit;
mod continuation;
mod conversion;
mod create;
pub mod decode;
mod delete;
pub mod list;
mod metadata;
pub mod ownership;
pub mod patch;
mod pods;
mod resize;
mod scale;
pub mod selection;
pub mod storage_version;
pub mod subresource;
pub mod update;
mod watch;

pub use commit::Written;
pub use delete::Deleted;
pub use list::Page;
pub use patch::Patch;
pub use update::Part;

pub use watch::{Message, Watch};

use coracle_api::catalogue::Resource;
use coracle_api::{ApiError, UserInfo};
pub use coracle_requests::admission::{
    Admission, AdmitAll, Attributes, Kind, Operation, RequestOptions, VersionConverter, kind_of,
};
pub use coracle_requests::{
    DeleteOptions, ListOptions, Propagation, Query, Selectors, SentOptions, WriteOptions, store_error,
};
use coracle_resources::cache::{Cache, CachedObject};
use coracle_resources::catalogue::{Catalogue, StrategyRef};
use coracle_store::{KeyValue, Store, StoreError};
use coracle_strategy::Env;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How long an acknowledged write may take to become visible. It takes microseconds; only a stalled process
/// comes near this.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Attempts of a write whose conflict is not the client's business, as upstream's `patchRetryLimit`.
const ATTEMPTS: usize = 5;

pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

pub struct Registry {
    pub store: Arc<dyn Store>,
    pub cache: Arc<Cache>,
    /// Which resources are served, built in and custom.
    pub catalogue: Arc<Catalogue>,
    pub admission: Arc<dyn Admission>,
    pub clock: Clock,
}

/// One request to one resource.
pub struct Scope<'a> {
    pub registry: &'a Registry,
    pub resource: &'a Arc<Resource>,
    pub strategy: StrategyRef,
    /// Empty for cluster-scoped resources, and for collections over all namespaces.
    pub namespace: &'a str,
    /// Empty for collections.
    pub name: &'a str,
    pub subresource: &'a str,
    pub user: &'a UserInfo,
    pub now: Timestamp,
    /// For the client, as `Warning` headers.
    pub warnings: Mutex<Vec<String>>,
}

impl Scope<'_> {
    fn key(&self, name: &str) -> Arc<str> {
        format!("{}/{}/{name}", self.resource.storage.key, self.namespace).into()
    }

    /// Of the keys of the collection.
    fn prefix(&self) -> String {
        match self.namespace {
            "" => format!("{}/", self.resource.storage.key),
            namespace => format!("{}/{namespace}/", self.resource.storage.key),
        }
    }

    fn env(&self) -> Env<'_> {
        Env {
            user: self.user,
            group: &self.resource.group,
            now: self.now,
            read: &*self.registry.cache,
            warnings: &self.warnings,
        }
    }

    pub fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.lock().extend(warnings);
    }

    /// As [`warn`](Self::warn), for steps that are repeated after a conflict.
    pub fn warn_once(&self, warnings: Vec<String>) {
        let mut known = self.warnings.lock();
        for warning in warnings {
            if !known.contains(&warning) {
                known.push(warning);
            }
        }
    }

    fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, name)
    }

    fn modified(&self, name: &str) -> ApiError {
        ApiError::modified(&self.resource.group, &self.resource.plural, name)
    }

    fn conflict(&self, name: &str, why: &str) -> ApiError {
        ApiError::conflict(&self.resource.group, &self.resource.plural, name, why)
    }

    /// The present object, from the cache, or after a failed guard straight from the store.
    async fn current(&self, name: &str, fresh: bool) -> Result<Option<Arc<CachedObject>>, ApiError> {
        if !fresh {
            return self.cached(name);
        }
        let stored: Option<KeyValue> = self.registry.store.get(&self.key(name)).await.map_err(store_error)?;
        Ok(stored.map(|kv| Arc::new(CachedObject::new(&kv, Some(&*self.strategy)))))
    }

    pub fn get(&self) -> Result<Arc<CachedObject>, ApiError> {
        self.cached(self.name)?.ok_or_else(|| self.not_found(self.name))
    }

    fn cached(&self, name: &str) -> Result<Option<Arc<CachedObject>>, ApiError> {
        let found = self.registry.cache.find(&self.resource.storage.key, self.namespace, name);
        if found.is_none() {
            let key = self.key(name);
            self.check_readable(&key, |known| known == &*key)?;
        }
        Ok(found)
    }

    /// Refuses what would show less than there is: with a value under `prefix` that is `asked` for and that the store
    /// cannot read.
    fn check_readable(&self, prefix: &str, asked: impl Fn(&str) -> bool) -> Result<(), ApiError> {
        match self.registry.store.unreadable(prefix).filter(|found| asked(&found.key)) {
            Some(found) => Err(store_error(StoreError::Unreadable(found))),
            None => Ok(()),
        }
    }
}
