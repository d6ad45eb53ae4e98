//! A store whose values are encrypted on their way into another one, which sees nothing else.
//!
//! ```text
//! commit:  plain -> Chain::seal -> inner store
//! get, range, watch, follow:  inner store -> Chain::open -> plain
//! ```
//! A value that cannot be read is left out of ranges and events, and told by name by [`Store::unreadable`]: one damaged
//! object, or a KMS that is away, stops nothing else. What this process wrote itself reaches followers as it was given,
//! without being decrypted.

use super::{
    Change, Commit, Follower, KeyValue, Listing, Op, Packer, Range, Revision, Store, StoreError, Txn,
    Unreadable, Value,
};
use crate::encryption::metrics::Figures;
use crate::encryption::{MARK, OpenError, Rules, path};
use crate::etcd::encoding::from_etcd;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

pub struct Encrypting {
    inner: Arc<dyn Store>,
    shared: Arc<Shared>,
    /// Held for reading by every commit, so that a change of the rules waits for those that follow the former ones.
    writing: tokio::sync::RwLock<()>,
}

/// What followers, which outlive no store, have in common with it.
struct Shared {
    rules: watch::Sender<Arc<Rules>>,
    /// What is being committed: encrypted values with what they were.
    in_flight: Mutex<HashMap<Bytes, Value>>,
    unreadable: RwLock<BTreeMap<Arc<str>, Arc<OpenError>>>,
    figures: Figures,
}

impl Encrypting {
    pub fn new(inner: Arc<dyn Store>, rules: Rules) -> Arc<Self> {
        let shared = Shared {
            rules: watch::Sender::new(Arc::new(rules)),
            in_flight: Mutex::default(),
            unreadable: RwLock::default(),
            figures: Figures::default(),
        };
        Arc::new(Self { inner, shared: Arc::new(shared), writing: tokio::sync::RwLock::default() })
    }

    /// What is below: for those who look at values as they are stored.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    /// What was encrypted and decrypted, for a page of metrics.
    pub fn figures(&self) -> &Figures {
        &self.shared.figures
    }

    pub fn rules(&self) -> Arc<Rules> {
        self.shared.rules.borrow().clone()
    }

    /// From now on values are written by `rules`. Returns when no commit follows the former ones any more.
    pub async fn set_rules(&self, rules: Rules) {
        let _alone = self.writing.write().await;
        self.shared.rules.send_replace(Arc::new(rules));
    }

    /// Tells of every change of the rules.
    pub fn rules_changes(&self) -> watch::Receiver<Arc<Rules>> {
        self.shared.rules.subscribe()
    }

    /// How many values cannot be read.
    pub fn unreadable_count(&self) -> usize {
        self.shared.unreadable.read().len()
    }

    /// Reads a value as it is stored; one that cannot be read, or can again, is noted.
    pub async fn open(&self, stored: &KeyValue) -> Result<KeyValue, StoreError> {
        let opened = self.shared.open_waiting(stored).await;
        match opened {
            Ok(value) => {
                self.shared.forget(&stored.key);
                Ok(KeyValue { value, ..stored.clone() })
            }
            Err(error) => Err(self.shared.note(&stored.key, error)),
        }
    }
}

impl Shared {
    async fn open_waiting(&self, stored: &KeyValue) -> Result<Value, OpenError> {
        let chain = self.rules.borrow().chain_of(&stored.key).clone();
        if chain.is_plain() && !stored.value.starts_with(MARK) {
            return Ok(stored.value.clone());
        }
        let sealed = stored.value.peek();
        let opened = chain.open_waiting(&sealed, &path(&stored.key)).await;
        self.figures.opened(&stored.key, &sealed, opened.as_ref().err());
        opened.map(|opened| plain(opened.value))
    }

    /// As [`open_waiting`](Self::open_waiting), with what is known already.
    fn open(&self, key: &str, stored: &Value) -> Result<Value, OpenError> {
        let chain = self.rules.borrow().chain_of(key).clone();
        if chain.is_plain() && !stored.starts_with(MARK) {
            return Ok(stored.clone());
        }
        let sealed = stored.peek();
        if let Some(plain) = self.in_flight.lock().get(&sealed) {
            return Ok(plain.clone());
        }
        let opened = chain.open(&sealed, &path(key));
        self.figures.opened(key, &sealed, opened.as_ref().err());
        opened.map(|opened| plain(opened.value))
    }

    fn note(&self, key: &Arc<str>, error: OpenError) -> StoreError {
        let error = Arc::new(error);
        self.unreadable.write().insert(key.clone(), error.clone());
        StoreError::Unreadable(Unreadable { key: key.clone(), source: error })
    }

    fn forget(&self, key: &str) {
        if self.unreadable.read().contains_key(key) {
            self.unreadable.write().remove(key);
        }
    }

    /// A commit as it was before it was encrypted. Of a value that cannot be read now the change is told without it.
    fn reveal(&self, commit: &Arc<Commit>) -> Arc<Commit> {
        let is_plain = |change: &Change| {
            let previous = change.previous.as_ref().map(|previous| &previous.value);
            [change.value.as_ref(), previous].into_iter().flatten().all(|value| !value.starts_with(MARK))
                && self.rules.borrow().chain_of(&change.key).is_plain()
        };
        if commit.changes.iter().all(is_plain) {
            return commit.clone();
        }
        let changes = commit.changes.iter().filter_map(|change| self.reveal_change(change)).collect();
        Arc::new(Commit { changes, ..**commit })
    }

