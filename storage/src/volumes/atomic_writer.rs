//! Publishes a set of files so that a reader sees either the old set or the new one.
//!
//! The layout is Kubernetes' own, which programs in pods rely on: `..data` is a symbolic link to a directory whose
//! name is a timestamp, and each visible name is a link through `..data`. Replacing `..data` switches all at once.

use super::VolumeError;
use super::host::make_dir_all;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    pub data: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// The owner, where it is not the kubelet's user.
    pub owner: Option<u32>,
}

/// Files by their path relative to the volume.
pub type Payload = BTreeMap<String, Projection>;

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";

/// Checks what users may write in `path`: relative, no `..`, nothing that starts with two dots.
pub fn check_path(path: &str) -> Result<(), VolumeError> {
    let plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
    let bad = path.is_empty() || !plain || path.starts_with("..");
    if bad { Err(VolumeError::Invalid(format!("invalid path: {path:?}"))) } else { Ok(()) }
}

/// Makes `dir` show exactly `payload`. Nothing is written when it does already. Returns whether something changed.
pub fn publish(dir: &Path, payload: &Payload, now: Timestamp) -> Result<bool, VolumeError> {
    payload.keys().try_for_each(|path| check_path(path))?;
    let old = fs::read_link(dir.join(DATA)).ok();
    if old.as_ref().is_some_and(|old| shows(&dir.join(old), payload)) {
        link_names(dir, payload)?;
        return Ok(false);
    }
    let stamp = format!("{}.{:09}", now.strftime("..%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond());
    let fresh = dir.join(&stamp);
    let _ = fs::remove_dir_all(&fresh);
    write_files(&fresh, payload)?;
    let next = dir.join(NEXT);
    let _ = fs::remove_file(&next);
    symlink(&stamp, &next).map_err(|e| VolumeError::io("link", &next, e))?;
    fs::rename(&next, dir.join(DATA)).map_err(|e| VolumeError::io("rename", &next, e))?;
    link_names(dir, payload)?;
    unlink_stale(dir, payload)?;
    if let Some(old) = old.map(|old| dir.join(old)).filter(|old| *old != fresh) {
        fs::remove_dir_all(&old).map_err(|e| VolumeError::io("remove", &old, e))?;
    }
    Ok(true)
}

fn shows(dir: &Path, payload: &Payload) -> bool {
    let mut found = BTreeSet::new();
    collect_files(dir, dir, &mut found);
    found.len() == payload.len()
        && payload.iter().all(|(path, file)| {
            let path = dir.join(path);
            let mode = fs::metadata(&path).map(|m| m.permissions().mode() & 0o777);
            // Group bits may have been added for fsGroup.
            mode.is_ok_and(|mode| mode & file.mode == file.mode & 0o777)
                && fs::read(&path).is_ok_and(|data| data == file.data)
        })
}

fn collect_files(root: &Path, dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            collect_files(root, &entry.path(), found);
        } else if let Ok(path) = entry.path().strip_prefix(root) {
            found.insert(path.to_owned());
        }
    }
}

fn write_files(dir: &Path, payload: &Payload) -> Result<(), VolumeError> {
    make_dir_all(dir, 0o755)?;
    for (path, file) in payload {
        let path = dir.join(path);
        let mut parents: Vec<&Path> = path.ancestors().skip(1).take_while(|p| *p != dir).collect();
        parents.reverse();
        parents.into_iter().try_for_each(|parent| make_dir_all(parent, 0o755))?;
        write_file(&path, file).map_err(|e| VolumeError::io("write", &path, e))?;
    }
    Ok(())
}

fn write_file(path: &Path, file: &Projection) -> io::Result<()> {
    fs::write(path, &file.data)?;
    fs::set_permissions(path, fs::Permissions::from_mode(file.mode))?;
    match file.owner {
        Some(uid) => std::os::unix::fs::chown(path, Some(uid), None),
        None => Ok(()),
    }
}

/// The names at the top of the volume.
fn top_names(payload: &Payload) -> BTreeSet<&str> {
    payload.keys().filter_map(|path| path.split('/').next()).collect()
}

fn link_names(dir: &Path, payload: &Payload) -> Result<(), VolumeError> {
    for name in top_names(payload) {
        let link = dir.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link).map_err(|e| VolumeError::io("link", &link, e))?;
        }
    }
    Ok(())
}

fn unlink_stale(dir: &Path, payload: &Payload) -> Result<(), VolumeError> {
    let wanted = top_names(payload);
    for entry in fs::read_dir(dir).map_err(|e| VolumeError::io("read", dir, e))?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let link = entry.file_type().is_ok_and(|t| t.is_symlink());
        if link && !name.starts_with("..") && !wanted.contains(name.as_ref()) {
            fs::remove_file(entry.path()).map_err(|e| VolumeError::io("remove", &entry.path(), e))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |data: &str| Projection { data: data.into(), mode: 0o644, owner: None };
        files.iter().map(|(path, data)| ((*path).to_owned(), file(data))).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_new_set_replaces_the_old_one_whole() {
        let dir = tempfile::tempdir().unwrap();
        let first = payload(&[("a", "1"), ("deep/b", "2")]);
        assert!(publish(dir.path(), &first, at(1)).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("deep/b")).unwrap(), "2");
        assert!(!publish(dir.path(), &first, at(2)).unwrap(), "nothing to do");
        let data = fs::read_link(dir.path().join(DATA)).unwrap();
        assert_eq!(data, Path::new("..1970_01_01_00_00_01.000000000"));

        assert!(publish(dir.path(), &payload(&[("a", "3"), ("c", "4")]), at(3)).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "3");
        assert!(fs::symlink_metadata(dir.path().join("deep")).is_err(), "stale names go");
        assert!(!dir.path().join(data).exists(), "and so do old directories");
        assert_eq!(fs::read_link(dir.path().join("c")).unwrap(), Path::new("..data/c"));
    }

    #[test]
    fn paths_stay_inside() {
        for bad in ["", "../x", "/etc/passwd", "a/../../b", "..x", "."] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
        assert!(check_path("a/b..c/d").is_ok());
    }
}
