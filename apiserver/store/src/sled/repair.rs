//! What can be done with a store that does not open: looking at it whole without changing it, and giving up what cannot
//! be read.

use super::dump::{self, Head};
use super::format::Format;
use super::lift;
use super::meter::{Doing, Meter, NOBODY, Share, Watch};
use super::picture::{self, Picture};
use super::recover::{self, SNAPSHOT, TREE};
use super::replay::{Base, Loss, Replayed, replay};
use super::segment::{self, Content, Segment, Step};
use super::{RESTORE_JUMP, disk, tree, witness};
use crate::item::Present;
use crate::{Revision, StoreError};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where what was there before a repair is kept.
pub(super) const ASIDE: &str = "before-repair-";

/// What was found of one part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    /// What it holds, or what is wrong with it.
    pub state: Result<String, String>,
}

/// A store as it lies on the disk, with nothing changed.
#[derive(Clone, Debug)]
pub struct Examination {
    pub parts: Vec<Part>,
    /// The newest commit that a start would come to, or why it would refuse.
    pub outcome: Result<Revision, String>,
}

impl Examination {
    /// Whether anything is damaged, needed or not.
    pub fn is_damaged(&self) -> bool {
        self.outcome.is_err() || self.parts.iter().any(|part| part.state.is_err())
    }
}

/// Reads every file of the store in `dir`: segments, checkpoint, snapshot.
///
/// # Errors
/// `Io` if the directory cannot be read or a process has the store open.
pub fn check(dir: impl AsRef<Path>) -> Result<Examination, StoreError> {
    check_watched(dir, NOBODY)
}

/// As [`check`]; `watch` is told how far it is.
pub fn check_watched(dir: impl AsRef<Path>, watch: Watch<'_>) -> Result<Examination, StoreError> {
    let dir = dir.as_ref();
    let _lock = disk::lock(dir)?;
    let segments = segment::list(dir)?;
    let sizes = Sizes::of(dir, &segments);
    let all = sizes.snapshot + 2 * sizes.tree + sizes.journal + sizes.best();
    let meter = Meter::new(watch, Doing::Reading, all);
    let tree = TreeCopy::make(dir, &meter.share(sizes.tree)).map_err(disk::at(dir))?;
    let mut parts =
        vec![examine_snapshot(dir, &meter.share(sizes.snapshot)), tree_part(&tree, &meter.share(sizes.tree))];
    for (index, segment) in segments.iter().enumerate() {
        parts.push(segment_part(segment, segments.get(index + 1))?);
        meter.add(segment.size);
    }
    parts.extend(lift::copy_parts(dir));
    let best = best(dir, &tree.path, &segments, Loss::Refused, &meter);
    let outcome = best.map(|replayed| replayed.newest).map_err(|error| error.to_string());
    Ok(Examination { parts, outcome })
}

/// The state that a start would come to, with nothing changed.
pub(super) fn read(dir: &Path) -> Result<Picture, StoreError> {
    // The lock's file would be made where there is no store.
    std::fs::metadata(dir).map_err(disk::at(dir))?;
    let _lock = disk::lock(dir)?;
    let segments = segment::list(dir)?;
    let unseen = Meter::unseen();
    let tree = TreeCopy::make(dir, &unseen.share(0)).map_err(disk::at(dir))?;
    let replayed = best(dir, &tree.path, &segments, Loss::Refused, &unseen)?;
    let handed_out = replayed.closed.unwrap_or(replayed.reserved).max(replayed.newest);
    Ok(Picture { present: replayed.present, revision: replayed.newest, handed_out })
}

/// What a repair gave up and kept.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The state is as of this revision.
    pub revision: Revision,
    pub objects: usize,
    /// What was lost.
    pub lost: Vec<String>,
    /// Where the files from before are.
    pub aside: PathBuf,
}

/// Makes a store that opens of what can be read, giving up commits after `after` if it must: the state is the one before the
/// first commit that cannot be read. Files from before are kept aside, and revisions go on far ahead. A stop in the middle
/// leaves a store that does not open and can be repaired again.
///
/// # Errors
/// `Damaged` if more would be lost than allowed; nothing is changed then. `Io` if a process has the store open.
pub fn repair(dir: impl AsRef<Path>, after: Revision) -> Result<Repaired, StoreError> {
    let dir = dir.as_ref();
    let _lock = disk::lock(dir)?;
    let segments = segment::list(dir)?;
    let unseen = Meter::unseen();
    let tree = TreeCopy::make(dir, &unseen.share(0)).map_err(disk::at(dir))?;
    let replayed = best(dir, &tree.path, &segments, Loss::GivenUpAfter(after), &unseen)?;
    replace(dir, replayed, &unseen)
}

