//! The commits that watches and lists at older revisions can still be answered from.

use super::{Change, Commit, Revision};
use imbl::OrdMap;
use std::{collections::VecDeque, sync::Arc, time::Duration, time::Instant};

use super::keyspace::{Item, Present};

/// How much history is kept; whichever limit is reached first.
///
/// Trimming happens at commits only, so that an idle store needs no timer.
#[derive(Clone, Debug)]
pub struct Limits {
    pub revisions: usize,
    /// Upstream's API server compacts etcd every five minutes.
    pub age: Duration,
    /// Of what only history keeps in memory: superseded values, and the commits themselves. Without it ten thousand
    /// updates of large objects would be gigabytes.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { revisions: 10_000, age: Duration::from_secs(300), bytes: 24 << 20 }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub commit: Arc<Commit>,
    /// When it was committed, as far as this process knows.
    pub at: Instant,
    /// Whether the journal holds it. Volatile commits are history only as long as the process lives.
    pub journaled: bool,
    bytes: usize,
}

/// A ring of commits, gapless from `floor` (exclusive) to the newest revision.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    floor: Revision,
    bytes: usize,
    outdated: Revision,
    /// What the newest revision was at some moments, [`MARKED_EVERY`] apart, within the limit of age.
    marks: VecDeque<(Instant, Revision)>,
}

/// So much later than its time a revision may become outdated.
const MARKED_EVERY: Duration = Duration::from_secs(10);

impl History {
    pub fn new(floor: Revision) -> Self {
        Self { floor, outdated: floor, ..Self::default() }
    }

    /// Revisions before it are older than the limit of age, or were compacted. The other limits do not move it: of what
    /// has not changed since, no history is needed to tell what it was.
    pub fn outdated(&self) -> Revision {
        self.outdated
    }

    /// The state at `floor` and every later one can still be told.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn push(&mut self, commit: Arc<Commit>, at: Instant, journaled: bool) {
        let bytes = weight(&commit);
        self.bytes += bytes;
        if self.marks.back().is_none_or(|(marked, _)| at.saturating_duration_since(*marked) >= MARKED_EVERY) {
            self.marks.push_back((at, commit.revision));
        }
        self.entries.push_back(Entry { commit, at, journaled, bytes });
    }

    pub fn trim(&mut self, limits: &Limits, now: Instant) {
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
            self.outdated = self.outdated.max(revision);
            self.marks.pop_front();
        }
    }

    /// Forgets everything up to and including `at`.
    pub fn compact(&mut self, at: Revision) {
        while self.entries.front().is_some_and(|first| first.commit.revision <= at) {
            self.pop();
        }
        self.floor = self.floor.max(at);
        self.outdated = self.outdated.max(at);
    }

    fn pop(&mut self) {
        if let Some(first) = self.entries.pop_front() {
            self.bytes -= first.bytes;
            self.floor = first.commit.revision;
        }
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

/// Bytes that a commit keeps alive and the present does not: values that were written over, each counted where it was
/// replaced. What the present holds costs nothing here.
fn weight(commit: &Commit) -> usize {
    let of = |change: &Change| {
        let superseded = change.previous.as_ref().map_or(0, |previous| previous.value.len());
        size_of::<Change>() + superseded
    };
    size_of::<Commit>() + size_of::<Entry>() + commit.changes.iter().map(of).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_outdated_by_time_alone() {
        let limits = Limits { revisions: 2, age: Duration::from_secs(300), ..Limits::default() };
        let (mut history, begun) = (History::new(Revision(1)), Instant::now());
        let at = |history: &mut History, second: u64, revision: u64| {
            let now = begun + Duration::from_secs(second);
            let commit = Commit { revision: Revision(revision), changes: Vec::new() };
            history.push(Arc::new(commit), now, true);
            history.trim(&limits, now);
        };
        for revision in 2..100 {
            at(&mut history, revision, revision);
        }
        assert_eq!((history.floor(), history.outdated()), (Revision(97), Revision(1)));
        at(&mut history, 340, 100);
        assert_eq!(history.outdated(), Revision(32), "what was the newest five minutes ago, or just before");
        history.compact(Revision(99));
        assert_eq!(history.outdated(), Revision(99));
    }
}
