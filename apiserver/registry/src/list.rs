//! GET of a collection: consistent pages out of immutable snapshots.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.

use super::continuation::Token;
use super::{ListOptions, Scope, store_error};
use coracle_api::{ApiError, FieldError};
use coracle_requests::options::VersionMatch;
use coracle_requests::{go, too_large_version};
use coracle_resources::cache::{CachedObject, Filter, Snapshot, within};
use coracle_store::{Revision, StoreError};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader waits for a revision that it has seen elsewhere, as upstream's watch cache.
const FUTURE_TIMEOUT: Duration = Duration::from_secs(3);

const EXPIRED_PAGE: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter, or use the continue token in this response to \
    retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - \
    objects that were created, modified, or deleted between the time the first chunk was returned and now may \
    show up in the list.";
const EXPIRED_LIST: &str = "The resourceVersion for the provided list is too old.";

/// One page of a list.
pub struct Page {
    pub items: Vec<Arc<CachedObject>>,
    pub revision: Revision,
    pub next: Option<String>,
    /// How many more there are; `None` when there are none or selectors make it unknown.
    pub remaining: Option<usize>,
}

impl Scope<'_> {
    pub async fn list(&self, options: &ListOptions) -> Result<Page, ApiError> {
        let filter = self.filter(options)?;
        self.check_readable(&self.prefix(), |_| true)?;
        if options.continue_token.is_empty() {
            let snapshot = self.list_snapshot(options).await?;
            let filter = self.with_foreign(filter, options, &snapshot).await?;
            return Ok(self.page(&snapshot, &filter, None, options.limit));
        }
        let token = Token::decode(&options.continue_token);
        let token = token.map_err(|e| ApiError::bad_request(format!("invalid continue token: {e}")))?;
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let after = format!("{}/{}", self.resource.storage.key, token.start);
        let snapshot = self.continued_snapshot(&token).await?;
        let filter = self.with_foreign(filter, options, &snapshot).await?;
        Ok(self.page(&snapshot, &filter, Some(&after), options.limit))
    }

    async fn continued_snapshot(&self, token: &Token) -> Result<Snapshot, ApiError> {
        let cache = &self.registry.cache;
        let Ok(revision) = u64::try_from(token.rv) else {
            self.catch_up().await?;
            return Ok(cache.snapshot(&self.resource.storage.key));
        };
        self.reach(Revision(revision)).await?;
        match cache.snapshot_at(&self.resource.storage.key, Revision(revision)).await {
            Err(StoreError::Compacted { .. }) => {
                let rest = Token::new(-1, token.start.clone());
                Err(ApiError::expired(EXPIRED_PAGE).with_details(json!({ "continue": rest.encode() })))
            }
            other => other.map_err(store_error),
        }
    }

    async fn list_snapshot(&self, options: &ListOptions) -> Result<Snapshot, ApiError> {
        let cache = &self.registry.cache;
        let storage = &self.resource.storage.key;
        let Some(asked) = self.list_version(&options.resource_version)? else {
            self.catch_up().await?;
            return Ok(cache.snapshot(storage));
        };
        self.reach(asked).await?;
        let legacy_exact = options.version_match.is_none() && options.limit > 0 && asked.0 > 0;
        if options.version_match != Some(VersionMatch::Exact) && !legacy_exact {
            return Ok(cache.snapshot(storage));
        }
        match cache.snapshot_at(storage, asked).await {
            Err(StoreError::Compacted { .. }) => Err(ApiError::expired(EXPIRED_LIST)),
            other => other.map_err(store_error),
        }
    }

    /// `None` when unset.
    fn list_version(&self, text: &str) -> Result<Option<Revision>, ApiError> {
        parse_version(text).map_err(|e| ApiError::bad_request(format!("invalid resource version: {e}")))
    }

    /// For a get that names a revision: what it shows is not older.
    pub async fn at_least(&self, version: &str) -> Result<(), ApiError> {
        match self.list_version(version)? {
            Some(asked) => self.reach(asked).await,
            None => self.catch_up().await,
        }
    }

    /// For readers who want the newest, and for writers: waits until everything that was committed so far, by any server, is
    /// visible here.
    pub async fn catch_up(&self) -> Result<(), ApiError> {
        let newest = self.registry.store.sync().await.map_err(store_error)?;
        self.registry.cache.wait_for(newest, FUTURE_TIMEOUT).await;
        Ok(())
    }

    /// Waits a while for a revision that is not here yet.
    pub(super) async fn reach(&self, asked: Revision) -> Result<(), ApiError> {
        let cache = &self.registry.cache;
        if cache.wait_for(asked, FUTURE_TIMEOUT).await {
            return Ok(());
        }
        Err(too_large_version(asked, cache.revision()))
    }

    /// The objects that the filter can match, after a key; the filter is still to be asked.
    pub(super) fn candidates<'a>(
        &self,
        snapshot: &'a Snapshot,
        filter: &Filter,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Arc<CachedObject>> + Send + 'a> {
        let (storage, objects) = (&*self.resource.storage.key, &snapshot.objects);
        let namespace = filter.namespace.as_deref().unwrap_or_default();
        let field = filter.field.as_ref().filter(|_| filter.name.is_none());
        if let Some(keys) = field.and_then(|(field, value)| snapshot.by_field.keys(field, value, after)) {
            return Box::new(keys.filter_map(|key| objects.get(&**key)));
        }
        match &filter.name {
            Some(name) if !namespace.is_empty() || !self.resource.namespaced => {
                let key = format!("{storage}/{namespace}/{name}");
                let found = objects.get(key.as_str()).filter(|_| after.is_none_or(|after| after < &*key));
                Box::new(found.into_iter())
            }
            _ => Box::new(within(objects, storage, namespace, after)),
        }
    }

    fn page(&self, snapshot: &Snapshot, filter: &Filter, after: Option<&str>, limit: usize) -> Page {
        let mut items = Vec::new();
        let mut more = false;
        let mut left = 0;
        for object in self.candidates(snapshot, filter, after) {
            if limit > 0 && items.len() == limit {
                left += 1;
                more = true;
                if filter.selective {
                    break;
                }
                continue;
            }
            if filter.matches(object) {
                items.push(object.clone());
            }
        }
        let next = items.last().filter(|_| more).map(|last| {
            let rv = i64::try_from(snapshot.revision.0).unwrap_or(i64::MAX);
            Token::new(rv, format!("{}/{}", last.namespace(), last.name())).encode()
        });
        let remaining = (more && !filter.selective).then_some(left);
        Page { items, revision: snapshot.revision, next, remaining }
    }
}

/// `None` when unset; the error is upstream's for what is no revision.
pub(super) fn parse_version(text: &str) -> Result<Option<Revision>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = go::parse_uint(text);
    parsed.map(|n| Some(Revision(n))).map_err(|e| FieldError::invalid("resourceVersion", &text.into(), &e))
}

/// The continue token that a 410 of a list offers for the rest, which the Status carries in its metadata.
pub fn rest_token(error: &ApiError) -> Option<&str> {
    (error.code == 410).then(|| error.details.get("continue")?.as_str())?
}