    fn reveal_change(&self, change: &Change) -> Option<Change> {
        let previous = change.previous.as_ref().and_then(|previous| {
            let value = self.open(&previous.key, &previous.value).ok()?;
            Some(KeyValue { value, ..previous.clone() })
        });
        let value = match &change.value {
            None => None,
            Some(stored) => match self.open(&change.key, stored) {
                Ok(value) => Some(value),
                Err(error) => {
                    self.note(&change.key, error);
                    return None;
                }
            },
        };
        self.forget(&change.key);
        Some(Change { key: change.key.clone(), value, created: change.created, previous })
    }

    /// Encrypts what a transaction puts. Returned are the encrypted values, for [`InFlight`].
    fn seal(&self, txn: &mut Txn) -> Result<Vec<Bytes>, StoreError> {
        let rules = self.rules.borrow().clone();
        let mut sealed = Vec::new();
        for op in &mut txn.ops {
            let Op::Put { key, value } = op else { continue };
            let chain = rules.chain_of(key);
            if chain.is_plain() {
                continue;
            }
            let done = chain.seal(value, &path(key));
            self.figures.sealed(key, done.as_ref());
            let stored = done.map_err(|source| StoreError::Seal { key: key.clone(), source })?;
            // Of its own size, since the cache keeps it.
            let plain = Value::compact(value);
            self.in_flight.lock().insert(stored.clone(), plain);
            sealed.push(stored.clone());
            *value = stored;
        }
        Ok(sealed)
    }
}

/// What another API server encrypted may be protobuf.
fn plain(opened: Bytes) -> Value {
    if opened.starts_with(b"k8s\0") { from_etcd(&opened).into() } else { opened.into() }
}

/// Forgets what was in flight when a commit has ended, however it did.
struct InFlight<'a>(&'a Shared, Vec<Bytes>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.1.is_empty() {
            return;
        }
        let mut all = self.0.in_flight.lock();
        self.1.iter().for_each(|stored| drop(all.remove(stored)));
    }
}

#[async_trait::async_trait]
impl Store for Encrypting {
    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn oldest(&self) -> Revision {
        self.inner.oldest()
    }

    fn compaction_floor(&self) -> Revision {
        self.inner.compaction_floor()
    }

    async fn sync(&self) -> Result<Revision, StoreError> {
        self.inner.sync().await
    }

    async fn reach(&self) -> Result<(), StoreError> {
        self.inner.reach().await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        match self.inner.get(key).await? {
            Some(stored) => self.open(&stored).await.map(Some),
            None => Ok(None),
        }
    }

    /// Without what cannot be read.
    async fn range(&self, range: Range) -> Result<Listing, StoreError> {
        let mut listing = self.inner.range(range).await?;
        let mut items = Vec::with_capacity(listing.items.len());
        for stored in &listing.items {
            match self.open(stored).await {
                Ok(item) => items.push(item),
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "left out of a list"),
            }
        }
        listing.items = items;
        Ok(listing)
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, StoreError> {
        let _following = self.writing.read().await;
        let mut txn = txn;
        let in_flight = InFlight(&self.shared, self.shared.seal(&mut txn)?);
        let committed = self.inner.commit(txn).await;
        drop(in_flight);
        match committed {
            Err(StoreError::Conflict { key, actual: Some(actual) }) => {
                let actual = self.open(&actual).await.ok();
                Err(StoreError::Conflict { key, actual })
            }
            other => other,
        }
    }

    /// Ends early if a change is nothing but values that cannot be read: who watches has to list again.
    fn watch(&self, prefix: &str, after: Revision) -> Result<UnboundedReceiver<Arc<Commit>>, StoreError> {
        let (events, receiver) = unbounded_channel();
        let (shared, prefix) = (self.shared.clone(), prefix.to_owned());
        let tell = move |commits: &[Arc<Commit>]| {
            commits.iter().all(|commit| {
                if events.is_closed() {
                    return false;
                }
                let is_mine = |change: &&Change| change.key.starts_with(&prefix);
                if !commit.changes.iter().any(|change| is_mine(&change)) {
                    return true;
                }
                let shown = shared.reveal(commit);
                let changes: Vec<Change> = shown.changes.iter().filter(is_mine).cloned().collect();
                let expected = commit.changes.iter().filter(is_mine).count();
                let is_told = |change: &Change| change.value.is_some() || change.previous.is_some();
                if changes.len() < expected || !changes.iter().all(is_told) {
                    return false;
                }
                events.send(Arc::new(Commit { changes, ..**commit })).is_ok()
            })
        };
        self.inner.follow(after, Box::new(tell))?;
        Ok(receiver)
    }

    fn follow(&self, after: Revision, mut follower: Follower) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let reveal = move |commits: &[Arc<Commit>]| {
            let shown: Vec<Arc<Commit>> = commits.iter().map(|commit| shared.reveal(commit)).collect();
            follower(&shown)
        };
        self.inner.follow(after, Box::new(reveal))
    }

    async fn compact(&self, at: Revision) -> Result<(), StoreError> {
        self.inner.compact(at).await
    }

    fn pack_history(&self, packer: &mut Packer) {
        self.inner.pack_history(packer);
    }

    fn read_only(&self) -> Option<String> {
        self.inner.read_only()
    }

    fn unreadable(&self, prefix: &str) -> Option<Unreadable> {
        let all = self.shared.unreadable.read();
        let (key, source) = all.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)).next()?;
        key.starts_with(prefix).then(|| Unreadable { key: key.clone(), source: source.clone() })
    }

    async fn is_stale(&self, key: &str) -> bool {
        let stored = self.inner.get(key).await.ok().flatten();
        stored.is_some_and(|stored| !self.rules().chain_of(key).is_current(&stored.value.peek()))
    }

    async fn scrub(&self, mark: &str) -> Result<(), StoreError> {
        self.inner.scrub(mark).await
    }

    fn scrubbed(&self) -> Option<String> {
        self.inner.scrubbed()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
