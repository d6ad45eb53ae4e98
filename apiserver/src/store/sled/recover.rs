//! Opening: from whatever a clean stop, a kill, a power cut or a failing disk left behind to the state that was
//! acknowledged, or to an error that says what is lost.

use super::disk::{self, at};
use super::dump;
use super::journal::{Kept, Resume};
use super::replay::{Base, Replayed, Undo, replay};
use super::report::{IncidentKind, Reporter};
use super::segment::{self, Head, Segment, Tail};
use super::tree::{self, TreeError};
use crate::store::history::History;
use crate::store::keyspace::Present;
use crate::store::{Revision, StoreError};
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const TREE: &str = "sled";
pub(super) const TREE_NEW: &str = "sled.new";
pub(super) const TREE_OLD: &str = "sled.old";
pub(super) const TREE_BAD: &str = "sled.bad-";
pub(super) const SNAPSHOT: &str = "snapshot";
const HISTORY: &str = "history-";
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
    tidy(dir).map_err(at(dir))?;
    let segments = segment::list(dir)?;
    let Insurance { head: snapshot, damaged } = insurance(dir, reporter)?;
    let recovered = choose(dir, &segments, snapshot, reporter)?;
    Ok(Recovered { renew: recovered.renew || damaged, ..recovered })
}

/// The tree and the journal's end if they can be had, and otherwise the snapshot and all of the journal.
fn choose(
    dir: &Path,
    segments: &[Segment],
    snapshot: Option<dump::Head>,
    reporter: &Reporter,
) -> Result<Recovered, StoreError> {
    let mut distrust = None;
    let mut failure = None;
    match load_tree(dir) {
        None => {}
        Some(Err(error)) => distrust = Some(chain(&error)),
        Some(Ok(loaded)) => match from_tree(dir, segments, loaded) {
            Ok((replayed, checkpoint)) => {
                let rolled_back = replayed.checkpoint > checkpoint;
                if rolled_back {
                    let noted = replayed.checkpoint.0;
                    set_aside(
                        dir,
                        reporter,
                        &format!("it fell back from revision {noted} to {}", checkpoint.0),
                    )?;
                }
                return finish(segments, replayed, checkpoint, snapshot, rolled_back, reporter);
            }
            Err(error) => failure = Some(error),
        },
    }
    let had_tree = distrust.is_some() || failure.is_some();
    let replayed =
        from_snapshot(dir, segments, snapshot, had_tree).map_err(|error| failure.unwrap_or(error))?;
    let lost_tree = replayed.checkpoint > Revision(0) && !had_tree;
    if let Some(why) = distrust {
        set_aside(dir, reporter, &why)?;
    } else if had_tree {
        set_aside(dir, reporter, "it is older than the journal reaches back to")?;
    } else if lost_tree {
        let text = "sled's directory is missing; it is rebuilt from snapshot and journal";
        reporter.incident(IncidentKind::CheckpointDamaged, text.to_owned());
    }
    let base = snapshot.map_or(Revision(0), |head| head.revision);
    finish(segments, replayed, base, snapshot, had_tree || lost_tree, reporter)
}

/// Leftovers of a stop in the middle of something.
fn tidy(dir: &Path) -> std::io::Result<()> {
    let (tree, old) = (dir.join(TREE), dir.join(TREE_OLD));
    if old.is_dir() && !tree.is_dir() {
        std::fs::rename(&old, &tree)?;
    }
    for leftover in [old, dir.join(TREE_NEW)] {
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

/// What is known of the snapshot without reading it.
struct Insurance {
    head: Option<dump::Head>,
    damaged: bool,
}

fn insurance(dir: &Path, reporter: &Reporter) -> Result<Insurance, StoreError> {
    let path = dir.join(SNAPSHOT);
    let file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Insurance { head: None, damaged: false });
        }
        other => other.map_err(at(&path))?,
    };
    match dump::head(file) {
        Ok(head) => Ok(Insurance { head: Some(head), damaged: false }),
        Err(error) => {
            let text = format!("{}: {error}; a new one is written", path.display());
            reporter.incident(IncidentKind::SnapshotDamaged, text);
            Ok(Insurance { head: None, damaged: true })
        }
    }
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

