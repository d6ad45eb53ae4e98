//! Work off the write path: the checkpoint, the snapshot, and what history needs to reach back before a checkpoint.

use super::disk;
use super::dump::{self, Head};
use super::recover::{self, SNAPSHOT, TREE, TREE_NEW, TREE_OLD};
use super::tree::{self, TreeError};
use crate::Revision;
use crate::history::History;
use crate::item::{Item, Present};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// sled grows to this many times its live data before it is rebuilt.
const TREE_GROWTH: u64 = 8;

/// A checkpoint to be made of a state that is in the journal already.
pub(super) struct Job {
    pub dir: PathBuf,
    /// The durable state.
    pub present: Present,
    /// The newest commit in it.
    pub revision: Revision,
    /// The newest revision handed out.
    pub handed: Revision,
    /// Keys that the tree lacks.
    pub dirty: HashSet<Arc<str>>,
    pub history: History,
    /// Write the tree anew instead of bringing it up to date.
    pub rebuild: bool,
    /// Bytes of journal since the last snapshot.
    pub journal_bytes: u64,
    /// Write a snapshot whatever the journal's size, and before anything else.
    pub renew: bool,
    pub snapshot_bytes: u64,
    pub tree_bytes: u64,
}

/// What came of a checkpoint.
pub(super) struct Checkpointed {
    pub revision: Revision,
    /// Of the history that was saved with it.
    pub floor: Revision,
    /// Given back if the tree could not be written.
    pub dirty: HashSet<Arc<str>>,
    pub tree: Result<(), TreeError>,
    /// `None`: none was due.
    pub snapshot: Option<io::Result<()>>,
    pub live_bytes: u64,
    pub tree_bytes: u64,
}

pub(super) fn run(job: Job) -> Checkpointed {
    let floor = job.history.floor().min(job.revision);
    let live_bytes = tree::live_bytes(&job.present);
    // Damage may have left the tree as the only one that has everything, and the power may go while it is written to.
    let (renewed, tree) = match job.renew.then(|| job.snapshot_in_any_room()) {
        Some(Err(error)) => (None, Err(TreeError::Io(error))),
        renewed => (renewed, job.checkpoint_in_any_room(floor)),
    };
    let mut tree_bytes = disk::dir_bytes(&job.dir.join(TREE));
    if tree.is_ok() && tree_bytes > job.tree_bytes.max(TREE_GROWTH * live_bytes) {
        match job.rebuild() {
            Ok(()) => tree_bytes = disk::dir_bytes(&job.dir.join(TREE)),
            Err(error) => tracing::warn!(%error, "sled has grown and cannot be rebuilt now"),
        }
    }
    let due = tree.is_ok() && job.journal_bytes > job.snapshot_bytes.max(2 * live_bytes);
    let snapshot = renewed.or_else(|| due.then(|| job.snapshot_in_any_room()));
    if let Err(error) = disk::make_reserve(&job.dir) {
        tracing::warn!(%error, "cannot set disk space aside");
    }
    let dirty = if tree.is_ok() { HashSet::new() } else { job.dirty };
    Checkpointed { revision: job.revision, floor, dirty, tree, snapshot, live_bytes, tree_bytes }
}

impl Job {
    fn checkpoint_in_any_room(&self, floor: Revision) -> Result<(), TreeError> {
        match self.checkpoint(floor) {
            Err(error) if error.is_full() && disk::free_reserve(&self.dir) => self.checkpoint(floor),
            other => other,
        }
    }

    fn snapshot_in_any_room(&self) -> io::Result<()> {
        match self.snapshot() {
            Err(error) if disk::is_full(&error) && disk::free_reserve(&self.dir) => self.snapshot(),
            other => other,
        }
    }