/// As [`repair`], with every object that can be read, be it of the time before the damage or after it: what is lost is
/// passed over.
///
/// # Errors
/// `Io` if the directory cannot be read or written, or a process has the store open.
pub fn salvage(dir: impl AsRef<Path>) -> Result<Repaired, StoreError> {
    let dir = dir.as_ref();
    let _lock = disk::lock(dir)?;
    let segments = segment::list(dir)?;
    let unseen = Meter::unseen();
    let tree = TreeCopy::make(dir, &unseen.share(0)).map_err(disk::at(dir))?;
    if let Ok(replayed) = best(dir, &tree.path, &segments, Loss::Refused, &unseen) {
        return replace(dir, replayed, &unseen);
    }
    let share = unseen.share(0);
    let (from_tree, from_snapshot) = (tree_base(dir, &tree.path, &share)?, snapshot_base(dir, &share)?);
    let (base, lost) = match from_tree.or(from_snapshot) {
        Some(base) => (base, Vec::new()),
        None => pieces(&tree.path, &segments),
    };
    let mut replayed =
        replay(&segments, Base { witnessed: witness::read(dir), loss: Loss::PassedOver, ..base })?;
    replayed.lost.splice(0..0, lost);
    replace(dir, replayed, &unseen)
}

/// What [`compact`] has done.
#[derive(Clone, Copy, Debug)]
pub struct Compacted {
    pub revision: Revision,
    pub objects: usize,
    /// On the disk.
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// Writes the store anew as what it holds, which gives back what history, the journal and free pages take. Revisions go on
/// far ahead, because history is gone.
///
/// # Errors
/// `Damaged` if anything acknowledged cannot be read, `Io` if there is no room for what it holds or a process has the store
/// open; nothing is lost then.
pub fn compact(dir: impl AsRef<Path>) -> Result<Compacted, StoreError> {
    compact_watched(dir, NOBODY)
}

/// As [`compact`]; `watch` is told how far it is.
pub fn compact_watched(dir: impl AsRef<Path>, watch: Watch<'_>) -> Result<Compacted, StoreError> {
    let dir = dir.as_ref();
    let _lock = disk::lock(dir)?;
    let bytes_before = bytes_below(dir).map_err(disk::at(dir))?;
    let segments = segment::list(dir)?;
    let sizes = Sizes::of(dir, &segments);
    let meter = Meter::new(watch, Doing::Reading, sizes.tree + sizes.best());
    let tree = TreeCopy::make(dir, &meter.share(sizes.tree)).map_err(disk::at(dir))?;
    let replayed = best(dir, &tree.path, &segments, Loss::Refused, &meter)?;
    drop(tree);
    let done = replace(dir, replayed, &Meter::new(watch, Doing::Writing, 0))?;
    std::fs::remove_dir_all(&done.aside).map_err(disk::at(&done.aside))?;
    let bytes_after = bytes_below(dir).map_err(disk::at(dir))?;
    Ok(Compacted { revision: done.revision, objects: done.objects, bytes_before, bytes_after })
}

fn bytes_below(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { bytes_below(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(bytes)
}

/// What of a damaged tree can be read, and what of it cannot.
fn pieces(tree: &Path, segments: &[Segment]) -> (Base, Vec<String>) {
    let tree::Salvaged { present, lost } = tree::salvage(tree);
    // The tree was at least as new as the journal's beginning.
    let begins = segments.iter().find_map(|segment| segment.head).map_or(Revision(0), |head| head.base);
    let at = present.values().map(|item| item.modified).fold(begins, Revision::max);
    (base(present, at, false), lost)
}

/// What the meter is to come to follows from what is written.
fn replace(dir: &Path, replayed: Replayed, meter: &Meter<'_>) -> Result<Repaired, StoreError> {
    let meter = meter.of(picture::bytes(&replayed.present));
    let handed = replayed.reserved.max(replayed.newest);
    let head = Head { revision: replayed.newest, other: Revision(handed.0 + RESTORE_JUMP), standalone: true };
    let aside = dir.join(format!("{ASIDE}{}", super::replay::wall_millis()));
    put_in_place(dir, &aside, |file| dump::write(file, head, picture::counted(&replayed.present, &meter)))
        .map_err(disk::at(dir))?;
    let objects = replayed.present.len();
    Ok(Repaired { revision: replayed.newest, objects, lost: replayed.lost, aside })
}

/// Writes the snapshot in place of everything that makes up the state, which goes aside.
fn put_in_place(
    dir: &Path,
    aside: &Path,
    write: impl FnOnce(&mut File) -> std::io::Result<u64>,
) -> std::io::Result<()> {
    disk::create_dir(aside)?;
    let snapshot = dir.join(SNAPSHOT);
    if snapshot.exists() {
        // The name in the directory is replaced below, at once.
        let kept = aside.join(SNAPSHOT);
        std::fs::hard_link(&snapshot, &kept).or_else(|_| std::fs::copy(&snapshot, &kept).map(drop))?;
    }
    disk::sync_dir(aside)?;
    disk::replace(&snapshot, write)?;
    // Without its tree a part of the journal cannot pass for the whole: the snapshot is newer.
    if dir.join(TREE).is_dir() {
        std::fs::rename(dir.join(TREE), aside.join(TREE))?;
        disk::sync_dir(dir)?;
    }
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if belongs_to_the_state(&name.to_string_lossy()) {
            std::fs::rename(dir.join(&name), aside.join(&name))?;
        }
    }
    disk::sync_dir(aside)?;
    disk::sync_dir(dir)
}

/// Used segments too: the new journal counts its own from the beginning, and must not find records of the same number.
fn belongs_to_the_state(name: &str) -> bool {
    let prefixes = [segment::PREFIX, segment::SPARE, recover::HISTORY, recover::TREE_BAD];
    name == witness::FILE || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Bytes of a store's files, by which progress is told.
struct Sizes {
    snapshot: u64,
    tree: u64,
    journal: u64,
}

impl Sizes {
    fn of(dir: &Path, segments: &[Segment]) -> Self {
        Self {
            snapshot: std::fs::metadata(dir.join(SNAPSHOT)).map_or(0, |meta| meta.len()),
            tree: disk::dir_bytes(&dir.join(TREE)),
            journal: segments.iter().map(|segment| segment.size).sum(),
        }
    }

    /// What [`best`] reads: the journal three times at most.
    fn best(&self) -> u64 {
        self.tree + self.snapshot + 3 * self.journal
    }
}

/// The replay that comes furthest: upon the checkpoint, the snapshot, or nothing.
fn best(
    dir: &Path,
    tree: &Path,
    segments: &[Segment],
    loss: Loss,
    meter: &Meter<'_>,
) -> Result<Replayed, StoreError> {
    let more = tree.join("db").exists() || dir.join(SNAPSHOT).exists();
    let sizes = Sizes::of(dir, segments);
    let (tree, snapshot) =
        (tree_base(dir, tree, &meter.share(sizes.tree))?, snapshot_base(dir, &meter.share(sizes.snapshot))?);
    let replays = meter.share(3 * sizes.journal);
    let nothing = Base { needs_journal: more, ..Base::default() };
    let mut best: Option<Replayed> = None;
    let mut refused: Option<StoreError> = None;
    for base in [tree, snapshot, Some(nothing)].into_iter().flatten() {
        let outcome = replay(segments, Base { witnessed: witness::read(dir), loss, ..base });
        replays.add(sizes.journal);
        match outcome {
            Ok(found) if best.as_ref().is_none_or(|best| best.newest < found.newest) => best = Some(found),
            Ok(_) => {}
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    let nothing = || StoreError::Damaged(format!("{}: nothing in it can be read", dir.display()));
    best.ok_or_else(|| refused.unwrap_or_else(nothing))
}

fn tree_base(dir: &Path, tree: &Path, share: &Share<'_>) -> Result<Option<Base>, StoreError> {
    let load = || tree::load_counted(tree, |bytes| share.add(bytes)).ok();
    let loaded = tree.join("db").exists().then(load).flatten();
    let needs_journal = Format::of(dir)? > Format::First;
    Ok(loaded.map(|loaded| base(loaded.present, loaded.revision, needs_journal)))
}

fn snapshot_base(dir: &Path, share: &Share<'_>) -> Result<Option<Base>, StoreError> {
    let open = || File::open(dir.join(SNAPSHOT));
    let present = open().and_then(|file| recover::read_snapshot(share.over(file)));
    let (Ok(head), Ok(present)) = (open().and_then(dump::head), present) else { return Ok(None) };
    Ok(Some(base(present, head.revision, !head.standalone)))
}

fn base(present: Present, at: Revision, needs_journal: bool) -> Base {
    Base { present, floor: at, covered: at, needs_journal, ..Base::default() }
}

pub(super) fn snapshot_part(dir: &Path) -> Part {
    examine_snapshot(dir, &Meter::unseen().share(0))
}

fn examine_snapshot(dir: &Path, share: &Share<'_>) -> Part {
    let path = dir.join(SNAPSHOT);
    let state = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok("none yet: the journal goes back to the beginning".to_owned())
        }
        Err(error) => Err(error.to_string()),
        Ok(file) => {
            let mut objects = 0;
            dump::read(share.over(file), |_| objects += 1)
                .map(|head| format!("{objects} objects as of revision {}", head.revision.0))
                .map_err(|error| error.to_string())
        }
    };
    Part { name: SNAPSHOT.to_owned(), state }
}

/// A copy of the tree: sled changes what it opens.
struct TreeCopy {
    path: PathBuf,
    /// The disk cannot read all of the original.
    unreadable: bool,
}

impl TreeCopy {
    fn make(dir: &Path, share: &Share<'_>) -> std::io::Result<Self> {
        let mut copy = Self { path: dir.join(recover::TREE_COPY), unreadable: false };
        if copy.path.is_dir() {
            std::fs::remove_dir_all(&copy.path)?;
        }
        disk::create_dir(&copy.path)?;
        let Ok(entries) = std::fs::read_dir(dir.join(TREE)) else { return Ok(copy) };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                match std::fs::copy(entry.path(), copy.path.join(entry.file_name())) {
                    Err(error) if disk::cannot_read(&error) => copy.unreadable = true,
                    other => share.add(other?),
                }
            }
        }
        Ok(copy)
    }
}

impl Drop for TreeCopy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a copy is left; the next start removes it");
        }
    }
}

