//! The generic path of every resource: create, get, list, watch, update, patch, delete.
//!
//! A resource contributes its [`Strategy`]; nothing here knows a resource by name but the small tables of
//! [`subresource`] and the namespace rule of [`delete`].

pub mod apply;
mod collection;
mod commit;
mod continuation;
mod create;
pub mod decode;
mod delete;
mod delete_options;
pub mod form;
pub mod gate;
mod go;
pub mod list;
mod metadata;
pub mod options;
pub mod ownership;
pub mod patch;
mod pods;
pub mod query;
mod resize;
mod scale;
mod selectable;
pub mod selection;
mod selectors;
mod shown;
pub mod subresource;
pub mod update;
mod watch;

pub use commit::Written;
pub use delete::Deleted;
pub use delete_options::{DeleteOptions, Propagation};
pub use list::Page;
pub use options::{ListOptions, SentOptions, WriteOptions};
pub use patch::Patch;
pub use query::Query;
pub use selectors::Selectors;
pub use update::Part;

pub use watch::{Message, Watch};

use crate::cache::{Cache, CachedObject};
use crate::catalogue::{Catalogue, StrategyRef};
use crate::strategy::Env;
use coracle_api::catalogue::Resource;
use coracle_api::{ApiError, UserInfo};
use coracle_store::{KeyValue, Store, StoreError};
pub use gate::{Admission, AdmitAll, Asked, Attributes, Forms, Kind, Operation, kind_of};
use jiff::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How long an acknowledged write may take to become visible. It takes microseconds; only a stalled process
/// comes near this.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);

/// Attempts of a write whose conflict is not the client's business, as upstream's `patchRetryLimit`.
const ATTEMPTS: usize = 5;

pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

pub struct Registry {
    pub store: Arc<dyn Store>,
    pub cache: Arc<Cache>,
    pub admission: Arc<dyn Admission>,
    pub clock: Clock,
}

impl Registry {
    /// Which resources are served, built in and custom.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        self.cache.catalogue()
    }
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

/// How soon a write may be tried again that a full or failing disk refused. The store itself looks every two seconds; kubectl
/// tries ten times before it shows the message, which nobody should wait for much longer.
const READ_ONLY_RETRY_SECONDS: u32 = 1;

/// What the client is told when the store fails.
pub fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Conflict { key, .. } => ApiError::internal(format!("unresolved conflict on {key}")),
        StoreError::Compacted { asked, oldest } => {
            ApiError::expired(format!("too old resource version: {} ({})", asked.0, oldest.0))
        }
        StoreError::Future { asked, newest } => list::too_large_version(asked, newest),
        StoreError::ReadOnly(why) => ApiError::unavailable(format!("the store is read-only: {why}"))
            .retry_after(READ_ONLY_RETRY_SECONDS),
        StoreError::Closed => ApiError::unavailable("the server is shutting down"),
        other @ (StoreError::Unreadable(_) | StoreError::Seal { .. }) => {
            tracing::error!(error = &other as &dyn std::error::Error, "encryption at rest");
            ApiError::internal(coracle_api::error::chain(&other))
        }
        other => {
            tracing::error!(error = &other as &dyn std::error::Error, "store failed");
            ApiError::internal(other)
        }
    }
}
