//! The journal's reading end: from the files back to the present and its history.

use super::record::Record;
use super::segment::{self, End, Segment, Step};
use crate::store::history::History;
use crate::store::keyspace::{Item, Present, redo, swap_in};
use crate::store::{Revision, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A state to replay upon.
#[derive(Default)]
pub(super) struct Base {
    /// The state as of `covered`.
    pub present: Present,
    /// Which history will reach back to.
    pub floor: Revision,
    /// Everything up to here is known to be in the checkpoint (or snapshot) that the state comes from, so damage in
    /// the journal before it loses nothing.
    pub covered: Revision,
    /// Where `floor` is before `covered`: what the keys that changed between them held at `floor`.
    pub undo: Option<Undo>,
}

pub(super) type Undo = HashMap<Arc<str>, Option<Item>>;

/// What came out of a replay.
pub(super) struct Replayed {
    pub present: Present,
    pub history: History,
    /// Newest commit, of the base or the journal.
    pub newest: Revision,
    /// Newest commit that the journal holds.
    pub journal_newest: Revision,
    pub reserved: Revision,
    /// The last thing in the journal is a clean stop, at this revision.
    pub closed: Option<Revision>,
    /// Newest checkpoint that the journal knows of.
    pub checkpoint: Revision,
    /// Keys of the commits after `covered`, which the checkpoint lacks.
    pub dirty: HashSet<Arc<str>>,
    /// Damage that `covered` makes good.
    pub holes: Vec<String>,
    /// The last segment in use, and how it ended.
    pub last: Option<u64>,
    pub end: Option<End>,
    /// The state as of `covered` was not met again on the way: history must not be trusted.
    pub astray: bool,
    past: Option<Undo>,
    floor: Revision,
    covered: Revision,
    pending: Option<Hole>,
    clock: Clock,
}

struct Hole {
    at: String,
    after: Revision,
}

/// Relates the wall clock of an earlier process to this one's monotonic clock. A wall clock that jumped makes history
/// look older or newer than it is, which costs a client a relist at worst.
struct Clock {
    now: Instant,
    wall_millis: u64,
}

pub(super) fn wall_millis() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl Clock {
    fn instant(&self, millis: u64) -> Instant {
        let age = Duration::from_millis(self.wall_millis.saturating_sub(millis));
        self.now.checked_sub(age).unwrap_or(self.now)
    }
}

/// Replays what the segments hold after the base.
///
/// # Errors
/// `Damaged` if acknowledged commits after `base.covered` cannot be read.
pub(super) fn replay(segments: &[Segment], base: Base) -> Result<Replayed, StoreError> {
    let mut state = Replayed::new(base);
    let mut previous: Option<u64> = None;
    for (index, segment) in segments.iter().enumerate() {
        let next = segments.get(index + 1);
        if next.and_then(|next| next.head).is_some_and(|head| head.base <= state.floor) {
            previous = Some(segment.seq);
            continue;
        }
        if let Some(previous) = previous.filter(|previous| previous + 1 != segment.seq) {
            state.hole(format!("segments between {previous} and {} are missing", segment.seq));
        }
        previous = Some(segment.seq);
        state.segment(segment, next)?;
    }
    state.finish()
}

impl Replayed {
    fn new(base: Base) -> Self {
        Self {
            astray: false,
            past: base.undo,
            present: base.present,
            history: History::new(base.floor),
            newest: base.floor,
            journal_newest: Revision(0),
            reserved: Revision(0),
            closed: None,
            checkpoint: Revision(0),
            dirty: HashSet::new(),
            holes: Vec::new(),
            last: None,
            end: None,
            floor: base.floor,
            covered: base.covered,
            pending: None,
            clock: Clock { now: Instant::now(), wall_millis: wall_millis() },
        }
    }

    fn segment(&mut self, segment: &Segment, next: Option<&Segment>) -> Result<(), StoreError> {
        let used_next = next.and_then(|next| next.head);
        let bytes = segment.read()?;
        let name = segment.path.display();
        let Some(head) = segment.head else {
            return self.headless(segment, &bytes, used_next.is_some());
        };
        if self.end.is_none() && head.base > self.floor {
            self.hole(format!("the journal begins only after revision {} with {name}", head.base.0));
        }
        self.resolve(Revision(head.base.0 + 1))?;
        self.reserved = self.reserved.max(head.reserved);
        let end = used_next.map(|head| usize::try_from(head.previous_end).unwrap_or(usize::MAX));
        self.scan(segment, &bytes, end)
    }

    /// A segment whose header cannot be read: never used if nothing intact is in it and nothing follows.
    fn headless(&mut self, segment: &Segment, bytes: &[u8], followed: bool) -> Result<(), StoreError> {
        let mut used = followed;
        segment::scan(segment.seq, bytes, None, |_| used = true);
        let blank = segment::scan(segment.seq, bytes, None, |_| {});
        if !used && !blank.torn {
            return Ok(());
        }
        self.hole(format!("{} has a damaged header", segment.path.display()));
        self.scan(segment, bytes, None)
    }

    fn scan(&mut self, segment: &Segment, bytes: &[u8], end: Option<usize>) -> Result<(), StoreError> {
        let mut result = Ok(());
        let end = segment::scan(segment.seq, bytes, end, |step| {
            if result.is_err() {
                return;
            }
            match step {
                Step::Hole(offset) => {
                    self.hole(format!("{} is damaged at offset {offset}", segment.path.display()));
                }
                Step::Record(record) => result = self.record(record),
            }
        });
        self.end = Some(end);
        self.last = Some(segment.seq);
        result
    }

    fn hole(&mut self, at: String) {
        self.pending.get_or_insert(Hole { at, after: self.newest });
    }

    /// The next intact commit, or the first that can follow, has this revision: is what lies between known anyway?
    fn resolve(&mut self, next: Revision) -> Result<(), StoreError> {
        let Some(hole) = self.pending.take() else { return Ok(()) };
        if self.covered.0 + 1 < next.0 {
            return Err(hole.lost(Some(next), self.covered));
        }
        self.holes.push(hole.at);
        Ok(())
    }

    fn record(&mut self, record: Record) -> Result<(), StoreError> {
        self.closed = None;
        if let Some(revision) = record.revision() {
            self.resolve(revision)?;
            self.journal_newest = self.journal_newest.max(revision);
        }
        match record {
            Record::Reserve(upto) => self.reserved = self.reserved.max(upto),
            Record::Checkpoint(revision) => self.checkpoint = self.checkpoint.max(revision),
            Record::Close(revision) => {
                self.reserved = revision;
                self.closed = Some(revision);
            }
            Record::Commit { revision, .. } if revision <= self.newest => {}
            Record::Commit { revision, millis, ops } => {
                if revision > self.covered {
                    self.compare();
                    self.dirty.extend(ops.iter().map(|op| op.key.clone()));
                }
                self.newest = revision;
                let ops = ops.into_iter().map(|op| (op.key, op.value));
                let commit = match &mut self.past {
                    Some(past) => {
                        let (present, astray) = (&self.present, &mut self.astray);
                        redo(|key, item| swap_past(past, present, astray, key, item), revision, ops)
                    }
                    None => redo(|key, item| swap_in(&mut self.present, key, item), revision, ops),
                };
                if let Some(commit) = commit {
                    self.history.push(Arc::new(commit), self.clock.instant(millis), true);
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Self, StoreError> {
        if let Some(hole) = self.pending.take() {
            return Err(hole.lost(None, self.covered));
        }
        self.compare();
        Ok(self)
    }

    fn compare(&mut self) {
        let Some(past) = self.past.take() else { return };
        let versions = |item: &Item| (item.created, item.modified);
        let same = |(key, item): (&Arc<str>, &Option<Item>)| {
            self.present.get(key).map(versions) == item.as_ref().map(versions)
        };
        self.astray |= !past.iter().all(same);
    }

    /// Whether damage lies where history was replayed, so that the history (not the present) has a gap.
    pub fn history_has_gaps(&self) -> bool {
        self.floor < self.covered && !self.holes.is_empty()
    }
}

/// Sets what a key held in the past. Where that is what it holds now, it shares the present's memory.
fn swap_past(
    past: &mut Undo,
    present: &Present,
    astray: &mut bool,
    key: &mut Arc<str>,
    item: &mut Option<Item>,
) -> Option<Item> {
    if let Some((known, now)) = present.get_key_value(&**key) {
        *key = known.clone();
        if let Some(item) = item
            && item.modified == now.modified
        {
            *item = now.clone();
        }
    }
    let Some(held) = past.get_mut(&**key) else {
        *astray = true;
        return None;
    };
    std::mem::replace(held, item.clone())
}

impl Hole {
    fn lost(self, next: Option<Revision>, covered: Revision) -> StoreError {
        let before = next.map_or_else(|| "the end".to_owned(), |next| format!("revision {}", next.0));
        StoreError::Damaged(format!(
            "{}: acknowledged commits after revision {} and before {before} cannot be read, and the checkpoint reaches \
             only to revision {}; restore a backup into an empty directory",
            self.at, self.after.0, covered.0
        ))
    }
}
