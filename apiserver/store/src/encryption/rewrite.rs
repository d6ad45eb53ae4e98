//! Rewriting by itself: what was not written by the first provider and key is written anew, and then taken off the disk.
//!
//! ```text
//! start, new rules, new key of a KMS -> pass over all keys, paced -> again until nothing is stale -> scrub the store
//! ```
//! A pass asks only what is stored and how it would be today, so a stop at any point needs nothing: the next start goes
//! on. The store remembers which rules it was last scrubbed for; until then an old plain value or one under an old key may
//! still be in its files.

use super::MARK;
use crate::{Encrypting, KeyValue, Op, Precondition, Range, Store, StoreError, Txn};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// After each object: at most 500 a second, so that requests hardly notice.
const PACE_INTERVAL: Duration = Duration::from_millis(2);
/// After a pass that failed or left something, until it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// What a pass over the store found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    pub rewritten: usize,
    /// Written by somebody else meanwhile, or not to be written now.
    pub left: usize,
    pub unreadable: usize,
}

/// Rewrites at once, and again after every `wake`, until `stop`.
pub async fn maintain(store: Arc<Encrypting>, wake: Arc<Notify>, stop: CancellationToken) {
    loop {
        let next = match settle(&store).await {
            Ok(true) => None,
            Ok(false) => Some(RETRY_INTERVAL),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "stale objects cannot be rewritten now; it is tried again");
                Some(RETRY_INTERVAL)
            }
        };
        let later = async {
            match next {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
            () = later => {}
        }
    }
}

/// Passes until nothing is stale, then takes old values off the disk; says whether there is nothing left to do.
///
/// # Errors
/// The store's. What was rewritten stays so.
pub async fn settle(store: &Encrypting) -> Result<bool, StoreError> {
    let (rules, scrubbed) = (store.rules(), store.scrubbed());
    let mark = rules.fingerprint();
    // A server that encrypts nothing, and never did, has nothing to hide.
    if !rules.encrypts() && store.unreadable_count() == 0 && scrubbed.as_ref().is_none_or(|s| *s == mark) {
        return Ok(true);
    }
    let mut is_new = scrubbed.is_some_and(|known| known != mark);
    loop {
        let (total, last) = passes(store).await?;
        if total > 0 {
            tracing::info!(objects = total, "rewrote what another provider or key had written");
        }
        if last.unreadable > 0 {
            let objects = last.unreadable;
            tracing::error!(objects, "objects in the store that no encryption provider can read");
        }
        if last.left > 0 || (total == 0 && !is_new) {
            return Ok(last.left == 0 && last.unreadable == 0);
        }
        store.scrub(&mark).await?;
        store.figures().scrubbed();
        tracing::info!("old values are off the disk: keys that no provider needs may be removed");
        // Once more: a write whose client went away may have been on its way under the former rules.
        is_new = false;
    }
}

/// Passes until one rewrites nothing: how many objects were rewritten, and what that last one found.
async fn passes(store: &Encrypting) -> Result<(usize, Pass), StoreError> {
    let mut total = 0;
    loop {
        let pass = pass(store).await?;
        total += pass.rewritten;
        store.figures().left(pass.left, pass.unreadable);
        if pass.rewritten == 0 {
            return Ok((total, pass));
        }
    }
}

async fn pass(store: &Encrypting) -> Result<Pass, StoreError> {
    let mut pass = Pass::default();
    let rules = store.rules();
    for stored in store.inner().range(Range::default()).await?.items {
        let chain = rules.chain_of(&stored.key);
        if chain.is_plain() && !stored.value.starts_with(MARK) {
            continue;
        }
        let was_unreadable = store.unreadable(&stored.key).is_some_and(|known| known.key == stored.key);
        if chain.is_current(&stored.value.peek()) && !was_unreadable {
            continue;
        }
        match rewrite(store, &stored).await {
            Ok(()) => {
                pass.rewritten += 1;
                store.figures().rewrote();
            }
            Err(StoreError::Unreadable(_)) => pass.unreadable += 1,
            Err(StoreError::Conflict { .. } | StoreError::Seal { .. }) => pass.left += 1,
            Err(other) => return Err(other),
        }
        tokio::time::sleep(PACE_INTERVAL).await;
    }
    Ok(pass)
}

/// Writes an object as it is, unless somebody else has written it since.
async fn rewrite(store: &Encrypting, stored: &KeyValue) -> Result<(), StoreError> {
    let plain = store.open(stored).await?;
    let guards = vec![Precondition { key: stored.key.clone(), expect: Some(stored.modified) }];
    let ops = vec![Op::Put { key: stored.key.clone(), value: plain.value.bytes() }];
    store.commit(Txn { guards, ops, ..Txn::default() }).await.map(drop)
}
