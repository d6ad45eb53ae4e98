//! fsGroup: the volume belongs to a group and new files inherit it.

use super::VolumeError;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

/// Gives everything at and below `dir` to `group`, readable (and unless `read_only` writable) by it; directories pass
/// the group on. With `on_root_mismatch` nothing is done when the root looks right already. A `None` group is no-op.
pub fn apply(
    dir: &Path,
    group: Option<i64>,
    read_only: bool,
    on_root_mismatch: bool,
) -> Result<(), VolumeError> {
    let Some(group) = group.and_then(|g| u32::try_from(g).ok()) else { return Ok(()) };
    let root = fs::metadata(dir).map_err(|e| VolumeError::io("stat", dir, e))?;
    if on_root_mismatch
        && root.gid() == group
        && root.mode() & wanted(true, read_only) == wanted(true, read_only)
    {
        return Ok(());
    }
    walk(dir, group, read_only)
}

fn wanted(directory: bool, read_only: bool) -> u32 {
    let access = if read_only { 0o440 } else { 0o660 };
    if directory { access | 0o2110 } else { access }
}

fn walk(path: &Path, group: u32, read_only: bool) -> Result<(), VolumeError> {
    let meta = fs::symlink_metadata(path).map_err(|e| VolumeError::io("stat", path, e))?;
    give(path, &meta, group, read_only).map_err(|e| VolumeError::io("set ownership of", path, e))?;
    if meta.is_dir() {
        let entries = fs::read_dir(path).map_err(|e| VolumeError::io("read", path, e))?;
        entries.flatten().try_for_each(|entry| walk(&entry.path(), group, read_only))?;
    }
    Ok(())
}

fn give(path: &Path, meta: &fs::Metadata, group: u32, read_only: bool) -> io::Result<()> {
    lchown(path, None, Some(group))?;
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = meta.mode() & 0o7777 | wanted(meta.is_dir(), read_only);
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_nobody_writes_is_made_readable_and_no_more() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let group = i64::from(fs::metadata(dir.path()).expect("metadata").gid());
        let file = dir.path().join("f");
        let mode = |start: u32, read_only| {
            fs::write(&file, "").expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(start)).expect("mode");
            apply(dir.path(), Some(group), read_only, false).expect("applied");
            let now = fs::metadata(&file).expect("metadata").mode() & 0o777;
            fs::remove_file(&file).expect("removed");
            now
        };
        assert_eq!(mode(0o440, true), 0o440);
        assert_eq!(mode(0o600, true), 0o640);
        assert_eq!(mode(0o600, false), 0o660);
    }
}
