//! The journal's reading end: from the files back to the present and its history.

use super::record::{Body, Record};
use super::segment::{self, Content, End, Segment, Step, Tail};
use crate::history::History;
use crate::item::{Item, Present};
use crate::keyspace::{redo, swap_in};
use crate::{Revision, StoreError};
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
    /// There was a commit of this revision.
    pub witnessed: Revision,
    /// There is more than the journal, so a journal that is not there is lost.
    pub needs_journal: bool,
    pub loss: Loss,
}

/// What becomes of acknowledged commits that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Loss {
    /// There is no state without them.
    #[default]
    Refused,
    /// Those after this revision are given up, with all that came after them: the state is as before the first of them.
    GivenUpAfter(Revision),
    /// They are passed over: the state has everything else, whether it fits together or not.
    PassedOver,
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
    /// What was cut off the end of the journal, as far as can be known before anybody acknowledged it.
    pub cut: Option<String>,
    /// What was lost, as [`Loss`] allows.
    pub lost: Vec<String>,
    /// Nothing more counts.
    ended: bool,
    /// The last segment in use, and how it ended.
    pub last: Option<u64>,
    pub end: Option<End>,
    /// The state as of `covered` was not met again on the way: history must not be trusted.
    pub astray: bool,
    past: Option<Undo>,
    floor: Revision,
    covered: Revision,
    witnessed: Revision,
    loss: Loss,
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
    let journal_is_missing = base.needs_journal && segments.iter().all(|segment| segment.perhaps_unused);
    let mut state = Replayed::new(base);
    if journal_is_missing {
        state.hole("the journal is missing".to_owned());
    }
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
        if state.ended {
            break;
        }
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
            cut: None,
            lost: Vec::new(),
            ended: false,
            witnessed: base.witnessed,
            loss: base.loss,
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
        let content = segment.read()?;
        let Some(head) = segment.head else {
            let followed = next.is_some_and(|next| !next.perhaps_unused);
            return self.headless(segment, &content, followed);
        };
        if self.end.is_none() && head.base > self.floor {
            let name = segment.path.display();
            self.hole(format!("the journal begins only after revision {} with {name}", head.base.0));
        }
        self.resolve(head.base)?;
        self.reserved = self.reserved.max(head.reserved);
        let end = used_next.map(|head| usize::try_from(head.previous_end).unwrap_or(usize::MAX));
        self.scan(segment, &content, end)?;
        self.judge_end(segment, &content, end.is_some());
        Ok(())
    }

    /// A segment whose header cannot be read. In a store of the first layout it was never used unless something in it, or
    /// a later segment, vouches for it.
    fn headless(&mut self, segment: &Segment, content: &Content, followed: bool) -> Result<(), StoreError> {
        if segment.perhaps_unused && !followed && !segment::vouches_for_itself(segment.seq, &content.bytes) {
            let mut used = false;
            let end = segment::scan(segment.seq, &content.bytes, None, false, |_| used = true);
            if used || end.tail != Tail::Clean {
                let path = segment.path.display();
                self.cut = Some(format!("the first group of {path}, whose header never reached the disk"));
            }
            return Ok(());
        }
        self.hole(format!("{} has a damaged header", segment.path.display()));
        self.scan(segment, content, None)?;
        self.judge_end(segment, content, false);
        Ok(())
    }

    /// What is missing behind the last record that can be read may have been acknowledged, unless the next segment or a
    /// clean stop says that the journal ended before.
    fn judge_end(&mut self, segment: &Segment, content: &Content, told: bool) {
        let name = segment.path.display();
        let wrong_size = segment.head.is_some() && segment.has_wrong_size();
        let text = match (wrong_size, content.unreadable.first()) {
            (true, _) => format!("{name} has a wrong size ({} bytes)", segment.size),
            (false, Some(at)) => format!("the disk cannot read {name} at offset {at}"),
            (false, None) => return,
        };
        let unsure = self.end.is_some_and(|end| content.is_unsure_at(end));
        if unsure && !told && self.closed.is_none() {
            self.cut = None;
            self.hole(text);
        } else {
            self.holes.push(text);
        }
    }

    fn scan(&mut self, segment: &Segment, content: &Content, end: Option<usize>) -> Result<(), StoreError> {
        let mut result = Ok(());
        let marked = segment.head.is_some_and(|head| head.marked);
        let end = segment::scan(segment.seq, &content.bytes, end, marked, |step| {
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
        self.cut = cut_off(segment, end);
        result
    }

    fn hole(&mut self, at: String) {
        self.pending.get_or_insert(Hole { at, after: self.newest });
    }

    /// What was in the hole has this revision at most: is it known anyway, or is there no room for a commit?
    fn resolve(&mut self, upto: Revision) -> Result<(), StoreError> {
        let Some(hole) = self.pending.take() else { return Ok(()) };
        if upto > self.covered && upto > hole.after {
            return self.lose(&hole, Some(upto));
        }
        self.holes.push(hole.at);
        Ok(())
    }

    fn lose(&mut self, hole: &Hole, upto: Option<Revision>) -> Result<(), StoreError> {
        let lost = hole.lost(upto, self.covered);
        match self.loss {
            Loss::PassedOver => {}
            Loss::GivenUpAfter(allowed) if hole.after >= allowed => self.ended = true,
            _ => {
                let way_out = hole.after.0;
                return Err(StoreError::Damaged(format!(
                    "{lost}. `coracle db repair --accept-loss-after {way_out}` keeps what was there before; `coracle db \
                     repair --salvage` keeps all that can be read, whether it fits together or not; or put a copy of \
                     the data directory back"
                )));
            }
        }
        self.lost.push(lost);
        Ok(())
    }

    fn record(&mut self, record: Record) -> Result<(), StoreError> {
        if let Some(upto) = record.bound() {
            self.resolve(upto)?;
        }
        if self.ended {
            return Ok(());
        }
        self.closed = None;
        if let Some(revision) = record.revision() {
            self.journal_newest = self.journal_newest.max(revision);
        }
        match record.body {
            Body::Reserve(upto) => self.reserved = self.reserved.max(upto),
            Body::Checkpoint(tree) => self.checkpoint = self.checkpoint.max(tree),
            Body::Close(at) => {
                self.reserved = at;
                self.closed = Some(at);
            }
            Body::Commit { revision, .. } if revision <= self.newest => {}
            Body::Commit { revision, millis, ops } => {
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
                    self.history.push(Arc::new(commit), self.clock.instant(millis));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Self, StoreError> {
        if !self.ended && self.newest.max(self.covered) < self.witnessed {
            self.cut = None;
            self.hole("the journal ends too early".to_owned());
        }
        if let Some(hole) = self.pending.take() {
            let upto = Some(self.witnessed).filter(|witnessed| *witnessed > hole.after);
            self.lose(&hole, upto)?;
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
    fn lost(&self, upto: Option<Revision>, covered: Revision) -> String {
        let upto = upto.map_or_else(|| "the end".to_owned(), |upto| format!("revision {}", upto.0));
        format!(
            "{}: acknowledged commits after revision {} and up to {upto} cannot be read, and the checkpoint reaches \
             only to revision {}",
            self.at, self.after.0, covered.0
        )
    }
}

/// What stood behind the last acknowledged record of the segment that was written last.
fn cut_off(segment: &Segment, end: End) -> Option<String> {
    let place = format!("{} from offset {}", segment.path.display(), end.offset);
    match end.tail {
        Tail::Clean => None,
        Tail::Broken => Some(format!("a record that is not whole, or the mark of the end, in {place}")),
        Tail::Torn { records, newest } => {
            let upto = newest
                .map_or_else(String::new, |newest| format!(" with commits up to revision {}", newest.0));
            Some(format!("a torn group, of which {records} records{upto} are whole, in {place}"))
        }
    }
}
