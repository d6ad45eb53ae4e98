//! Publishes a set of files so that a reader sees either the old set or the new one.
//!
//! The layout is Kubernetes' own, which programs in pods rely on: `..data` is a symbolic link to a directory whose
//! name is a timestamp, and each visible name is a link through `..data`. Replacing `..data` switches all at once.

use super::VolumeError;
use crate::beneath::{self, Dir, Permissions};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
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

/// Makes `dir` show exactly `payload`, readable by `group` where there is one. Nothing is written when it does already.
/// Returns whether something changed.
pub fn publish(
    dir: &Path,
    payload: &Payload,
    group: Option<u32>,
    now: Timestamp,
) -> Result<bool, VolumeError> {
    payload.keys().try_for_each(|path| check_path(path))?;
    let failed = |error| VolumeError::io("publish files in", dir, error);
    let root = Dir::open(dir).map_err(failed)?;
    show(&root, payload, group, now).map_err(failed)
}

fn show(root: &Dir, payload: &Payload, group: Option<u32>, now: Timestamp) -> io::Result<bool> {
    if let Some(group) = group {
        let itself = root.itself()?;
        itself.chown(None, Some(group))?;
        itself.chmod(itself.mode() | GROUP_OF_DIRS)?;
    }
    let old = root.read_link(DATA).ok();
    if old.as_ref().is_some_and(|old| root.dir(old).is_ok_and(|dir| shows(&dir, payload))) {
        link_names(root, payload)?;
        return Ok(false);
    }
    let stamp = format!("{}.{:09}", now.strftime("..%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond());
    root.remove(&stamp)?;
    write_files(&root.make_dir(&stamp, 0o755)?, payload, group)?;
    root.remove(NEXT)?;
    root.link(&stamp, NEXT)?;
    root.rename(NEXT, DATA)?;
    link_names(root, payload)?;
    unlink_stale(root, payload)?;
    match old.filter(|old| *old != Path::new(&stamp)) {
        Some(old) => root.remove(old).map(|()| true),
        None => Ok(true),
    }
}

/// What a group gets of the files and directories that it shall read: nobody writes them.
const GROUP_OF_FILES: u32 = 0o440;
const GROUP_OF_DIRS: u32 = 0o2550;

fn shows(dir: &Dir, payload: &Payload) -> bool {
    let mut found = BTreeSet::new();
    collect_files(dir, Path::new(""), &mut found).is_ok()
        && found.len() == payload.len()
        && payload.iter().all(|(path, file)| {
            // Group bits may have been added for fsGroup.
            let limit = u64::try_from(file.data.len()).unwrap_or(u64::MAX).saturating_add(1);
            dir.node(path).is_ok_and(|node| node.mode() & file.mode & 0o777 == file.mode & 0o777)
                && dir.read(path, limit).is_ok_and(|data| data == file.data)
        })
}

/// The depth is that of the paths in the payload, or the first difference ends it.
fn collect_files(dir: &Dir, at: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in dir.entries()? {
        let name = entry?.file_name();
        if dir.node(&name)?.is_dir() {
            collect_files(&dir.dir(&name)?, &at.join(&name), found)?;
        } else {
            found.insert(at.join(&name));
        }
    }
    Ok(())
}

fn write_files(dir: &Dir, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    for (path, file) in payload {
        let path = Path::new(path);
        let (parent, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        let mode = file.mode | if group.is_some() { GROUP_OF_FILES } else { 0 };
        let permissions = Permissions { mode, owner: file.owner, group };
        dir.make_dir_all(parent, 0o755)?.create(name, &file.data, permissions)?;
    }
    let Some(group) = group else { return Ok(()) };
    let walked = beneath::walk(dir, |node| {
        node.chown(None, Some(group))?;
        if node.is_dir() { node.chmod(node.mode() | GROUP_OF_DIRS) } else { Ok(()) }
    });
    walked.and_then(beneath::Reached::whole)
}

/// The names at the top of the volume.
fn top_names(payload: &Payload) -> BTreeSet<&str> {
    payload.keys().filter_map(|path| path.split('/').next()).collect()
}

fn link_names(root: &Dir, payload: &Payload) -> io::Result<()> {
    for name in top_names(payload) {
        if root.node(name).is_err() {
            root.link(Path::new(DATA).join(name), name)?;
        }
    }
    Ok(())
}

fn unlink_stale(root: &Dir, payload: &Payload) -> io::Result<()> {
    let wanted = top_names(payload);
    for entry in root.entries()? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if root.node(&name)?.is_link() && !text.starts_with("..") && !wanted.contains(text.as_ref()) {
            root.remove(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

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
        assert!(publish(dir.path(), &first, None, at(1)).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("deep/b")).unwrap(), "2");
        assert!(!publish(dir.path(), &first, None, at(2)).unwrap(), "nothing to do");
        let data = fs::read_link(dir.path().join(DATA)).unwrap();
        assert_eq!(data, Path::new("..1970_01_01_00_00_01.000000000"));

        assert!(publish(dir.path(), &payload(&[("a", "3"), ("c", "4")]), None, at(3)).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "3");
        assert!(fs::symlink_metadata(dir.path().join("deep")).is_err(), "stale names go");
        assert!(!dir.path().join(data).exists(), "and so do old directories");
        assert_eq!(fs::read_link(dir.path().join("c")).unwrap(), Path::new("..data/c"));
    }

    #[test]
    fn a_group_reads_it_from_the_first_moment() {
        let dir = tempfile::tempdir().unwrap();
        let group = fs::metadata(dir.path()).unwrap().gid();
        let mut files = payload(&[("deep/b", "2")]);
        files.get_mut("deep/b").unwrap().mode = 0o600;
        assert!(publish(dir.path(), &files, Some(group), at(1)).unwrap());
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("deep/b"), mode("deep"), mode(".") & 0o2050), (0o640, 0o2755, 0o2050));
        assert!(!publish(dir.path(), &files, Some(group), at(2)).unwrap(), "nothing to do");
    }

    #[test]
    fn nothing_is_written_through_a_link_in_the_place_of_the_data() {
        let (dir, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(node.path().join("a"), "the node's").unwrap();
        std::os::unix::fs::symlink(node.path(), dir.path().join(DATA)).unwrap();
        std::os::unix::fs::symlink(node.path(), dir.path().join("..1970_01_01_00_00_01.000000000")).unwrap();
        let refused = publish(dir.path(), &payload(&[("a", "1")]), None, at(1));
        assert_eq!(fs::read_to_string(node.path().join("a")).unwrap(), "the node's", "{refused:?}");
    }

    #[test]
    fn paths_stay_inside() {
        for bad in ["", "../x", "/etc/passwd", "a/../../b", "..x", "."] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
        assert!(check_path("a/b..c/d").is_ok());
    }
}
