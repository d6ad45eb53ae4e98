//! The commits that watches and lists at older revisions can still be answered from.

use super::item::{Item, Present};
use super::{Change, Commit, Revision};
use imbl::OrdMap;
use std::{collections::VecDeque, sync::Arc, time::Duration, time::Instant};

/// How much history is kept; whichever limit is reached first.
///
/// Trimming happens at commits only, so that an idle store needs no timer.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Beside the bytes a commit costs a search a step; this is where that begins to show.
    pub revisions: usize,
    /// Upstream's API server compacts etcd every five minutes.
    pub age: Duration,
    /// Of what only history keeps in memory: superseded values, and the commits themselves. It is what a cluster has too
    /// much when a storm is over, for five minutes. A client that was away for seconds finds what it missed: eight MiB are
    /// three minutes of ten updates of a pod a second, a minute and a half of the heartbeats of a thousand nodes, two
    /// seconds of a thousand pods a second.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { revisions: 100_000, age: Duration::from_secs(300), bytes: 8 << 20 }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub commit: Arc<Commit>,
    /// When it was committed, as far as this process knows.
    pub at: Instant,
    bytes: usize,
}

/// A ring of commits, gapless from `floor` (exclusive) to the newest revision.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    floor: Revision,
    bytes: usize,
    compaction_floor: Revision,
    /// What the newest revision was at some moments, [`MARKED_EVERY`] apart, within the limit of age.
    marks: VecDeque<(Instant, Revision)>,
}

/// A ring with so many times the room that it needs gives it back, but for the first so many entries.
const ROOM: usize = 4;
const ENTRIES: usize = 256;

/// So much later than its time a revision may become outdated.
const MARK_INTERVAL: Duration = Duration::from_secs(10);

impl History {
    pub fn new(floor: Revision) -> Self {
        Self { floor, compaction_floor: floor, ..Self::default() }
    }

    /// Revisions before it are older than the limit of age, or were compacted. The other limits do not move it: of what
    /// has not changed since, no history is needed to tell what it was.
    pub fn compaction_floor(&self) -> Revision {
        self.compaction_floor
    }

