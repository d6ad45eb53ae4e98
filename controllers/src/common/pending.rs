//! Own writes that the informer has not shown yet. Acting before it does would create or delete twice.

use coracle_client::ObjectKey;
use coracle_client::informer::{Informer, Kind};
use kube::Resource;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this the informer is believed as it is; upstream's expectations expire after five minutes, but ours watch
/// revisions, which cannot be missed but by a relist that skipped a short-lived object.
pub const PENDING_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Writes {
    created: u64,
    deleted: Vec<(ObjectKey, String)>,
    since: Option<Instant>,
}

/// Per owner, what was written and not yet seen.
#[derive(Default)]
pub struct Pending {
    writes: Mutex<HashMap<ObjectKey, Writes>>,
}

impl Pending {
    /// An object was created with this resourceVersion on behalf of `owner`.
    pub fn created<K: Resource>(&self, owner: &ObjectKey, object: &K) {
        let revision = coracle_client::informer::revision_of(object);
        self.note(owner, |writes| writes.created = writes.created.max(revision));
    }

    pub fn deleted<K: Resource>(&self, owner: &ObjectKey, object: &K) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        self.note(owner, |writes| writes.deleted.push((ObjectKey::of(object), uid)));
    }

    fn note(&self, owner: &ObjectKey, change: impl FnOnce(&mut Writes)) {
        let mut all = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let writes = all.entry(owner.clone()).or_default();
        writes.since = Some(Instant::now());
        change(writes);
    }

    /// Whether the informer shows everything written for `owner`; forgets it then.
    pub fn seen<K: Kind>(&self, owner: &ObjectKey, informer: &Informer<K>) -> bool {
        let mut all = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writes) = all.get_mut(owner) else { return true };
        writes.deleted.retain(|(key, uid)| {
            informer.get_key(key).is_some_and(|object| {
                object.meta().uid.as_ref() == Some(uid) && object.meta().deletion_timestamp.is_none()
            })
        });
        let done = writes.deleted.is_empty() && writes.created <= informer.revision();
        let expired = writes.since.is_none_or(|since| since.elapsed() > PENDING_TIMEOUT);
        if done || expired {
            all.remove(owner);
        }
        done || expired
    }

    pub fn forget(&self, owner: &ObjectKey) {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
    }
}
