//! The state at one revision, on its way into a backup and out of one.

use super::commits::StoredCommit;
use super::dump::{self, Head};
use super::meter::{Doing, Meter, NOBODY, Watch};
use super::{disk, recover, repair};
use crate::item::{Item, Present};
use crate::keyspace::swap_in;
use crate::{KeyValue, Revision, StoreError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// The state as of one revision. It costs memory only for what changes while it is held.
pub struct Picture {
    pub(super) present: Present,
    pub(super) revision: Revision,
    /// No client has seen a later one.
    pub(super) handed_out: Revision,
}

impl Picture {
    /// Of the store of a server that is stopped, which is not changed.
    ///
    /// # Errors
    /// `Io` if the directory cannot be read or a process has the store open; `Damaged` if acknowledged data is lost.
    pub fn of_stopped(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        repair::read(dir.as_ref())
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The newest revision that any client may have seen: of a server that was killed also what its heartbeats may have used.
    pub fn handed_out(&self) -> Revision {
        self.handed_out
    }

    pub fn objects(&self) -> u64 {
        self.present.len() as u64
    }

    /// Every value as it is stored, in the order of the keys.
    pub fn items(&self) -> impl Iterator<Item = KeyValue> + '_ {
        self.present.iter().map(|(key, item)| item.with_key(key))
    }

    /// What a key holds, as it is stored.
    pub fn value(&self, key: &str) -> Option<bytes::Bytes> {
        self.present.get(key).map(|item| item.value.peek())
    }

    /// Writes it as [`restore`] reads it.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        let head = Head { revision: self.revision, other: self.revision, standalone: true };
        dump::write(writer, head, self.present.iter().map(|(key, item)| (key, Some(item)))).map(drop)
    }
}

/// What a written picture holds: its revision, and how many objects.
///
/// # Errors
/// `InvalidData` if anything in it is damaged.
pub fn inspect(reader: impl Read) -> io::Result<(Revision, u64)> {
    let mut objects = 0;
    let head = dump::read(reader, |_| objects += 1)?;
    Ok((head.revision, objects))
}

/// Makes a store of a written picture, in a directory that is empty or does not exist. Its revisions go on `ahead` of the
/// picture's, which has to be more than were handed out since: no revision that a client has seen may mean something else.
///
/// # Errors
/// `Io` with `InvalidData` if the picture is damaged (then nothing is left in the directory), with `DirectoryNotEmpty` if
/// there is something in it.
pub fn restore(reader: impl Read, dir: impl AsRef<Path>, ahead: u64) -> Result<Revision, StoreError> {
    let dir = dir.as_ref();
    must_be_empty(dir).map_err(disk::at(dir))?;
    Playback::read(reader).map_err(disk::at(dir))?.write(dir, ahead)
}

/// A written picture on which commits are played that came after it.
pub struct Playback {
    present: Present,
    revision: Revision,
    handed_out: Revision,
}

impl Playback {
    /// # Errors
    /// `InvalidData` if the picture is damaged.
    pub fn read(reader: impl Read) -> io::Result<Self> {
        let mut present = Present::new();
        let head = dump::read(reader, |(key, item)| {
            if let Some(item) = item {
                present.insert(key, item);
            }
        })?;
        Ok(Self { present, revision: head.revision, handed_out: head.other.max(head.revision) })
    }

    /// As of which revision the state is.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many objects it holds.
    pub fn objects(&self) -> u64 {
        self.present.len() as u64
    }

    /// Plays the next commit. Those that the state holds already are passed over.
    pub fn play(&mut self, commit: StoredCommit) {
        if commit.revision <= self.revision {
            return;
        }
        self.revision = commit.revision;
        self.handed_out = self.handed_out.max(commit.revision);
        for (mut key, mut item) in commit.changes {
            swap_in(&mut self.present, &mut key, &mut item);
        }
    }

    /// Makes a store of it, as [`restore`] does.
    ///
    /// # Errors
    /// `Io`, with `DirectoryNotEmpty` if there is something in it.
    pub fn write(self, dir: impl AsRef<Path>, ahead: u64) -> Result<Revision, StoreError> {
        let dir = dir.as_ref();
        let at = Revision(self.handed_out.0.saturating_add(ahead));
        let written = must_be_empty(dir).and_then(|()| write(dir, &self.present, at, &Meter::unseen()));
        written.map_err(disk::at(dir))
    }
}

/// Makes a store of these, in a directory that is empty or does not exist. Its revisions go on `ahead` of `revision`, which
/// is the newest that was handed out.
///
/// # Errors
/// `Io`, with `DirectoryNotEmpty` if there is something in it.
pub fn make(
    items: impl IntoIterator<Item = KeyValue>,
    revision: Revision,
    dir: impl AsRef<Path>,
    ahead: u64,
) -> Result<Revision, StoreError> {
    make_watched(items, revision, dir, ahead, NOBODY)
}

/// As [`make`]; `watch` is told how far it is.
pub fn make_watched(
    items: impl IntoIterator<Item = KeyValue>,
    revision: Revision,
    dir: impl AsRef<Path>,
    ahead: u64,
    watch: Watch<'_>,
) -> Result<Revision, StoreError> {
    let dir = dir.as_ref();
    let present: Present = items.into_iter().map(|item| (item.key.clone(), Item::from(&item))).collect();
    let newest = present.values().map(|item| item.modified).max().unwrap_or_default().max(revision);
    let other = Revision(newest.0.saturating_add(ahead));
    let meter = Meter::new(watch, Doing::Writing, bytes(&present));
    must_be_empty(dir).and_then(|()| write(dir, &present, other, &meter)).map_err(disk::at(dir))
}

fn must_be_empty(dir: &Path) -> io::Result<()> {
    disk::create_dir(dir)?;
    if std::fs::read_dir(dir)?.next().is_some() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    Ok(())
}

/// The history begins there: who watched before is told to list anew, since something may have been taken away.
fn write(dir: &Path, present: &Present, at: Revision, meter: &Meter<'_>) -> io::Result<Revision> {
    let head = Head { revision: at, other: at, standalone: true };
    disk::replace(&dir.join(recover::SNAPSHOT), |file| dump::write(file, head, counted(present, meter)))?;
    Ok(at)
}

/// What [`counted`] counts of it.
pub(super) fn bytes(present: &Present) -> u64 {
    present.iter().map(|(key, item)| (key.len() + item.value.len()) as u64).sum()
}

/// All of it, as it is written.
pub(super) fn counted<'p>(
    present: &'p Present,
    meter: &'p Meter<'p>,
) -> impl Iterator<Item = (&'p Arc<str>, Option<&'p Item>)> {
    present.iter().map(|(key, item)| {
        meter.add((key.len() + item.value.len()) as u64);
        (key, Some(item))
    })
}
