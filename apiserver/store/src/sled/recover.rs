//! Opening: from whatever a clean stop, a kill, a power cut or a failing disk left behind to the state that was
//! acknowledged, or to an error that says what is lost.

use super::disk::{self, at};
use super::dump;
use super::format::Format;
use super::journal::{Kept, Resume};
use super::replay::{Base, Loss, Replayed, Undo, replay};
use super::report::{IncidentKind, Reporter};
use super::segment::{self, Head, Segment, Tail};
use super::tree::{self, TreeError};
use super::witness;
use crate::history::History;
use crate::item::Present;
use crate::{Revision, StoreError};
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const TREE: &str = "sled";
pub(super) const TREE_NEW: &str = "sled.new";
pub(super) const TREE_OLD: &str = "sled.old";
pub(super) const TREE_BAD: &str = "sled.bad-";
/// Made and removed by whoever looks at a tree without changing it.
pub(super) const TREE_COPY: &str = "sled.copy";
pub(super) const SNAPSHOT: &str = "snapshot";
pub(super) const HISTORY: &str = "history-";
/// Trees set aside that are kept for a post-mortem.
const BAD_TREES: usize = 2;
/// Revisions that are never handed out after anything but a clean stop: more than a torn tail can have held, so that none
/// is used for two objects.
const SKIPPED: u64 = 1 << 16;
/// The same after damage, which may have hidden how many were reserved.
const SKIPPED_BY_DAMAGE: u64 = 1 << 20;

pub(super) struct Recovered {
    pub present: Present,
    pub history: History,
    pub revision: Revision,
    pub resume: Resume,
    /// Newest durable commit.
    pub newest: Revision,
    /// Keys that the tree lacks.
    pub dirty: HashSet<Arc<str>>,
    /// As of which revision there is a snapshot; 0: the journal goes back to the beginning.
    pub snapshot: Revision,
    /// The tree is gone or not to be trusted.
    pub rebuild: bool,
    /// Damage was found that a new snapshot and a new segment leave behind.
    pub renew: bool,
}

pub(super) fn history_path(dir: &Path, checkpoint: Revision) -> PathBuf {
    dir.join(format!("{HISTORY}{}", checkpoint.0))
}

/// The files that hold history from before a checkpoint, with that checkpoint's revision.
pub(super) fn history_files(dir: &Path) -> Vec<(PathBuf, Revision)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let parse = |path: PathBuf| {
        let revision = path.file_name()?.to_str()?.strip_prefix(HISTORY)?.parse().ok()?;
        Some((path, Revision(revision)))
    };
    entries.flatten().filter_map(|entry| parse(entry.path())).collect()
}

pub(super) fn recover(dir: &Path, reporter: &Reporter) -> Result<Recovered, StoreError> {
    let format = Format::of(dir)?;
    tidy(dir).map_err(at(dir))?;
    let segments = segment::list(dir)?;
    let (snapshot, damage) = match snapshot_head(dir)? {
        None => (None, None),
        Some(Ok(head)) => (Some(head), None),
        Some(Err(why)) => (None, Some(why)),
    };
    let mut found = Found { dir, format, segments, snapshot, damage };
    let recovered = found.choose(reporter)?;
    if let Some(why) = &found.damage {
        let text = format!("{}: {why}; a new one is written", dir.join(SNAPSHOT).display());
        reporter.incident(IncidentKind::SnapshotDamaged, text);
    }
    Ok(Recovered { renew: recovered.renew || found.damage.is_some(), ..recovered })
}

/// What lies in the directory.
struct Found<'a> {
    dir: &'a Path,
    format: Format,
    segments: Vec<Segment>,
    snapshot: Option<dump::Head>,
    /// Why there is a snapshot that cannot be used.
    damage: Option<String>,
}

