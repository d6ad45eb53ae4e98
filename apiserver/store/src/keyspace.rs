//! The one mechanism of every embedded backend: the present, its history and the watchers, in memory.
//!
//! A writer stages transactions on a [`Draft`], makes them durable if it has to, and publishes the draft, which is
//! the moment that readers and watchers see all of it. There is one writer at a time; readers only ever wait for the
//! few instructions that take a reference to the persistent map.

use super::history::{History, Limits, rewind};
use super::item::{Item, Present};
use super::{
    Change, Commit, Follower, KeyValue, Listing, Op, Packer, Precondition, Range, Revision, StoreError, Txn,
    Value,
};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::{ops::Bound, sync::Arc, time::Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

struct Watcher {
    prefix: String,
    events: UnboundedSender<Arc<Commit>>,
}

struct State {
    present: Present,
    revision: Revision,
    history: History,
    watchers: Vec<Watcher>,
    closed: bool,
}

pub(super) struct KeySpace {
    /// Locked before `state` wherever both are.
    followers: Mutex<Vec<Follower>>,
    state: RwLock<State>,
    limits: Limits,
}

impl KeySpace {
    pub fn new(present: Present, revision: Revision, history: History, limits: Limits) -> Self {
        let state = State { present, revision, history, watchers: Vec::new(), closed: false };
        Self { followers: Mutex::default(), state: RwLock::new(state), limits }
    }

    pub fn revision(&self) -> Revision {
        self.state.read().revision
    }

    pub fn oldest(&self) -> Revision {
        self.state.read().history.floor()
    }

    pub fn compaction_floor(&self) -> Revision {
        self.state.read().history.compaction_floor()
    }

    pub fn is_closed(&self) -> bool {
        self.state.read().closed
    }

    /// The present and its revision.
    pub fn present(&self) -> (Present, Revision) {
        let state = self.state.read();
        (state.present.clone(), state.revision)
    }

    pub fn history(&self) -> History {
        self.state.read().history.clone()
    }

    pub fn history_len(&self) -> usize {
        self.state.read().history.len()
    }

    pub fn history_bytes(&self) -> usize {
        self.state.read().history.bytes()
    }

    pub fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let state = self.state.read();
        if state.closed {
            return Err(StoreError::Closed);
        }
        Ok(state.present.get_key_value(key).map(|(key, item)| item.with_key(key)))
    }

    pub fn range(&self, range: &Range) -> Result<Listing, StoreError> {
        let (present, revision) = self.at(range)?;
        let mut listing = Listing { revision, ..Listing::default() };
        for (key, item) in present.range::<_, str>(bounds(range)) {
            if !key.starts_with(&range.prefix) {
                break;
            }
            if range.limit > 0 && listing.items.len() == range.limit {
                listing.more = true;
                break;
            }
            listing.items.push(item.with_key(key));
        }
        Ok(listing)
    }

    fn at(&self, range: &Range) -> Result<(Present, Revision), StoreError> {
        let (present, undo, at) = {
            let state = self.state.read();
            if state.closed {
                return Err(StoreError::Closed);
            }
            match range.at {
                Some(at) if at != state.revision => {
                    state.check(at)?;
                    (state.present.clone(), state.history.before(at, &range.prefix), at)
                }
                _ => return Ok((state.present.clone(), state.revision)),
            }
        };
        Ok((rewind(&present, undo), at))
    }

    pub fn watch(&self, prefix: &str, after: Revision) -> Result<UnboundedReceiver<Arc<Commit>>, StoreError> {
        let (events, receiver) = unbounded_channel();
        let mut state = self.state.write();
        if state.closed {
            return Err(StoreError::Closed);
        }
        state.check(after)?;
        let watcher = Watcher { prefix: prefix.to_owned(), events };
        for entry in state.history.since(after) {
            watcher.tell(&entry.commit);
        }
        state.watchers.retain(|watcher| !watcher.events.is_closed());
        state.watchers.push(watcher);
        Ok(receiver)
    }

    pub fn follow(&self, after: Revision, mut follower: Follower) -> Result<(), StoreError> {
        let mut followers = self.followers.lock();
        let missed: Vec<Arc<Commit>> = {
            let state = self.state.read();
            if state.closed {
                return Err(StoreError::Closed);
            }
            state.check(after)?;
            state.history.since(after).map(|entry| entry.commit.clone()).collect()
        };
        if missed.is_empty() || follower(&missed) {
            followers.push(follower);
        }
        Ok(())
    }

    pub fn compact(&self, at: Revision) -> Result<(), StoreError> {
        let mut state = self.state.write();
        if state.closed {
            return Err(StoreError::Closed);
        }
        state.check(at)?;
        state.history.compact(at);
        Ok(())
    }

    /// Packs what only history holds. What the present holds, too, is packed by who looks at that.
    pub fn pack_history(&self, packer: &mut Packer) {
        for entry in self.history().entries() {
            for previous in entry.commit.changes.iter().filter_map(|change| change.previous.as_ref()) {
                let resource = previous.key.split('/').next().unwrap_or_default();
                packer.look(resource, &previous.value);
            }
        }
    }

    pub fn draft(&self) -> Draft {
        let state = self.state.read();
        Draft { present: state.present.clone(), revision: state.revision, commits: Vec::new() }
    }

    /// Shows a draft to readers, watchers and followers. The draft must stem from this key space, and nothing else may
    /// have been published since.
    pub fn publish(&self, draft: Draft) {
        if draft.commits.is_empty() {
            return;
        }
        let commits: Vec<Arc<Commit>> = draft.commits.clone();
        let mut followers = self.followers.lock();
        self.show(draft);
        followers.retain_mut(|follower| follower(&commits));
    }

    fn show(&self, draft: Draft) {
        let now = Instant::now();
        let mut state = self.state.write();
        let state = &mut *state;
        state.present = draft.present;
        state.revision = draft.revision;
        for commit in draft.commits {
            state.watchers.retain(|watcher| watcher.tell(&commit));
            state.history.push(commit, now);
        }
        state.history.trim(&self.limits, now);
    }

    /// Shows what somebody else has committed, in the order of revisions; those that are known already are passed over. One
    /// without changes moves the revision alone. There must be no other writer.
    pub fn absorb(&self, commits: impl Iterator<Item = (Revision, Vec<Absorbed>)>) {
        let mut draft = self.draft();
        let before = draft.revision;
        let mut newest = before;
        for (revision, changes) in commits {
            if revision <= newest {
                continue;
            }
            draft.absorb(revision, changes);
            newest = revision;
        }
        if newest == before {
            return;
        }
        let is_told = draft.commits.last().is_some_and(|commit| commit.revision == newest);
        self.publish(draft);
        if !is_told && newest > self.revision() {
            self.advance(newest);
        } else if !is_told {
            self.tell_revision(newest);
        }
    }

    fn advance(&self, newest: Revision) {
        self.state.write().revision = newest;
        self.tell_revision(newest);
    }

    fn tell_revision(&self, newest: Revision) {
        let nothing = [Arc::new(Commit { revision: newest, changes: Vec::new(), durable: true })];
        self.followers.lock().retain_mut(|follower| follower(&nothing));
    }

    /// Ends every watch and refuses everything from now on; says whether it was open.
    pub fn close(&self) -> bool {
        let was_open = {
            let mut state = self.state.write();
            state.watchers.clear();
            !std::mem::replace(&mut state.closed, true)
        };
        let followers = std::mem::take(&mut *self.followers.lock());
        // What they do at their end may take a lock that a waiting writer has.
        drop(followers);
        was_open
    }
}

