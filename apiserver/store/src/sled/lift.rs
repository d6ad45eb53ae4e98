//! Before the layout of a store is changed, a copy of it is made as it is: who goes back to the program of before goes back
//! to that.
//!
//! ```text
//! before-format-<n>.new  being copied: a start throws away what is left of it, and begins again
//! before-format-<n>      whole, from before layout n
//! lifting                the copy is whole and of this store, which is being changed; gone with the new layout's note
//! ```

use super::disk::{self, at};
use super::format::{Format, NEWEST};
use super::recover::{HISTORY, SNAPSHOT, TREE, tidy};
use super::repair::Part;
use super::{format, scrub, segment, witness};
use crate::StoreError;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The copy's name, without the number of the layout that came after it.
pub(super) const COPY: &str = "before-format-";
/// Of a copy that is not whole.
const UNFINISHED: &str = ".new";
const MARKER: &str = "lifting";
/// What is left free beside a copy: room for a snapshot and two segments of the new layout. A store that is full at its first
/// start would take no write.
const LEFT_BYTES: u64 = 64 << 20;

/// Copies the store in `dir` if this program is about to change its layout. `copy` is false where somebody has decided
/// against it. The caller holds the lock.
///
/// # Errors
/// `Io` if there is no room for the copy, or it cannot be written. The store is as it was then.
pub(super) fn prepare(dir: &Path, copy: bool) -> Result<(), StoreError> {
    let before = format::number(dir);
    let started = before.is_none_or(|number| number < NEWEST);
    if !started || Format::of(dir)? == Format::NEWEST {
        return Ok(());
    }
    tidy(dir).map_err(at(dir))?;
    let parts = parts(dir).map_err(at(dir))?;
    let target = target(dir);
    let is_done = dir.join(MARKER).exists() && target.is_dir();
    if !copy || is_done || !parts.iter().any(|part| has_layout(part)) {
        return Ok(());
    }
    let from = before.unwrap_or(1);
    let needed = parts.iter().map(|part| bytes_below(part)).sum::<io::Result<u64>>().map_err(at(dir))?;
    let free = disk::free(dir).map_err(at(dir))?;
    if let Some(why) = short(needed, free, from) {
        return Err(at(dir)(io::Error::new(io::ErrorKind::StorageFull, why)));
    }
    write(dir, &parts, &target).map_err(at(&target))?;
    let shown = target.display();
    tracing::info!(copy = %shown, mib = needed >> 20, "the store of format {from} was copied before it gets format {NEWEST}");
    Ok(())
}

/// Why a copy of so many bytes is not begun.
fn short(needed: u64, free: u64, from: u32) -> Option<String> {
    let wanted = needed + LEFT_BYTES;
    (free < wanted).then(|| {
        format!(
            "it has format {from} and would get format {NEWEST}, and there is no room for a copy of it as it is: {} MiB must \
             be free and {} MiB are; free them, or start the server with --upgrade-store-without-copy, after which no older \
             version opens it",
            wanted.div_ceil(1 << 20),
            free >> 20
        )
    })
}

/// After the new layout was noted: the marker goes, and copies from before earlier layouts.
pub(super) fn done(dir: &Path) -> io::Result<()> {
    let marker = dir.join(MARKER);
    if marker.exists() {
        for copy in copies(dir).into_iter().filter(|copy| *copy != target(dir)) {
            std::fs::remove_dir_all(copy)?;
        }
        std::fs::remove_file(marker)?;
    }
    Ok(())
}

/// Takes away what an interrupted copy has left, which nobody may take for a whole one.
pub(super) fn tidy_copies(dir: &Path) -> io::Result<()> {
    copies(dir).into_iter().filter(|path| !is_whole(path)).try_for_each(std::fs::remove_dir_all)
}

/// The copies, as an examination names them.
pub(super) fn copy_parts(dir: &Path) -> Vec<Part> {
    let mut all = copies(dir);
    all.sort();
    let part = |path: PathBuf| {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mib = bytes_below(&path).unwrap_or(0).div_ceil(1 << 20);
        let state = match is_whole(&path) {
            true => {
                let format = format::number(&path).unwrap_or(1);
                format!("a copy of the store as it was in format {format}, {mib} MiB")
            }
            false => format!("a copy that was interrupted, {mib} MiB; the next start removes it"),
        };
        Part { name, state: Ok(state) }
    };
    all.into_iter().map(part).collect()
}

fn target(dir: &Path) -> PathBuf {
    dir.join(format!("{COPY}{NEWEST}"))
}

fn copies(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(COPY));
    entries.flatten().map(|entry| entry.path()).filter(named).collect()
}

fn is_whole(copy: &Path) -> bool {
    copy.extension() != Some(UNFINISHED.trim_start_matches('.').as_ref())
}