impl Found<'_> {
    /// The tree and the journal's end if they can be had, and otherwise the snapshot and all of the journal.
    fn choose(&mut self, reporter: &Reporter) -> Result<Recovered, StoreError> {
        let (mut distrust, mut failure) = (None, None);
        match load_tree(self.dir) {
            None => {}
            Some(Err(error)) => distrust = Some(chain(&error)),
            Some(Ok(loaded)) => match self.upon_tree(loaded) {
                Ok((replayed, checkpoint)) => {
                    let rolled_back = replayed.checkpoint > checkpoint;
                    if rolled_back {
                        let noted = replayed.checkpoint.0;
                        let why = format!("it fell back from revision {noted} to {}", checkpoint.0);
                        set_aside(self.dir, reporter, &why)?;
                    }
                    return Ok(self.finish(replayed, checkpoint, rolled_back, reporter));
                }
                Err(error) => failure = Some(error),
            },
        }
        let had_tree = distrust.is_some() || failure.is_some();
        let (replayed, base) = self
            .upon_snapshot(had_tree)
            .map_err(|error| self.refusal(distrust.as_deref(), failure, error))?;
        let lost_tree = replayed.checkpoint > Revision(0) && !had_tree;
        if let Some(why) = distrust {
            set_aside(self.dir, reporter, &why)?;
        } else if had_tree {
            set_aside(self.dir, reporter, "it is older than the journal reaches back to")?;
        } else if lost_tree {
            let text = "sled's directory is missing; it is rebuilt from snapshot and journal";
            reporter.incident(IncidentKind::CheckpointDamaged, text.to_owned());
        }
        Ok(self.finish(replayed, base, had_tree || lost_tree, reporter))
    }

    /// Why nothing that was acknowledged can be served, with everything that is damaged. `failure` is what stood in the
    /// way of a tree that is whole, `error` what stood in the way without the tree.
    fn refusal(&self, distrust: Option<&str>, failure: Option<StoreError>, error: StoreError) -> StoreError {
        let tree = distrust.map(|why| format!("sled cannot be trusted ({why})"));
        let snapshot = self.damage.as_ref().map(|why| format!("the snapshot is damaged ({why})"));
        let damaged: Vec<String> = tree.into_iter().chain(snapshot).collect();
        match failure.unwrap_or(error) {
            StoreError::Damaged(text) if !damaged.is_empty() => {
                StoreError::Damaged(format!("{}, and in {text}", damaged.join(", ")))
            }
            other => other,
        }
    }

    fn upon_tree(&self, loaded: tree::Loaded) -> Result<(Replayed, Revision), StoreError> {
        let checkpoint = loaded.revision;
        let base = |floor, undo, present| Base {
            present,
            floor,
            covered: checkpoint,
            undo,
            witnessed: witness::read(self.dir),
            needs_journal: self.format > Format::First,
            loss: Loss::Refused,
        };
        if let Some((undo, floor)) = read_history(self.dir, checkpoint) {
            match replay(&self.segments, base(floor, Some(undo), loaded.present.clone())) {
                Ok(replayed) if !replayed.astray && !replayed.history_has_gaps() => {
                    return Ok((replayed, checkpoint));
                }
                _ => tracing::warn!(
                    "the store's history ends at its last checkpoint; watches may have to start anew"
                ),
            }
        }
        replay(&self.segments, base(checkpoint, None, loaded.present)).map(|replayed| (replayed, checkpoint))
    }

    /// The state without the tree, and as of when the snapshot in it is. A snapshot that cannot be read is not needed where
    /// the journal goes back to the beginning.
    fn upon_snapshot(&mut self, had_tree: bool) -> Result<(Replayed, Revision), StoreError> {
        let mut base = Base {
            witnessed: witness::read(self.dir),
            needs_journal: had_tree || self.damage.is_some(),
            ..Base::default()
        };
        if let Some(head) = self.snapshot {
            match load_snapshot(self.dir) {
                Ok(present) => {
                    (base.present, base.floor, base.covered) = (present, head.revision, head.revision);
                    base.needs_journal = !head.standalone;
                }
                Err(error) if is_lost(&error) => {
                    self.damage = Some(error.to_string());
                    self.snapshot = None;
                    base.needs_journal = true;
                }
                Err(error) => return Err(at(&self.dir.join(SNAPSHOT))(error)),
            }
        }
        let covered = base.covered;
        replay(&self.segments, base).map(|replayed| (replayed, covered))
    }
}

/// Damage, or a disk that gives something back no more, in contrast to a passing lack of memory or descriptors.
pub(super) fn is_lost(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidData || disk::cannot_read(error)
}

/// Leftovers of a stop in the middle of something.
pub(super) fn tidy(dir: &Path) -> std::io::Result<()> {
    let (tree, old) = (dir.join(TREE), dir.join(TREE_OLD));
    if old.is_dir() && !tree.is_dir() {
        std::fs::rename(&old, &tree)?;
    }
    for leftover in [old, dir.join(TREE_NEW), dir.join(TREE_COPY)] {
        if leftover.is_dir() {
            std::fs::remove_dir_all(leftover)?;
        }
    }
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "tmp") {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// What the snapshot says of itself, if there is one, or why it cannot be used.
fn snapshot_head(dir: &Path) -> Result<Option<Result<dump::Head, String>>, StoreError> {
    let path = dir.join(SNAPSHOT);
    match File::open(&path).and_then(dump::head) {
        Ok(head) => Ok(Some(Ok(head))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if is_lost(&error) => Ok(Some(Err(error.to_string()))),
        Err(error) => Err(at(&path)(error)),
    }
}

pub(super) fn load_snapshot(dir: &Path) -> std::io::Result<Present> {
    read_snapshot(File::open(dir.join(SNAPSHOT))?)
}

pub(super) fn read_snapshot(input: impl std::io::Read) -> std::io::Result<Present> {
    let mut present = Present::new();
    dump::read(input, |(key, item)| {
        if let Some(item) = item {
            present.insert(key, item);
        }
    })?;
    Ok(present)
}

fn load_tree(dir: &Path) -> Option<Result<tree::Loaded, TreeError>> {
    let path = dir.join(TREE);
    if !path.join("db").exists() {
        return None;
    }
    match tree::load(&path) {
        Err(error) if error.is_full() && disk::free_reserve(dir) => Some(tree::load(&path)),
        other => Some(other),
    }
}

/// What the keys that changed since the history's floor held at that floor.
fn read_history(dir: &Path, checkpoint: Revision) -> Option<(Undo, Revision)> {
    let file = File::open(history_path(dir, checkpoint)).ok()?;
    let mut undo = Undo::new();
    let head = dump::read(file, |(key, item)| drop(undo.insert(key, item))).ok()?;
    (head.revision == checkpoint && head.other <= checkpoint).then_some((undo, head.other))
}

fn set_aside(dir: &Path, reporter: &Reporter, why: &str) -> Result<(), StoreError> {
    let tree = dir.join(TREE);
    // Another start may have taken the name of this second.
    let names = (super::replay::wall_millis() / 1000..).map(|second| dir.join(format!("{TREE_BAD}{second}")));
    let aside = names.into_iter().find(|name| !name.exists()).unwrap_or_else(|| dir.join(TREE_BAD));
    let text = format!("sled cannot be trusted ({why}); set aside as {} and rebuilt", aside.display());
    reporter.incident(IncidentKind::CheckpointDamaged, text);
    std::fs::rename(&tree, &aside).and_then(|()| disk::sync_dir(dir)).map_err(at(&tree))?;
    let entries = std::fs::read_dir(dir).map_err(at(dir))?.flatten().map(|entry| entry.path());
    let is_bad = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(TREE_BAD))
    };
    let mut bad: Vec<PathBuf> = entries.filter(is_bad).collect();
    bad.sort();
    for old in bad.iter().rev().skip(BAD_TREES) {
        std::fs::remove_dir_all(old).map_err(at(old))?;
    }
    Ok(())
}