fn tree_part(tree: &TreeCopy, share: &Share<'_>) -> Part {
    let path = &tree.path;
    let state = if tree.unreadable {
        Err("the disk cannot read it".to_owned())
    } else if path.join("db").exists() {
        tree::load_counted(path, |bytes| share.add(bytes))
            .map(|loaded| format!("{} objects as of revision {}", loaded.present.len(), loaded.revision.0))
            .map_err(|error| recover::chain(&error))
    } else {
        Ok("none yet".to_owned())
    };
    Part { name: TREE.to_owned(), state }
}

pub(super) fn segment_part(segment: &Segment, next: Option<&Segment>) -> Result<Part, StoreError> {
    let name = segment.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let state = examine(segment, next, &segment.read()?);
    Ok(Part { name, state })
}

fn examine(segment: &Segment, next: Option<&Segment>, content: &Content) -> Result<String, String> {
    let followed = next.and_then(|next| next.head);
    let bytes = &content.bytes;
    if let Some(at) = content.unreadable.first() {
        return Err(format!("the disk cannot read it at offset {at}"));
    }
    let Some(head) = segment.head else {
        let vouched = followed.is_some() || segment::vouches_for_itself(segment.seq, bytes);
        return match segment.perhaps_unused && !vouched {
            true => Ok("prepared, not used yet".to_owned()),
            false => Err("its header is damaged".to_owned()),
        };
    };
    let (mut commits, mut holes) = (0u64, Vec::new());
    let end = followed.map(|next| usize::try_from(next.previous_end).unwrap_or(usize::MAX));
    let end = segment::scan(segment.seq, bytes, end, head.marked, |step| match step {
        Step::Record(record) => commits += u64::from(record.revision().is_some()),
        Step::Hole(offset) => holes.push(offset),
    });
    if !holes.is_empty() {
        return Err(format!("damaged at offsets {holes:?}"));
    }
    if segment.has_wrong_size() {
        return Err(format!("it has a wrong size, {} bytes", segment.size));
    }
    let tail = match end.tail {
        segment::Tail::Clean => "",
        _ => ", and then what was being written when it stopped",
    };
    Ok(format!("{commits} commits after revision {}{tail}", head.base.0))
}