fn from_tree(
    dir: &Path,
    segments: &[Segment],
    loaded: tree::Loaded,
) -> Result<(Replayed, Revision), StoreError> {
    let checkpoint = loaded.revision;
    if let Some((undo, floor)) = read_history(dir, checkpoint) {
        let present = loaded.present.clone();
        let base = Base { present, floor, covered: checkpoint, undo: Some(undo), give_up_after: None };
        match replay(segments, base) {
            Ok(replayed) if !replayed.astray && !replayed.history_has_gaps() => {
                return Ok((replayed, checkpoint));
            }
            _ => tracing::warn!(
                "the store's history ends at its last checkpoint; watches may have to start anew"
            ),
        }
    }
    let base = Base {
        present: loaded.present,
        floor: checkpoint,
        covered: checkpoint,
        undo: None,
        give_up_after: None,
    };
    replay(segments, base).map(|replayed| (replayed, checkpoint))
}

/// What the keys that changed since the history's floor held at that floor.
fn read_history(dir: &Path, checkpoint: Revision) -> Option<(Undo, Revision)> {
    let file = File::open(history_path(dir, checkpoint)).ok()?;
    let mut undo = Undo::new();
    let head = dump::read(file, |(key, item)| drop(undo.insert(key, item))).ok()?;
    (head.revision == checkpoint && head.other <= checkpoint).then_some((undo, head.other))
}

fn from_snapshot(
    dir: &Path,
    segments: &[Segment],
    snapshot: Option<dump::Head>,
    had_tree: bool,
) -> Result<Replayed, StoreError> {
    let used = segments.iter().any(|segment| segment.head.is_some());
    let whole = snapshot.is_some_and(|head| head.standalone);
    if !used && !whole && (had_tree || snapshot.is_some()) {
        return Err(StoreError::Damaged(format!("{}: the journal is missing", dir.display())));
    }
    let Some(head) = snapshot else {
        return replay(segments, Base::default());
    };
    let path = dir.join(SNAPSHOT);
    let mut present = Present::new();
    File::open(&path)
        .and_then(|file| {
            dump::read(file, |(key, item)| {
                if let Some(item) = item {
                    present.insert(key, item);
                }
            })
        })
        .map_err(at(&path))?;
    let base =
        Base { present, floor: head.revision, covered: head.revision, undo: None, give_up_after: None };
    replay(segments, base)
}

fn set_aside(dir: &Path, reporter: &Reporter, why: &str) -> Result<(), StoreError> {
    let aside = dir.join(format!("{TREE_BAD}{}", super::replay::wall_millis() / 1000));
    let tree = dir.join(TREE);
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

fn finish(
    segments: &[Segment],
    mut replayed: Replayed,
    base: Revision,
    snapshot: Option<dump::Head>,
    rebuild: bool,
    reporter: &Reporter,
) -> Result<Recovered, StoreError> {
    for hole in &replayed.holes {
        let text = format!("{hole}; the state as of revision {} covers it, nothing is lost", base.0);
        reporter.incident(IncidentKind::JournalDamaged, text);
    }
    let last_base = segments.iter().filter_map(|segment| segment.head).map(|head| head.base).max();
    let short = last_base.is_some_and(|last| last.max(replayed.journal_newest) < base);
    if short {
        let text =
            format!("the journal ends before the checkpoint at revision {}; nothing known is lost", base.0);
        reporter.incident(IncidentKind::JournalDamaged, text);
    }
    if let Some(cut) = &replayed.cut {
        let text = format!("cut off {cut}: it was being written when the process or the machine stopped");
        reporter.incident(IncidentKind::TailCut, text);
    }
    let renew = short || !replayed.holes.is_empty();
    let snapshot_other = snapshot.map_or(Revision(0), |head| head.other);
    let used = replayed.newest.max(base);
    let reserved = replayed.reserved.max(snapshot_other).max(used);
    let skipped = if renew { SKIPPED_BY_DAMAGE } else { SKIPPED };
    let revision = match replayed.closed {
        Some(closed) if !renew => closed.max(used),
        // Nothing was ever handed out.
        None if reserved == Revision(0) => reserved,
        _ => Revision(reserved.0 + skipped),
    };
    let resume = resume(segments, &replayed, renew, used, revision);
    Ok(Recovered {
        present: std::mem::take(&mut replayed.present),
        history: replayed.history,
        revision,
        resume,
        newest: used,
        dirty: replayed.dirty,
        snapshot: snapshot.map_or(Revision(0), |head| head.revision),
        rebuild,
        renew,
    })
}

fn resume(
    segments: &[Segment],
    replayed: &Replayed,
    renew: bool,
    newest: Revision,
    revision: Revision,
) -> Resume {
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
        let lost = Head { seq: segment.seq, base: newest, reserved: revision, previous_end: 0 };
        (segment.head.unwrap_or(lost), end as u64, segment.size)
    });
    let clean = replayed.end.is_none_or(|end| end.tail == Tail::Clean);
    let closed = replayed.closed.is_some();
    Resume { kept, last, reuse: clean && !renew, closed, newest, reserved: revision }
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
