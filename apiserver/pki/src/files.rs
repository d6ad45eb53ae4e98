//! Reading and writing of the key folder.

use super::PkiError;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file that is about to be written, by its name in the folder.
pub(super) struct NewFile {
    pub name: String,
    pub contents: String,
}

/// Makes the folder, readable by its owner alone.
pub(super) fn create_dir(dir: &Path) -> Result<(), PkiError> {
    let fail = |source| PkiError::Write { path: dir.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
    let mode = fs::metadata(dir).map_err(fail)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(fail)?;
    }
    Ok(())
}

/// The text of a file of the folder; `None` if there is none. Rights for anybody but the owner are taken away.
pub fn read(dir: &Path, name: &str) -> Result<Option<String>, PkiError> {
    let path = dir.join(name);
    let fail = |source| PkiError::Read { path: path.clone(), source };
    match fs::metadata(&path) {
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(fail)?;
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    }
    fs::read_to_string(&path).map(Some).map_err(fail)
}

/// Takes a file away, durably; one that is not there is no mistake.
pub(super) fn remove(dir: &Path, name: &str) -> Result<(), PkiError> {
    let path = dir.join(name);
    let removed = match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed,
    };
    let synced = removed.and_then(|()| fs::File::open(dir)?.sync_all());
    synced.map_err(|source| PkiError::Write { path, source })
}

/// Writes all files, each whole or not at all, and durable when this returns.
///
/// The syncs run at the same time: a file system's journal then commits once for all of them, which keeps the first
/// start short.
pub(super) fn write_all(dir: &Path, files: &[NewFile]) -> Result<(), PkiError> {
    if files.is_empty() {
        return Ok(());
    }
    let mut written = Vec::with_capacity(files.len());
    for file in files {
        written.push(write_temporary(dir, file)?);
    }
    std::thread::scope(|scope| {
        let syncs: Vec<_> =
            written.iter().map(|(path, file)| (path, scope.spawn(|| file.sync_all()))).collect();
        syncs.into_iter().try_for_each(|(path, sync)| {
            let result = sync.join().unwrap_or_else(|_| Err(io::Error::other("the sync panicked")));
            result.map_err(|source| PkiError::Write { path: path.clone(), source })
        })
    })?;
    for (file, (temporary, _)) in files.iter().zip(&written) {
        let path = dir.join(&file.name);
        fs::rename(temporary, &path).map_err(|source| PkiError::Write { path, source })?;
    }
    let sync = fs::File::open(dir).and_then(|d| d.sync_all());
    sync.map_err(|source| PkiError::Write { path: dir.to_owned(), source })
}

fn write_temporary(dir: &Path, file: &NewFile) -> Result<(PathBuf, fs::File), PkiError> {
    let path = dir.join(format!(".{}.new", file.name));
    let fail = |source| PkiError::Write { path: path.clone(), source };
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let mut handle =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(fail)?;
    handle.write_all(file.contents.as_bytes()).map_err(fail)?;
    Ok((path, handle))
}

/// [`write_all`] for one file outside the folder (a kubeconfig, a joined machine's certificate). Parent folders are made,
/// 0755.
pub fn write_private(path: &Path, contents: String) -> Result<(), PkiError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|source| PkiError::Write { path: parent.to_owned(), source })?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if name.is_empty() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
        return Err(PkiError::Write { path: path.to_owned(), source });
    }
    write_all(parent, &[NewFile { name, contents }])
}
