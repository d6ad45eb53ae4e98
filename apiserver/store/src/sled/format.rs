//! Which layout a store's directory has. The file is written once, and read before anything else; a store of an earlier
//! layout is copied before it is changed, so that an earlier version can have it back.

use super::disk;
use crate::StoreError;
use std::io::Write;
use std::path::{Path, PathBuf};

const FILE: &str = "format";

/// Layouts, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    /// No file says so. Segments got their names before their headers: one without a header may never have been used.
    First,
    /// A file is called `journal-<n>` only once its header is on the disk, and no journal is ever without a segment that
    /// has one.
    NamedWhenBegun,
}

const NEWEST: u32 = 2;

/// The layout of before is kept here, in the store's own directory, until somebody deletes it.
const KEPT: &str = "before-format-";
/// Of the moment, or made anew: who goes back does not need them.
const NOT_KEPT: [&str; 2] = ["lock", "reserve"];

impl Format {
    /// # Errors
    /// `Damaged` if a later version of the program made the store.
    pub fn of(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::First),
            // Its being there says enough.
            Err(_) => return Ok(Self::NamedWhenBegun),
        };
        match said(&text) {
            Some(found) if found > NEWEST => Err(StoreError::Damaged(format!(
                "{}: a later version of coracle made this store (format {found}, this one knows up to {NEWEST})",
                path.display()
            ))),
            _ => Ok(Self::NamedWhenBegun),
        }
    }

    /// Copies a store of an earlier layout, with all that is in it, and says where the copy is. The directory must be locked.
    /// A copy that is whole is made once; what an interrupted one left is overwritten.
    ///
    /// # Errors
    /// `Damaged` as [`of`](Self::of); `Io` where there is no room for it: nothing of the store has been changed then.
    pub fn keep_earlier(dir: &Path) -> Result<Option<PathBuf>, StoreError> {
        let kept = dir.join(format!("{KEPT}{NEWEST}"));
        if Self::of(dir)? == Self::NamedWhenBegun || kept.exists() || !has_state(dir) {
            return Ok(None);
        }
        let new = kept.with_extension("partial");
        let copied = (|| {
            if new.is_dir() {
                std::fs::remove_dir_all(&new)?;
            }
            copy_tree(dir, &new)?;
            std::fs::rename(&new, &kept)?;
            disk::sync_dir(dir)
        })();
        copied.map_err(disk::at(&kept))?;
        Ok(Some(kept))
    }

    /// Says that the directory has the newest layout from now on.
    pub fn settle(dir: &Path) -> std::io::Result<()> {
        let text = format!("{NEWEST} {NEWEST}\n");
        let path = dir.join(FILE);
        if std::fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
            return Ok(());
        }
        disk::replace(&path, |file| file.write_all(text.as_bytes()))
    }
}

/// Whether anything was ever written there.
fn has_state(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with(super::segment::PREFIX) || name == "sled" || name == "snapshot")
}

/// Plain files and directories, synced; copies of earlier layouts are left out.
fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(KEPT) || NOT_KEPT.contains(&name.as_str()) {
            continue;
        }
        let target = to.join(&name);
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
            std::fs::File::open(&target)?.sync_all()?;
        }
    }
    disk::sync_dir(to)
}

/// The number, which stands there twice: a flipped bit must not pass for a later version.
fn said(text: &str) -> Option<u32> {
    let (first, second) = text.split_once(' ')?;
    first.parse().ok().filter(|_| first == second)
}