impl State {
    /// Whether the state at `at` can still, and already, be told.
    fn check(&self, at: Revision) -> Result<(), StoreError> {
        let oldest = self.history.floor();
        if at < oldest {
            return Err(StoreError::Compacted { asked: at, oldest });
        }
        if at > self.revision {
            return Err(StoreError::Future { asked: at, newest: self.revision });
        }
        Ok(())
    }
}

impl Watcher {
    /// Hands over what concerns this watcher; false once nobody listens any more.
    fn tell(&self, commit: &Arc<Commit>) -> bool {
        let mine = |change: &&Change| change.key.starts_with(&self.prefix);
        let count = commit.changes.iter().filter(mine).count();
        if count == 0 {
            return true;
        }
        let event = if count == commit.changes.len() {
            commit.clone()
        } else {
            let changes = commit.changes.iter().filter(mine).cloned().collect();
            Arc::new(Commit { changes, ..**commit })
        };
        self.events.send(event).is_ok()
    }
}

fn bounds(range: &Range) -> (Bound<&str>, Bound<&str>) {
    let start = match range.after.as_deref() {
        Some(after) if after >= range.prefix.as_str() => Bound::Excluded(after),
        _ => Bound::Included(range.prefix.as_str()),
    };
    (start, Bound::Unbounded)
}

/// What a commit of somebody else did to a key: the revision of its creation and its value, or nothing if it was deleted.
pub(super) struct Absorbed {
    pub key: Arc<str>,
    pub put: Option<(Revision, Value)>,
}

/// Transactions that nobody sees yet, one upon the other.
pub(super) struct Draft {
    pub present: Present,
    pub revision: Revision,
    pub commits: Vec<Arc<Commit>>,
}