    fn checkpoint(&self, floor: Revision) -> Result<(), TreeError> {
        // First the history, under the new checkpoint's name: whichever checkpoint a crash leaves finds its own.
        self.save_history(floor)?;
        if self.rebuild || !self.dir.join(TREE).is_dir() {
            self.rebuild()?;
        } else {
            let changes = self.dirty.iter().map(|key| (key, self.present.get(&**key)));
            tree::update(&self.dir.join(TREE), changes, &self.present, self.revision)?;
        }
        for (path, revision) in recover::history_files(&self.dir) {
            if revision != self.revision {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// A new tree in place of the old one, which stays until the new one is whole.
    fn rebuild(&self) -> Result<(), TreeError> {
        let [tree, new, old] = [TREE, TREE_NEW, TREE_OLD].map(|name| self.dir.join(name));
        remove_dir(&new)?;
        remove_dir(&old)?;
        tree::build(&new, &self.present, self.revision)?;
        if tree.is_dir() {
            std::fs::rename(&tree, &old)?;
        }
        std::fs::rename(&new, &tree)?;
        disk::sync_dir(&self.dir)?;
        remove_dir(&old)?;
        Ok(())
    }

    fn save_history(&self, floor: Revision) -> io::Result<()> {
        let undo = undo(&self.history, self.revision);
        let head = Head { revision: self.revision, other: floor, standalone: false };
        let entries = undo.iter().map(|(key, item)| (key, item.as_ref()));
        disk::replace(&recover::history_path(&self.dir, self.revision), |file| {
            dump::write(file, head, entries)
        })?;
        Ok(())
    }

    /// Writes the snapshot, and reads it back before the journal that it replaces is let go.
    fn snapshot(&self) -> io::Result<()> {
        let path = self.dir.join(SNAPSHOT);
        let head = Head { revision: self.revision, other: self.handed, standalone: false };
        disk::replace(&path, |file| {
            dump::write(&mut *file, head, self.present.iter().map(|(key, item)| (key, Some(item))))?;
            verify(&disk::temporary(&path))
        })
    }
}

fn verify(path: &Path) -> io::Result<()> {
    dump::read(File::open(path)?, drop).map(drop)
}

/// What the keys that the journal's part of history touches held at its floor. With the journal it tells everything
/// since then once more.
fn undo(history: &History, upto: Revision) -> BTreeMap<Arc<str>, Option<Item>> {
    let mut first = BTreeMap::new();
    let mut durable = HashSet::new();
    for entry in history.since(history.floor()).filter(|entry| entry.commit.revision <= upto) {
        for change in &entry.commit.changes {
            first.entry(change.key.clone()).or_insert_with(|| change.previous.as_ref().map(Item::from));
            if entry.commit.durable {
                durable.insert(change.key.clone());
            }
        }
    }
    first.retain(|key, _| durable.contains(key));
    first
}

fn remove_dir(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(dir: &Path, revision: u64, renew: bool) -> Job {
        let key: Arc<str> = "a./n/1".into();
        let at = Revision(revision);
        let item = Item { value: vec![b'x'; 100].into(), created: at, modified: at };
        Job {
            dir: dir.to_owned(),
            present: Present::from_iter([(key.clone(), item)]),
            revision: at,
            handed: at,
            dirty: HashSet::from([key]),
            history: History::new(at),
            rebuild: false,
            journal_bytes: 0,
            renew,
            snapshot_bytes: u64::MAX,
            tree_bytes: u64::MAX,
        }
    }

    /// Where the journal is damaged, the tree may be all that there is.
    #[test]
    fn a_tree_that_covers_damage_is_left_alone_until_a_snapshot_does() {
        let dir = tempfile::tempdir().unwrap();
        assert!(run(job(dir.path(), 1, false)).tree.is_ok());
        let in_the_way = disk::temporary(&dir.path().join(SNAPSHOT));
        std::fs::create_dir(&in_the_way).unwrap();
        let done = run(job(dir.path(), 2, true));
        assert!(done.tree.is_err() && done.snapshot.is_none() && done.dirty.len() == 1);
        assert_eq!(tree::load(&dir.path().join(TREE)).unwrap().revision, Revision(1));
        std::fs::remove_dir(&in_the_way).unwrap();
        let done = run(job(dir.path(), 2, true));
        assert!(done.tree.is_ok() && done.snapshot.is_some_and(|snapshot| snapshot.is_ok()));
        assert_eq!(recover::load_snapshot(dir.path()).unwrap().len(), 1);
        assert_eq!(tree::load(&dir.path().join(TREE)).unwrap().revision, Revision(2));
    }
}
