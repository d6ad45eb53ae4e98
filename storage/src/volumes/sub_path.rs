//! `subPath`: one file or directory of a volume, without a way out of the volume.
//!
//! A process in a pod may swap a directory for a symbolic link while it is looked at. So the path is opened beneath
//! the volume's root by the kernel (openat2 with RESOLVE_BENEATH), and what was opened, not a name, is bound.

use super::VolumeError;
use super::host::{Mounter, make_dir_all};
use crate::beneath::{Dir, Node};
use nix::errno::Errno;
use std::io;
use std::path::{Component, Path, PathBuf};

/// In a pod's directory: what parts of its volumes are bound to.
pub(crate) const DIRECTORY: &str = "volume-subpaths";

/// A container's mount of a part of a volume.
pub struct SubPath<'a> {
    pub volume: &'a str,
    /// Where the volume is on the node.
    pub root: &'a Path,
    /// Expanded already.
    pub sub_path: &'a str,
    pub container: &'a str,
    /// The index of the mount in the container's list.
    pub mount: usize,
}

/// Opens or creates (as directories) the path, binds it to a place of its own and returns that place.
pub(super) fn prepare(
    host: &dyn Mounter,
    pod_dir: &Path,
    request: &SubPath<'_>,
) -> Result<PathBuf, VolumeError> {
    let escapes = || VolumeError::SubPathEscapes { sub_path: request.sub_path.to_owned() };
    let relative = Path::new(request.sub_path);
    if !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(escapes());
    }
    let places = pod_dir.join(DIRECTORY).join(request.volume).join(request.container);
    make_dir_all(&places, 0o750)?;
    let target = places.join(request.mount.to_string());
    let root = Dir::open(request.root).map_err(|e| VolumeError::io("open", request.root, e))?;
    let opened =
        open_within(&root, relative).map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EXDEV | Errno::ELOOP) => escapes(),
            _ => VolumeError::io("open subPath", relative, error),
        })?;
    if host.mounts()?.contains(&target) {
        if opened.is_at(&target) {
            return Ok(target);
        }
        // Bound for a container before this one, and replaced since: what is deleted can be bound nowhere else.
        host.unmount(&target)?;
    }
    if opened.is_dir() {
        make_dir_all(&target, 0o750)?;
    } else {
        let places = Dir::open(&places).and_then(|dir| dir.overwrite(request.mount.to_string(), b"", 0o640));
        places.map_err(|e| VolumeError::io("create", &target, e))?;
    }
    host.bind(&opened.path(), &target)?;
    Ok(target)
}

/// Links that stay in the volume are followed; what is missing is made.
fn open_within(root: &Dir, path: &Path) -> io::Result<Node> {
    let mut opened = root.itself()?;
    // New directories look like the volume, so that whoever may use the one may use the other.
    let mode = opened.mode() & 0o777;
    let mut prefix = PathBuf::from(".");
    for component in path.components() {
        let parent = opened;
        prefix.push(component);
        opened = match root.within(&prefix) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // In the directory that was found there, whatever its name leads to now.
                Dir::open(&parent.path())?.make_dir(component, mode)?;
                root.within(&prefix)?
            }
            other => other?,
        };
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::super::host::LinuxMounter;
    use super::super::host::fake::FakeMounter;
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_that_was_replaced_is_bound_anew() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        fs::create_dir_all(&root).unwrap();
        let host = LinuxMounter;
        let bound = |text: &str| {
            let request = SubPath { volume: "v", root: &root, sub_path: "f", container: "c", mount: 0 };
            let target = prepare(&host, &dir.path().join("pod"), &request).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), text);
            let again = host.mounts().unwrap().below(&target).len();
            (target, again)
        };
        fs::write(root.join("f"), "one").unwrap();
        let first = bound("one");
        assert_eq!((bound("one"), first.1), (first.clone(), 1));
        fs::write(root.join("new"), "two").unwrap();
        fs::rename(root.join("new"), root.join("f")).unwrap();
        let second = bound("two");
        host.unmount(&second.0).unwrap();
        assert_eq!(second, first);
    }

    #[test]
    fn links_out_of_the_volume_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        fs::create_dir_all(root.join("inside")).unwrap();
        symlink("/etc", root.join("out")).unwrap();
        symlink("inside", root.join("in")).unwrap();
        let host = FakeMounter::default();
        let prepare_one = |sub_path| {
            let request = SubPath { volume: "v", root: &root, sub_path, container: "c", mount: 0 };
            prepare(&host, &dir.path().join("pod"), &request)
        };
        for bad in ["../x", "/etc", "out", "out/passwd"] {
            assert!(matches!(prepare_one(bad), Err(VolumeError::SubPathEscapes { .. })), "{bad}");
        }
        prepare_one("in/new/deep").unwrap();
        assert!(root.join("inside/new/deep").is_dir(), "missing directories are made");
        assert_eq!(host.0.lock().len(), 1);
    }
}
