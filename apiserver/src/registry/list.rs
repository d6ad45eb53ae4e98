//! GET of a collection: consistent pages out of immutable snapshots.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.

use super::options::{VersionMatch, invalid_options};
use super::{ListOptions, Scope, store_error};
use crate::cache::{CachedObject, Filter, Snapshot, within};
use crate::store::{Revision, StoreError};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coracle_api::{ApiError, FieldError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader waits for a revision that it has seen elsewhere, as upstream's watch cache.
const FUTURE_PATIENCE: Duration = Duration::from_secs(3);

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter, or use the continue token in this response to \
    retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - \
    objects that were created, modified, or deleted between the time the first chunk was returned and now may \
    show up in the list.";

/// One page of a list.
pub struct Page {
    pub items: Vec<Arc<CachedObject>>,
    pub revision: Revision,
    pub next: Option<String>,
    /// How many more there are; `None` when there are none or selectors make it unknown.
    pub remaining: Option<usize>,
}

/// A continue token, in upstream's form. The clients treat it as opaque.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    /// -1 continues at whatever revision is now.
    rv: i64,
    /// `<namespace>/<name>` after which the next page begins.
    start: String,
}

impl Token {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let bad = || ApiError::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| bad())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        if token.v == TOKEN_VERSION && token.rv != 0 && !token.start.is_empty() {
            Ok(token)
        } else {
            Err(bad())
        }
    }
}

impl Scope<'_> {
    pub async fn list(&self, options: &ListOptions) -> Result<Page, ApiError> {
        check_version_match(options)?;
        let filter = self.filter(options)?;
        if options.continue_token.is_empty() {
            let snapshot = self.list_snapshot(options).await?;
            return Ok(self.page(&snapshot, &filter, None, options.limit));
        }
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Token::decode(&options.continue_token)?;
        let after = format!("{}/{}", self.resource.storage.key, token.start);
        let snapshot = self.continued_snapshot(&token).await?;
        Ok(self.page(&snapshot, &filter, Some(&after), options.limit))
    }

    async fn continued_snapshot(&self, token: &Token) -> Result<Snapshot, ApiError> {
        let cache = &self.registry.cache;
        let Ok(revision) = u64::try_from(token.rv) else {
            return Ok(cache.snapshot(&self.resource.storage.key));
        };
        match cache.snapshot_at(&self.resource.storage.key, Revision(revision)).await {
            Err(StoreError::Compacted { .. }) => {
                let rest = Token { v: TOKEN_VERSION.into(), rv: -1, start: token.start.clone() };
                Err(ApiError::expired(EXPIRED).with_details(json!({ "continue": rest.encode() })))
            }
            other => other.map_err(store_error),
        }
    }

    async fn list_snapshot(&self, options: &ListOptions) -> Result<Snapshot, ApiError> {
        let cache = &self.registry.cache;
        let storage = &self.resource.storage.key;
        let asked = parse_version(&options.resource_version)?;
        let Some(asked) = asked else {
            cache.wait_for(self.registry.store.revision(), FUTURE_PATIENCE).await;
            return Ok(cache.snapshot(storage));
        };
        let legacy_exact = options.version_match.is_none() && options.limit > 0 && asked.0 > 0;
        if options.version_match == Some(VersionMatch::Exact) || legacy_exact {
            self.reach(asked).await?;
            return cache.snapshot_at(storage, asked).await.map_err(store_error);
        }
        self.reach(asked).await?;
        Ok(cache.snapshot(storage))
    }

    /// Waits a while for a revision that is not here yet.
    pub(super) async fn reach(&self, asked: Revision) -> Result<(), ApiError> {
        let cache = &self.registry.cache;
        if cache.wait_for(asked, FUTURE_PATIENCE).await {
            return Ok(());
        }
        Err(too_large_version(asked, cache.revision()))
    }

    fn page(&self, snapshot: &Snapshot, filter: &Filter, after: Option<&str>, limit: usize) -> Page {
        let storage = &*self.resource.storage.key;
        let mut items = Vec::new();
        let mut more = false;
        let mut left = 0;
        for object in within(&snapshot.objects, storage, self.namespace, after) {
            if limit > 0 && items.len() == limit {
                left += 1;
                more = true;
                if filter.is_selective() {
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
            let start = format!("{}/{}", last.namespace(), last.name());
            Token { v: TOKEN_VERSION.into(), rv, start }.encode()
        });
        let remaining = (more && !filter.is_selective()).then_some(left);
        Page { items, revision: snapshot.revision, next, remaining }
    }
}

fn check_version_match(options: &ListOptions) -> Result<(), ApiError> {
    let Some(matching) = options.version_match else { return Ok(()) };
    let forbidden =
        |why: &str| Err(invalid_options("ListOptions", FieldError::forbidden("resourceVersionMatch", why)));
    if !options.continue_token.is_empty() {
        return forbidden("resourceVersionMatch is forbidden when continue is provided");
    }
    if options.resource_version.is_empty() {
        return forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if matching == VersionMatch::Exact && options.resource_version == "0" {
        return forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
    }
    Ok(())
}

/// `None` when unset.
pub(super) fn parse_version(text: &str) -> Result<Option<Revision>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(|n| Some(Revision(n))).map_err(|_| {
        let error = FieldError::invalid(
            "resourceVersion",
            &text.into(),
            &format!("strconv.ParseUint: parsing {text:?}: invalid syntax"),
        );
        invalid_options("ListOptions", error)
    })
}

pub(super) fn too_large_version(asked: Revision, newest: Revision) -> ApiError {
    let mut error =
        ApiError::timeout(format!("Too large resource version: {}, current: {}", asked.0, newest.0))
            .with_details(json!({
                "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
                "retryAfterSeconds": 1,
            }));
    error.retry_after = Some(1);
    error
}

/// The continue token that a 410 of a list offers for the rest, which the Status carries in its metadata.
pub fn rest_token(error: &ApiError) -> Option<&str> {
    (error.code == 410).then(|| error.details.get("continue")?.as_str())?
}