    /// The state at `floor` and every later one can still be told.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Of what only history keeps in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, commit: Arc<Commit>, at: Instant) {
        let bytes = weight(&commit);
        self.bytes += bytes;
        if self.marks.back().is_none_or(|(marked, _)| at.saturating_duration_since(*marked) >= MARK_INTERVAL)
        {
            self.marks.push_back((at, commit.revision));
        }
        self.entries.push_back(Entry { commit, at, bytes });
    }

    pub fn trim(&mut self, limits: &Limits, now: Instant) {
        self.shed(limits, now);
        if self.entries.capacity() > ROOM * self.entries.len().max(ENTRIES) {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    fn shed(&mut self, limits: &Limits, now: Instant) {
        while let Some(first) = self.entries.front() {
            let old = now.saturating_duration_since(first.at) > limits.age;
            if !old && self.entries.len() <= limits.revisions && self.bytes <= limits.bytes {
                break;
            }
            self.pop();
        }
        while let Some((at, revision)) = self.marks.front().copied() {
            if now.saturating_duration_since(at) <= limits.age {
                break;
            }
            self.compaction_floor = self.compaction_floor.max(revision);
            self.marks.pop_front();
        }
    }

    /// Forgets everything up to and including `at`.
    pub fn compact(&mut self, at: Revision) {
        while self.entries.front().is_some_and(|first| first.commit.revision <= at) {
            self.pop();
        }
        self.floor = self.floor.max(at);
        self.compaction_floor = self.compaction_floor.max(at);
    }

    fn pop(&mut self) {
        if let Some(first) = self.entries.pop_front() {
            self.bytes -= first.bytes;
            self.floor = first.commit.revision;
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The entries after `after`, oldest first.
    pub fn since(&self, after: Revision) -> impl DoubleEndedIterator<Item = &Entry> {
        let start = self.entries.partition_point(|entry| entry.commit.revision <= after);
        self.entries.range(start..)
    }

    /// What the keys under `prefix` that changed after `at` held at `at`; `None`: nothing.
    pub fn before(&self, at: Revision, prefix: &str) -> OrdMap<Arc<str>, Option<Item>> {
        let mut undo = OrdMap::new();
        for entry in self.since(at).rev() {
            for change in entry.commit.changes.iter().filter(|change| change.key.starts_with(prefix)) {
                undo.insert(change.key.clone(), change.previous.as_ref().map(Item::from));
            }
        }
        undo
    }
}

/// `present` with `undo` applied.
pub(super) fn rewind(present: &Present, undo: OrdMap<Arc<str>, Option<Item>>) -> Present {
    let mut then = present.clone();
    for (key, item) in undo {
        match item {
            Some(item) => then.insert(key, item),
            None => then.remove(&key),
        };
    }
    then
}

/// Bytes that a commit keeps alive and the present does not: values that were written over or deleted, each counted where
/// that happened, and the keys of those that are gone. What the present holds costs nothing here.
fn weight(commit: &Commit) -> usize {
    let of = |change: &Change| {
        let superseded = change.previous.as_ref().map_or(0, |previous| allocated(previous.value.len()));
        let key = if change.value.is_none() { allocated(change.key.len() + COUNTS) } else { 0 };
        size_of::<Change>() + superseded + key
    };
    let commits = allocated(size_of::<Commit>() + COUNTS) + size_of::<Entry>();
    commits + commit.changes.iter().map(of).sum::<usize>()
}

/// The two counters in front of what an `Arc` holds.
const COUNTS: usize = 2 * size_of::<usize>();

/// What the allocator gives for so many bytes: its sizes are an eighth apart on average.
fn allocated(bytes: usize) -> usize {
    bytes + bytes / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyValue;

    fn deletion(revision: u64, bytes: usize) -> Arc<Commit> {
        let key: Arc<str> = "pods./a/b".into();
        let revision = Revision(revision);
        let value = vec![b'x'; bytes].into();
        let previous = KeyValue { key: key.clone(), value, created: revision, modified: revision };
        let change = Change { key, value: None, created: revision, previous: Some(previous) };
        Arc::new(Commit { revision, changes: vec![change], durable: true })
    }

    #[test]
    fn what_was_deleted_is_bounded_in_bytes_and_its_room_is_given_back() {
        let (mut history, now) = (History::new(Revision(0)), Instant::now());
        let limits = Limits { bytes: 1 << 20, ..Limits::default() };
        for revision in 1..=10_000 {
            history.push(deletion(revision, 2000), now);
        }
        assert!(history.bytes() > 20 << 20, "each counts with what it keeps");
        history.trim(&limits, now);
        assert!(
            history.bytes() <= 1 << 20 && history.len() > 400,
            "{} of {}",
            history.bytes(),
            history.len()
        );
        assert!(history.entries.capacity() <= 4 * history.len());
        assert_eq!(history.floor(), Revision(10_000 - history.len() as u64));
    }

    #[test]
    fn revisions_are_outdated_by_time_alone() {
        let limits = Limits { revisions: 2, age: Duration::from_secs(300), ..Limits::default() };
        let (mut history, begun) = (History::new(Revision(1)), Instant::now());
        let at = |history: &mut History, second: u64, revision: u64| {
            let now = begun + Duration::from_secs(second);
            let commit = Commit { revision: Revision(revision), changes: Vec::new(), durable: true };
            history.push(Arc::new(commit), now);
            history.trim(&limits, now);
        };
        for revision in 2..100 {
            at(&mut history, revision, revision);
        }
        assert_eq!((history.floor(), history.compaction_floor()), (Revision(97), Revision(1)));
        at(&mut history, 340, 100);
        assert_eq!(
            history.compaction_floor(),
            Revision(32),
            "what was the newest five minutes ago, or just before"
        );
        history.compact(Revision(99));
        assert_eq!(history.compaction_floor(), Revision(99));
    }
}