impl Found<'_> {
    fn finish(
        &self,
        mut replayed: Replayed,
        base: Revision,
        rebuild: bool,
        reporter: &Reporter,
    ) -> Recovered {
        for hole in &replayed.holes {
            let text = format!("{hole}; the state as of revision {} covers it, nothing is lost", base.0);
            reporter.incident(IncidentKind::JournalDamaged, text);
        }
        let last_base = self.segments.iter().filter_map(|segment| segment.head).map(|head| head.base).max();
        let short = last_base.is_some_and(|last| last.max(replayed.journal_newest) < base);
        if short {
            let text = format!(
                "the journal ends before the checkpoint at revision {}; nothing known is lost",
                base.0
            );
            reporter.incident(IncidentKind::JournalDamaged, text);
        }
        if let Some(cut) = &replayed.cut {
            let text = format!(
                "cut off {cut}: it was being written when the process or the machine stopped, or the disk lost it then"
            );
            reporter.incident(IncidentKind::TailCut, text);
        }
        let renew = short || !replayed.holes.is_empty();
        let snapshot_other = self.snapshot.map_or(Revision(0), |head| head.other);
        let used = replayed.newest.max(base);
        let reserved = replayed.reserved.max(snapshot_other).max(used);
        let skipped = if renew { SKIPPED_BY_DAMAGE } else { SKIPPED };
        let revision = match replayed.closed {
            Some(closed) if !renew => closed.max(used),
            // Nothing was ever handed out.
            None if reserved == Revision(0) => reserved,
            _ => Revision(reserved.0 + skipped),
        };
        if replayed.closed.is_none() && reserved > Revision(0) {
            let (newest, next) = (used.0, revision.0 + 1);
            tracing::info!(
                newest,
                next,
                "the store was not closed: this is the newest commit that its journal holds"
            );
        }
        let resume = self.resume(&replayed, renew, used, revision);
        Recovered {
            present: std::mem::take(&mut replayed.present),
            history: replayed.history,
            revision,
            resume,
            newest: used,
            dirty: replayed.dirty,
            snapshot: self.snapshot.map_or(Revision(0), |head| head.revision),
            rebuild,
            renew,
        }
    }

    fn resume(&self, replayed: &Replayed, renew: bool, newest: Revision, revision: Revision) -> Resume {
        let segments = &self.segments;
        let mut kept: VecDeque<Kept> = VecDeque::new();
        let named = segments.iter().rposition(|segment| segment.head.is_some());
        let read = segments.iter().rposition(|segment| replayed.last == Some(segment.seq));
        let used = named.max(read);
        let mut next_base = newest;
        for segment in segments[..used.unwrap_or(0)].iter().rev() {
            next_base = segment.head.map_or(next_base, |head| head.base);
            kept.push_front(Kept { seq: segment.seq, base: next_base, size: segment.size });
        }
        let last = used.map(|index| {
            let segment = &segments[index];
            let end = replayed.end.map_or(segment::START, |end| end.offset);
            let (seq, base) = (segment.seq, newest);
            let lost = Head { seq, base, reserved: revision, previous_end: 0, size: 0, marked: false };
            (segment.head.unwrap_or(lost), end as u64, segment.size)
        });
        let unused = segments.iter().skip(used.map_or(0, |used| used + 1));
        let clean = replayed.end.is_none_or(|end| end.tail == Tail::Clean);
        Resume {
            kept,
            last,
            reuse: clean && !renew,
            closed: replayed.closed.is_some(),
            unused: unused.map(|segment| segment.path.clone()).collect(),
            newest,
            reserved: revision,
        }
    }
}

/// An error with its sources.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