impl Draft {
    /// Checks the guards and applies the operations under the next revision. `None`: nothing changed, so no revision
    /// was used. On an error the draft is as before.
    pub fn stage(&mut self, txn: &Txn, durable: bool) -> Result<Option<Arc<Commit>>, StoreError> {
        for guard in &txn.guards {
            self.check(guard)?;
        }
        let revision = Revision(self.revision.0 + 1);
        let mut changes = Vec::with_capacity(txn.ops.len());
        for op in &txn.ops {
            self.apply(op, revision, &mut changes);
        }
        if changes.is_empty() {
            return Ok(None);
        }
        self.revision = revision;
        let commit = Arc::new(Commit { revision, changes, durable });
        self.commits.push(commit.clone());
        Ok(Some(commit))
    }

    fn absorb(&mut self, revision: Revision, absorbed: Vec<Absorbed>) {
        let mut changes = Vec::with_capacity(absorbed.len());
        for Absorbed { key, put } in absorbed {
            // An object keeps one key for life.
            let key = self.present.get_key_value(&*key).map_or(key, |(known, _)| known.clone());
            let (value, before) = match put {
                Some((created, value)) => {
                    let item = Item { value: value.clone(), created, modified: revision };
                    (Some(value), self.present.insert(key.clone(), item))
                }
                None => (None, self.present.remove(&*key)),
            };
            record(&key, value.as_ref(), before, revision, &mut changes);
        }
        self.revision = revision;
        if !changes.is_empty() {
            self.commits.push(Arc::new(Commit { revision, changes, durable: true }));
        }
    }

    fn check(&self, guard: &Precondition) -> Result<(), StoreError> {
        let actual = self.present.get(&*guard.key);
        if actual.map(|item| item.modified) == guard.expect {
            return Ok(());
        }
        Err(StoreError::Conflict {
            key: guard.key.clone(),
            actual: actual.map(|item| item.with_key(&guard.key)),
        })
    }

    fn apply(&mut self, op: &Op, revision: Revision, changes: &mut Vec<Change>) {
        // An object keeps one key for life, however many requests have named it.
        let known = |key: &Arc<str>| match self.present.get_key_value(&**key) {
            Some((known, _)) => known.clone(),
            None => key.clone(),
        };
        let (key, value) = match op {
            Op::Put { key, value } => (known(key), Some(Value::compact(value))),
            Op::Delete { key } => (known(key), None),
        };
        let (key, value) = (&key, value.as_ref());
        let before = match value {
            Some(value) => {
                let created = self.present.get(&**key).map_or(revision, |item| item.created);
                let item = Item { value: value.clone(), created, modified: revision };
                self.present.insert(key.clone(), item)
            }
            None => self.present.remove(&**key),
        };
        record(key, value, before, revision, changes);
    }
}

/// Applies a commit of the journal again: keys with what they were put to (and when they were created) or nothing if
/// they were deleted. `swap` sets what a key holds, returns what it held, and may replace its arguments by equal ones
/// that are in memory already. `None`: nothing changed, because what it deleted had never been durable.
pub(super) fn redo(
    mut swap: impl FnMut(&mut Arc<str>, &mut Option<Item>) -> Option<Item>,
    revision: Revision,
    ops: impl Iterator<Item = (Arc<str>, Option<(Revision, Bytes)>)>,
) -> Option<Commit> {
    let mut changes = Vec::new();
    for (mut key, put) in ops {
        let mut item = put.map(|(created, value)| Item { value: value.into(), created, modified: revision });
        let before = swap(&mut key, &mut item);
        let created = item.as_ref().map(|item| item.created);
        let value = item.map(|item| item.value);
        record(&key, value.as_ref(), before, created.unwrap_or(revision), &mut changes);
        if let (Some(created), Some(change)) = (created, changes.last_mut()) {
            change.created = created;
        }
    }
    (!changes.is_empty()).then_some(Commit { revision, changes, durable: true })
}

/// As a `swap` of [`redo`]: sets what a key holds in a map.
pub(super) fn swap_in(present: &mut Present, key: &mut Arc<str>, item: &mut Option<Item>) -> Option<Item> {
    match item {
        Some(item) => present.insert(key.clone(), item.clone()),
        None => present.remove(&**key),
    }
}

/// Adds one operation to a commit's changes. A key that the same transaction touched before keeps one change, from
/// what it held before the transaction to what it holds now, or none if that is nothing both times.
fn record(
    key: &Arc<str>,
    value: Option<&Value>,
    before: Option<Item>,
    now: Revision,
    changes: &mut Vec<Change>,
) {
    let created = before.as_ref().map_or(now, |item| item.created);
    if let Some(at) = changes.iter().position(|change| change.key == *key) {
        let change = &mut changes[at];
        change.value = value.cloned();
        change.created = match (&change.value, &change.previous) {
            (None, Some(previous)) => previous.created,
            _ => created,
        };
        if change.value.is_none() && change.previous.is_none() {
            changes.remove(at);
        }
        return;
    }
    if value.is_none() && before.is_none() {
        return;
    }
    let previous = before.map(|item| item.with_key(key));
    changes.push(Change { key: key.clone(), value: value.cloned(), created, previous });
}
