//! Which layout a store's directory has. The file is written once, and read before anything else.

use super::disk;
use crate::StoreError;
use std::io::Write;
use std::path::Path;

pub(super) const FILE: &str = "format";

/// Layouts, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    /// No file says so. Segments got their names before their headers: one without a header may never have been used.
    First,
    /// A file is called `journal-<n>` only once its header is on the disk, and no journal is ever without a segment that
    /// has one.
    NamedWhenBegun,
    /// The journal's segments mark where they end.
    EndsMarked,
}

pub(super) const NEWEST: u32 = 3;

/// The layout's number as the directory says it.
pub(super) fn number(dir: &Path) -> Option<u32> {
    said(std::fs::read_to_string(dir.join(FILE)).ok()?.trim())
}

impl Format {
    pub const NEWEST: Self = Self::EndsMarked;

    /// # Errors
    /// `Damaged` if a later version of the program made the store.
    pub fn of(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::First),
            // Its being there says enough.
            Err(_) => return Ok(Self::EndsMarked),
        };
        match said(&text) {
            Some(found) if found > NEWEST => Err(StoreError::Damaged(format!(
                "{}: a later version of coracle made this store (format {found}, this one knows up to {NEWEST})",
                path.display()
            ))),
            Some(2) => Ok(Self::NamedWhenBegun),
            _ => Ok(Self::EndsMarked),
        }
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

/// The number, which stands there twice: a flipped bit must not pass for a later version.
fn said(text: &str) -> Option<u32> {
    let (first, second) = text.split_once(' ')?;
    first.parse().ok().filter(|_| first == second)
}
