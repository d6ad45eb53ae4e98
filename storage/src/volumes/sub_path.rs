//! `subPath`: one file or directory of a volume, without a way out of the volume.
//!
//! A process in a pod may swap a directory for a symbolic link while it is looked at. So the path is opened beneath
//! the volume's root by the kernel (openat2 with RESOLVE_BENEATH), and what was opened, not a name, is bound.

use super::VolumeError;
use super::host::{Mounter, make_dir_all};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

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
    let places = pod_dir.join("volume-subpaths").join(request.volume).join(request.container);
    make_dir_all(&places, 0o750)?;
    let target = places.join(request.mount.to_string());
    if host.mounts()?.contains(&target) {
        return Ok(target);
    }
    let root = File::open(request.root).map_err(|e| VolumeError::io("open", request.root, e))?;
    let opened = open_beneath(&root, relative).map_err(|errno| match errno {
        nix::Error::EXDEV | nix::Error::ELOOP => escapes(),
        other => VolumeError::io("open subPath", relative, other.into()),
    })?;
    let opened = File::from(opened);
    let meta = opened.metadata().map_err(|e| VolumeError::io("stat", relative, e))?;
    if meta.is_dir() {
        make_dir_all(&target, 0o750)?;
    } else {
        fs::write(&target, b"").map_err(|e| VolumeError::io("create", &target, e))?;
    }
    host.bind(Path::new(&format!("/proc/self/fd/{}", opened.as_raw_fd())), &target)?;
    Ok(target)
}

fn open_beneath(root: &File, path: &Path) -> nix::Result<OwnedFd> {
    let how = || {
        OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS)
    };
    // New directories look like the volume, so that whoever may use the one may use the other.
    let mode = Mode::from_bits_truncate(root.metadata().map_or(0o750, |m| m.mode()) & 0o777);
    let mut prefix = PathBuf::from(".");
    let mut opened = openat2(root, &prefix, how())?;
    for component in path.components() {
        prefix.push(component);
        opened = match openat2(root, &prefix, how()) {
            Err(nix::Error::ENOENT) => {
                mkdirat(&opened, component.as_os_str(), mode)?;
                let made = openat2(root, &prefix, how())?;
                // The umask has taken bits away.
                let path = format!("/proc/self/fd/{}", made.as_raw_fd());
                fs::set_permissions(path, fs::Permissions::from_mode(mode.bits()))
                    .map_err(|_| nix::Error::EPERM)?;
                made
            }
            other => other?,
        };
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::super::host::fake::FakeMounter;
    use super::*;
    use std::os::unix::fs::symlink;

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
