//! What can be done with a store that does not open: looking at it whole without changing it, and giving up what cannot
//! be read.

use super::dump::{self, Head};
use super::recover::{self, SNAPSHOT, TREE};
use super::replay::{Base, Replayed, replay};
use super::segment::{self, Segment, Step};
use super::{RESTORE_JUMP, disk, tree};
use crate::store::keyspace::Present;
use crate::store::{Revision, StoreError};
use std::fs::File;
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
    let dir = dir.as_ref();
    let _lock = disk::lock(dir)?;
    let segments = segment::list(dir)?;
    let mut parts = vec![snapshot_part(dir), tree_part(dir)];
    for (index, segment) in segments.iter().enumerate() {
        parts.push(segment_part(segment, segments.get(index + 1))?);
    }
    let outcome =
        best(dir, &segments, None).map(|replayed| replayed.newest).map_err(|error| error.to_string());
    Ok(Examination { parts, outcome })
}

/// What a repair gave up and kept.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The state is as of this revision.
    pub revision: Revision,
    pub objects: usize,
    /// What was lost; `None` if nothing had to be.
    pub lost: Option<String>,
    /// Where the files from before are.
    pub aside: PathBuf,
}

/// Makes a store that opens of what can be read, giving up commits after `after` if it must: the state is the one before the
/// first commit that cannot be read. Files from before are kept aside, and revisions go on far ahead.
///
/// # Errors
/// `Damaged` if more would be lost than allowed; nothing is changed then. `Io` if a process has the store open.
pub fn repair(dir: impl AsRef<Path>, after: Revision) -> Result<Repaired, StoreError> {
    let dir = dir.as_ref();
    let lock = disk::lock(dir)?;
    let segments = segment::list(dir)?;
    let replayed = best(dir, &segments, Some(after))?;
    let handed = replayed.reserved.max(replayed.newest);
    let head = Head { revision: replayed.newest, other: Revision(handed.0 + RESTORE_JUMP), standalone: true };
    let aside = dir.join(format!("{ASIDE}{}", super::replay::wall_millis() / 1000));
    set_files_aside(dir, &aside)
        .and_then(|()| {
            let items = replayed.present.iter().map(|(key, item)| (key, Some(item)));
            disk::replace(&dir.join(SNAPSHOT), |file| dump::write(file, head, items))
        })
        .map_err(disk::at(dir))?;
    drop(lock);
    let objects = replayed.present.len();
    Ok(Repaired { revision: replayed.newest, objects, lost: replayed.given_up, aside })
}

/// Everything but the lock. The snapshot goes last, because it alone is written anew.
fn set_files_aside(dir: &Path, aside: &Path) -> std::io::Result<()> {
    disk::create_dir(aside)?;
    let mut names: Vec<_> = std::fs::read_dir(dir)?.flatten().map(|entry| entry.file_name()).collect();
    names.sort_by_key(|name| name == SNAPSHOT);
    for name in names {
        let shown = name.to_string_lossy();
        if shown != disk::LOCK && !shown.starts_with(ASIDE) {
            std::fs::rename(dir.join(&name), aside.join(&name))?;
        }
    }
    disk::sync_dir(aside)?;
    disk::sync_dir(dir)
}

/// The replay that comes furthest: upon the checkpoint, the snapshot, or nothing.
fn best(dir: &Path, segments: &[Segment], give_up_after: Option<Revision>) -> Result<Replayed, StoreError> {
    let bases = [tree_base(dir), snapshot_base(dir)].into_iter().flatten();
    let from_nothing = segments.iter().any(|segment| segment.head.is_some()) || !dir.join(SNAPSHOT).exists();
    let bases = bases.chain(from_nothing.then(Base::default));
    let mut best: Option<Replayed> = None;
    let mut refused: Option<StoreError> = None;
    for base in bases {
        match replay(segments, Base { give_up_after, ..base }) {
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

fn tree_base(dir: &Path) -> Option<Base> {
    let path = dir.join(TREE);
    let loaded = path.join("db").exists().then(|| tree::load(&path).ok()).flatten()?;
    let at = loaded.revision;
    Some(Base { present: loaded.present, floor: at, covered: at, undo: None, give_up_after: None })
}

fn snapshot_base(dir: &Path) -> Option<Base> {
    let mut present = Present::new();
    let file = File::open(dir.join(SNAPSHOT)).ok()?;
    let head = dump::read(file, |(key, item)| {
        if let Some(item) = item {
            present.insert(key, item);
        }
    });
    let at = head.ok()?.revision;
    Some(Base { present, floor: at, covered: at, undo: None, give_up_after: None })
}

pub(super) fn snapshot_part(dir: &Path) -> Part {
    let path = dir.join(SNAPSHOT);
    let state = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok("none yet: the journal goes back to the beginning".to_owned())
        }
        Err(error) => Err(error.to_string()),
        Ok(file) => {
            let mut objects = 0;
            dump::read(file, |_| objects += 1)
                .map(|head| format!("{objects} objects as of revision {}", head.revision.0))
                .map_err(|error| error.to_string())
        }
    };
    Part { name: SNAPSHOT.to_owned(), state }
}

fn tree_part(dir: &Path) -> Part {
    let path = dir.join(TREE);
    let state = if path.join("db").exists() {
        tree::load(&path)
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

fn examine(segment: &Segment, next: Option<&Segment>, bytes: &[u8]) -> Result<String, String> {
    let followed = next.and_then(|next| next.head);
    let Some(head) = segment.head else {
        return match followed.is_some() || segment::vouches_for_itself(segment.seq, bytes) {
            true => Err("its header is damaged".to_owned()),
            false => Ok("prepared, not used yet".to_owned()),
        };
    };
    let (mut commits, mut holes) = (0u64, Vec::new());
    let end = followed.map(|next| usize::try_from(next.previous_end).unwrap_or(usize::MAX));
    let end = segment::scan(segment.seq, bytes, end, |step| match step {
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
