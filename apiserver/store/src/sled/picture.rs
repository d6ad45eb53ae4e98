//! The state at one revision, on its way into a backup and out of one.

use super::dump::{self, Head};
use super::meter::{Doing, Meter, NOBODY, Watch};
use super::{disk, recover, repair};
use crate::item::{Item, Present};
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
    let restored = (|| {
        must_be_empty(dir)?;
        let mut present = Present::new();
        let head = dump::read(reader, |(key, item)| {
            if let Some(item) = item {
                present.insert(key, item);
            }
        })?;
        let other = Revision(head.other.0.max(head.revision.0).saturating_add(ahead));
        write(dir, &present, other, &Meter::unseen())
    })();
    restored.map_err(disk::at(dir))
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
