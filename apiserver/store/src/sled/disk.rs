//! The few things a durable store asks of a file system.

use super::report::Refusal;
use crate::StoreError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The lock file: two processes in one directory would overwrite each other's journal.
pub(super) const LOCK: &str = "lock";
/// Freed when the disk is full, because sled does not open on a full disk.
pub(super) const RESERVE: &str = "reserve";
/// Two segments of sled (512 KiB each) and its new snapshot fit in with ease.
const RESERVE_BYTES: u64 = 8 << 20;
/// Larger writes would make the kernel cache the file in large folios, and account a whole folio for every small
/// write into one later (the device gets the small write either way).
const ZEROES: usize = 4096;

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { path: path.display().to_string(), source }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The disk gives nothing back (EIO).
pub(super) fn cannot_read(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::EIO as i32)
}

/// Why nothing can be written below `dir`, and what helps, in the words of whoever owns the machine. `needed` bytes must be
/// free for writing to go on.
pub(super) fn explain(error: &io::Error, dir: &Path, needed: u64) -> (Refusal, String) {
    let shown = dir.display();
    let no_inodes = || {
        let stat = nix::sys::statvfs::statvfs(dir);
        stat.is_ok_and(|stat| stat.files() > 0 && stat.files_available() == 0)
    };
    match error.kind() {
        io::ErrorKind::QuotaExceeded => (
            Refusal::QuotaExceeded,
            format!("the disk quota of {shown} is used up; delete files or raise it"),
        ),
        _ if is_full(error) && no_inodes() => (
            Refusal::NoInodes,
            format!(
                "the file system that holds {shown} has no inodes left; delete files there, however small"
            ),
        ),
        _ if is_full(error) => (
            Refusal::DiskFull,
            format!("the disk that holds {shown} is full; free at least {} MiB there", needed >> 20),
        ),
        io::ErrorKind::ReadOnlyFilesystem => (
            Refusal::ReadOnlyFileSystem,
            format!(
                "the file system that holds {shown} is read-only; Linux makes it so after an error of the disk (see \
                 dmesg)"
            ),
        ),
        _ => (Refusal::WriteFailed, format!("the journal in {shown} cannot be written: {error}")),
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Creates a directory that only its owner can read, and makes its name durable. An existing one is left as it is.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync_dir)
}

pub(super) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Gives a file its blocks now, so that writing into it cannot find the disk full later.
pub(super) fn allocate(file: &File, len: u64) -> io::Result<()> {
    let size = i64::try_from(len).map_err(io::Error::other)?;
    match nix::fcntl::fallocate(file, nix::fcntl::FallocateFlags::empty(), 0, size) {
        // A file system that cannot preallocate still gets its zeroes written by the caller.
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => file.set_len(len),
        other => other.map_err(io::Error::from),
    }
}

/// Writes zeroes and syncs them: later overwriting changes no metadata.
pub(super) fn zero(file: &File, len: u64) -> io::Result<()> {
    let zeroes = vec![0; ZEROES];
    let mut offset = 0;
    while offset < len {
        let part = usize::try_from((len - offset).min(ZEROES as u64)).unwrap_or(ZEROES);
        file.write_all_at(&zeroes[..part], offset)?;
        offset += part as u64;
    }
    file.sync_all()
}

/// Bytes that this process may still use on the file system of `dir`.
pub(super) fn free(dir: &Path) -> io::Result<u64> {
    let stat = nix::sys::statvfs::statvfs(dir)?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

/// Holds the directory for this process as long as the file is open.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(at(&path))?;
    file.try_lock().map_err(|error| {
        let source = match error {
            std::fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another process has this store open")
            }
            std::fs::TryLockError::Error(error) => error,
        };
        StoreError::Io { path: path.display().to_string(), source }
    })?;
    Ok(file)
}

/// Sets the reserve aside unless it is there or space is short already.
pub(super) fn make_reserve(dir: &Path) -> io::Result<()> {
    let path = dir.join(RESERVE);
    if path.metadata().is_ok_and(|meta| meta.len() == RESERVE_BYTES) || free(dir)? < 4 * RESERVE_BYTES {
        return Ok(());
    }
    allocate(&create_file(&path)?, RESERVE_BYTES)
}

/// Gives the reserve back to the file system; says whether there was one.
pub(super) fn free_reserve(dir: &Path) -> bool {
    std::fs::remove_file(dir.join(RESERVE)).is_ok() && sync_dir(dir).is_ok()
}

/// Writes a file whole or not at all: temporary file, fsync, rename, fsync of the directory.
pub(super) fn replace<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let temporary = temporary(path);
    let result = create_file(&temporary).and_then(|mut file| {
        let value = write(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), sync_dir)?;
        Ok(value)
    });
    if result.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Bytes in the plain files directly in a directory; 0 if there is none.
pub(super) fn dir_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_words() {
        let told = |errno: nix::errno::Errno| explain(&errno.into(), Path::new("/"), 16 << 20);
        let (refusal, why) = told(nix::errno::Errno::EROFS);
        assert_eq!(refusal, Refusal::ReadOnlyFileSystem);
        assert!(why.contains("is read-only"), "{why}");
        let (refusal, why) = told(nix::errno::Errno::ENOSPC);
        assert_eq!(refusal, Refusal::DiskFull);
        assert!(why.contains("is full; free at least 16 MiB"), "{why}");
        assert_eq!(told(nix::errno::Errno::EDQUOT).0, Refusal::QuotaExceeded);
        let (refusal, why) = told(nix::errno::Errno::EIO);
        assert_eq!(refusal, Refusal::WriteFailed);
        assert!(why.contains("Input/output error"), "{why}");
    }
}
