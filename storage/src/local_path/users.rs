//! Who has a volume's directory mounted: containers that nobody knows of any more, for one.

use crate::volumes::{SUB_PATHS, unescape};
use nix::errno::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of `/proc/<pid>/mountinfo`.
struct Mount {
    device: String,
    /// What of the file system is mounted.
    root: PathBuf,
    point: PathBuf,
}

/// Processes of this node have a volume's directory mounted.
#[derive(Debug, thiserror::Error)]
#[error("processes of this node still have it mounted, perhaps of a pod that was deleted by force: {0}")]
pub struct InUse(String);

impl InUse {
    /// # Errors
    /// There are some.
    pub fn by(users: &[u32]) -> Result<(), Self> {
        let users: Vec<String> = users.iter().map(u32::to_string).collect();
        if users.is_empty() { Ok(()) } else { Err(Self(users.join(", "))) }
    }
}

/// Processes in whose view the directory, or something in it, is mounted anywhere but where it lies.
///
/// # Errors
/// Nobody can tell then.
pub fn users(path: &Path) -> io::Result<Vec<u32>> {
    those(path, |_| true)
}

/// [`users`] but those who see no more of it than a copy of what the kubelet had made ready for somebody else, which a
/// container that has a directory of the machine may keep for ever.
///
/// # Errors
/// Nobody can tell then.
pub fn containers(path: &Path) -> io::Result<Vec<u32>> {
    those(path, |mount| !is_made_ready(&mount.point))
}

/// Whether the kubelet makes a `subPath` ready there for a container, which then has a mount of its own:
/// `pods/<uid>/volume-subpaths/<volume>/<container>/<index>`.
fn is_made_ready(point: &Path) -> bool {
    let parts: Vec<&OsStr> = point.iter().rev().take(6).collect();
    let [index, _, _, directory, _, pods] = parts[..] else { return false };
    let is_index = index.to_str().is_some_and(|index| index.parse::<usize>().is_ok());
    is_index && directory == SUB_PATHS && pods == "pods"
}

fn those(path: &Path, counts: impl Fn(&Mount) -> bool) -> io::Result<Vec<u32>> {
    let path = fs::canonicalize(path)?;
    let own = mounts(&text(Path::new("/proc/self/mountinfo"))?);
    let (device, root) = place(&own, &path).ok_or(io::ErrorKind::NotFound)?;
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let text = match text(Path::new(&format!("/proc/{pid}/mountinfo"))) {
            // Whoever ends meanwhile has nothing mounted.
            Err(error) if ENDED.iter().any(|errno| error.raw_os_error() == Some(*errno as i32)) => continue,
            text => text?,
        };
        if mounts(&text).iter().any(|mount| shows(mount, &device, &root, &path) && counts(mount)) {
            users.push(pid);
        }
    }
    Ok(users)
}

/// What the kernel says of a process that is ending, or has ended.
const ENDED: [Errno; 3] = [Errno::ENOENT, Errno::ESRCH, Errno::EINVAL];

/// Names of others' directories need not be text.
fn text(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The file system that the path lies on, and where in it.
fn place(mounts: &[Mount], path: &Path) -> Option<(String, PathBuf)> {
    // Of mounts at the same point the last one is seen.
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    let mount = above.max_by_key(|mount| mount.point.components().count())?;
    let below = path.strip_prefix(&mount.point).ok()?;
    Some((
        mount.device.clone(),
        if below == Path::new("") { mount.root.clone() } else { mount.root.join(below) },
    ))
}

/// A volume with a file system of its own is mounted where it lies, in every view that shows all of the machine.
fn shows(mount: &Mount, device: &str, root: &Path, path: &Path) -> bool {
    let relative = path.strip_prefix("/").unwrap_or(path);
    mount.device == device && mount.root.starts_with(root) && !mount.point.ends_with(relative)
}

fn mounts(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(2);
            let device = fields.next()?.to_owned();
            let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(fields.next()?))));
            Some(Mount { device, root: path()?, point: path()? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_the_volume_elsewhere_is_a_use_of_it() {
        let host = mounts(
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 22 8:2 / /var/lib\\040c rw - ext4 /dev/sdb rw\n50 40 7:0 / /var/lib\\040c/l/img rw - ext4 /dev/loop0 rw\n",
        );
        let of = |path: &str| place(&host, Path::new(path)).unwrap();
        assert_eq!(of("/var/lib c/l/pvc"), ("8:2".to_owned(), "/l/pvc".into()));
        assert_eq!(of("/var/lib c/l/img"), ("7:0".to_owned(), "/".into()));
        let used = |line: &str, path: &str| {
            let (device, root) = of(path);
            shows(&mounts(line)[0], &device, &root, Path::new(path))
        };
        let pvc = "/var/lib c/l/pvc";
        assert!(used("9 8 8:2 /l/pvc /data rw - ext4 x rw", pvc));
        assert!(used("9 8 8:2 /l/pvc/sub /data rw - ext4 x rw", pvc), "a subPath");
        assert!(!used("9 8 8:2 /l/pvc2 /data rw - ext4 x rw", pvc));
        assert!(!used("9 8 8:1 /l/pvc /data rw - ext4 x rw", pvc), "another disk");
        assert!(!used("9 8 8:2 / /host/var/lib\\040c rw - ext4 x rw", pvc), "all of the machine");
        assert!(used("9 8 7:0 / /data rw - ext4 x rw", "/var/lib c/l/img"));
        assert!(!used("9 8 7:0 / /host/var/lib\\040c/l/img rw - ext4 x rw", "/var/lib c/l/img"));
    }

    #[test]
    fn what_nobody_has_mounted_has_no_users() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(users(place.path()).unwrap(), Vec::<u32>::new());
    }
}