/// What makes up the store.
fn parts(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let named = [format::FILE, TREE, SNAPSHOT, witness::FILE, scrub::MARK].contains(&name.as_str());
        if named || name.starts_with(segment::PREFIX) || name.starts_with(HISTORY) {
            all.push(entry.path());
        }
    }
    Ok(all)
}

/// Whether it makes the store one of a layout: a snapshot alone, as of a backup, is the same in all.
fn has_layout(part: &Path) -> bool {
    let name = part.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name == TREE || name.starts_with(segment::PREFIX)
}

fn bytes_below(path: &Path) -> io::Result<u64> {
    let meta = std::fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return Ok(meta.len());
    }
    std::fs::read_dir(path)?.map(|entry| bytes_below(&entry?.path())).sum()
}

/// Everything on the disk before the name that stands for a whole copy, and that before the marker.
fn write(dir: &Path, parts: &[PathBuf], target: &Path) -> io::Result<()> {
    let mut unfinished = target.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    disk::create_dir(&unfinished)?;
    for part in parts {
        copy(part, &unfinished.join(part.file_name().unwrap_or_default()))?;
    }
    disk::sync_dir(&unfinished)?;
    if target.is_dir() {
        // Of an upgrade before, after which somebody went back by a copy of it.
        std::fs::remove_dir_all(target)?;
    }
    std::fs::rename(&unfinished, target)?;
    disk::sync_dir(dir)?;
    File::create(dir.join(MARKER))?.sync_all()?;
    disk::sync_dir(dir)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        std::fs::copy(from, to)?;
        return File::open(to)?.sync_all();
    }
    disk::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    disk::sync_dir(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store of an earlier layout, with a number in the place of its snapshot.
    fn store(snapshot: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("format"), "2 2\n").unwrap();
        std::fs::write(dir.path().join("snapshot"), snapshot).unwrap();
        std::fs::create_dir_all(dir.path().join("sled/blobs")).unwrap();
        std::fs::write(dir.path().join("sled/blobs/1"), "blob").unwrap();
        dir
    }

    fn read(dir: &Path, name: &str) -> String {
        std::fs::read_to_string(dir.join(name)).unwrap_or_default()
    }

    #[test]
    fn a_copy_is_whole_or_is_none() {
        let dir = store("one");
        let unfinished = dir.path().join("before-format-3.new");
        std::fs::create_dir(&unfinished).unwrap();
        std::fs::write(unfinished.join("snapshot"), "half").unwrap();
        let named = copy_parts(dir.path());
        assert!(named[0].state.as_ref().unwrap().starts_with("a copy that was interrupted"), "{named:?}");
        tidy_copies(dir.path()).unwrap();
        prepare(dir.path(), true).unwrap();
        assert!(!unfinished.exists());
        let copy = dir.path().join("before-format-3");
        let held = ["format", "snapshot", "sled/blobs/1"].map(|name| read(&copy, name));
        assert_eq!(held, ["2 2\n", "one", "blob"]);
        let named = copy_parts(dir.path());
        assert_eq!(named[0].name, "before-format-3");
        assert_eq!(named[0].state.as_deref(), Ok("a copy of the store as it was in format 2, 1 MiB"));
    }

    /// A start that was cut off after it had begun to change the store must not copy what it left.
    #[test]
    fn a_store_that_is_half_changed_is_not_copied_and_one_that_was_put_back_is() {
        let dir = store("one");
        let copied = || read(&dir.path().join("before-format-3"), "snapshot");
        prepare(dir.path(), true).unwrap();
        std::fs::write(dir.path().join("snapshot"), "half").unwrap();
        prepare(dir.path(), true).unwrap();
        assert_eq!(copied(), "one");
        std::fs::create_dir(dir.path().join("before-format-2")).unwrap();
        Format::settle(dir.path()).unwrap();
        done(dir.path()).unwrap();
        assert!(!dir.path().join("before-format-2").exists(), "one is enough");
        prepare(dir.path(), true).unwrap();
        assert_eq!(copied(), "one", "there is nothing to lift");
        std::fs::write(dir.path().join("format"), "2 2\n").unwrap();
        std::fs::write(dir.path().join("snapshot"), "two").unwrap();
        prepare(dir.path(), true).unwrap();
        assert_eq!(copied(), "two");
    }

    #[test]
    fn nothing_is_copied_where_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), true).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let dir = store("one");
        prepare(dir.path(), false).unwrap();
        assert!(copies(dir.path()).is_empty(), "somebody has decided so");
    }

    #[test]
    fn a_disk_without_room_is_told_with_figures() {
        assert_eq!(short(10 << 20, 74 << 20, 2), None);
        let why = short(10 << 20, (74 << 20) - 1, 2).unwrap();
        for part in
            ["format 2", "format 3", "74 MiB must be free and 73 MiB are", "--upgrade-store-without-copy"]
        {
            assert!(why.contains(part), "{why}");
        }
    }
}
