//! The node's mounts, as a port.

use super::VolumeError;
use crate::quota::{LinuxProjects, NoProjects, Projects};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long an unmount is waited for. Locally it takes milliseconds.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// The paths at which something is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable(pub Vec<PathBuf>);

impl MountTable {
    pub fn contains(&self, path: &Path) -> bool {
        self.0.iter().any(|p| p == path)
    }

    /// Mounts at `dir` and below.
    pub fn below(&self, dir: &Path) -> Vec<PathBuf> {
        self.0.iter().filter(|path| path.starts_with(dir)).cloned().collect()
    }

    /// Reads `/proc/self/mountinfo` (proc(5)): the fifth field, with its octal escapes.
    fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split(' ').nth(4));
        Self(fields.map(|f| PathBuf::from(std::ffi::OsString::from_vec(unescape(f)))).collect())
    }
}

/// A path of mountinfo, in which blanks and their like are written as `\040`.
pub(crate) fn unescape(field: &str) -> Vec<u8> {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = field.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal.filter(|_| bytes[at] == b'\\') {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// A file system in memory. Set-user-id files and devices mean nothing on any: what a container leaves there must be no
/// tool for others who see the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Bytes; `None` leaves the kernel's default of half the memory.
    pub size: Option<u64>,
    /// Whether programs may be run from it.
    pub programs: bool,
    /// Whether it may reach a swap device.
    pub swap: bool,
}

impl Tmpfs {
    /// For what the node writes and nobody may find on a disk later: Secrets, tokens, fields of the pod.
    pub fn of_data() -> Self {
        Self { size: None, programs: false, swap: false }
    }

    /// For what the containers of a pod write: programs, too.
    pub fn of_pods(size: Option<u64>) -> Self {
        Self { size, programs: true, swap: true }
    }

    fn flags(&self) -> MsFlags {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        if self.programs { flags } else { flags | MsFlags::MS_NOEXEC }
    }

    fn data(&self) -> String {
        let size = self.size.map(|bytes| format!("size={bytes}"));
        size.into_iter().chain((!self.swap).then(|| "noswap".to_owned())).collect::<Vec<_>>().join(",")
    }
}

/// A directory of an NFS server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NfsMount {
    pub server: String,
    pub path: String,
    /// As `mountOptions` has them.
    pub options: Vec<String>,
    pub read_only: bool,
}

impl NfsMount {
    /// `server:path`, with an IPv6 address in brackets.
    pub fn share(&self) -> String {
        let bare = self.server.contains(':') && !self.server.starts_with('[');
        if bare {
            format!("[{}]:{}", self.server, self.path)
        } else {
            format!("{}:{}", self.server, self.path)
        }
    }
}

/// Mounts and unmounts. Short system calls, but for NFS; they may be made on an async thread.
pub trait Mounter: Send + Sync {
    fn mounts(&self) -> Result<MountTable, VolumeError>;
    fn mount_tmpfs(&self, path: &Path, options: &Tmpfs) -> Result<(), VolumeError>;
    /// Binds `source` (a file or a directory, or a `/proc/self/fd` path) at `target`, which exists.
    fn bind(&self, source: &Path, target: &Path) -> Result<(), VolumeError>;
    /// Mounts a directory of an NFS server. May take minutes: the server may not answer.
    fn mount_nfs(&self, mount: &NfsMount, target: &Path) -> Result<(), VolumeError>;
    /// Mounts the ext4 file system in the file `image`.
    fn mount_image(&self, image: &Path, target: &Path) -> Result<(), VolumeError> {
        let (image, target) = (image.display(), target.display());
        Err(VolumeError::MountCommand(format!("{image} cannot be mounted at {target}: no loop devices here")))
    }
    /// Mounts the file system on a block device, which is made where there is none.
    fn mount_device(
        &self,
        device: &Path,
        _kind: Option<&str>,
        _options: &str,
        target: &Path,
    ) -> Result<(), VolumeError> {
        let (device, target) = (device.display(), target.display());
        Err(VolumeError::MountCommand(format!(
            "{device} cannot be mounted at {target}: no block devices here"
        )))
    }
    /// Mounts memory of huge pages of this size.
    fn mount_huge_pages(&self, target: &Path, page_bytes: i64) -> Result<(), VolumeError> {
        let target = target.display();
        Err(VolumeError::MountCommand(format!("{target}: no pages of {page_bytes} bytes here")))
    }
    fn unmount(&self, path: &Path) -> Result<(), VolumeError>;
    /// The quotas of this machine's file systems.
    fn projects(&self) -> &dyn Projects {
        &NoProjects
    }
}

/// The real thing; needs CAP_SYS_ADMIN.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxMounter;

impl Mounter for LinuxMounter {
    fn mounts(&self) -> Result<MountTable, VolumeError> {
        let path = Path::new("/proc/self/mountinfo");
        let text = fs::read_to_string(path).map_err(|e| VolumeError::io("read", path, e))?;
        Ok(MountTable::parse(&text))
    }

    fn mount_tmpfs(&self, path: &Path, options: &Tmpfs) -> Result<(), VolumeError> {
        let put = |options: &Tmpfs| {
            mount(Some("tmpfs"), path, Some("tmpfs"), options.flags(), Some(options.data().as_str()))
        };
        let done = match put(options) {
            // Kernels before 6.4 know no `noswap`.
            Err(nix::Error::EINVAL) if !options.swap => put(&Tmpfs { swap: true, ..*options }),
            done => done,
        };
        done.map_err(|errno| VolumeError::io("mount tmpfs at", path, errno.into()))
    }

    fn bind(&self, source: &Path, target: &Path) -> Result<(), VolumeError> {
        mount(Some(source), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
            .map_err(|errno| VolumeError::io("bind mount at", target, errno.into()))
    }

    fn mount_nfs(&self, mount: &NfsMount, target: &Path) -> Result<(), VolumeError> {
        super::nfs::mount(mount, target)
    }

    fn mount_image(&self, image: &Path, target: &Path) -> Result<(), VolumeError> {
        let mounted = super::image::run("mount", &["-t", "ext4", "-o", "loop"], &[image, target]);
        mounted.map(drop).map_err(|error| VolumeError::MountCommand(error.to_string()))
    }

    fn mount_device(
        &self,
        device: &Path,
        kind: Option<&str>,
        options: &str,
        target: &Path,
    ) -> Result<(), VolumeError> {
        let mounted = super::image::mount_device(device, kind, options, target);
        mounted.map_err(|error| VolumeError::MountCommand(error.to_string()))
    }

    fn mount_huge_pages(&self, target: &Path, page_bytes: i64) -> Result<(), VolumeError> {
        let (flags, size) = (MsFlags::MS_NOSUID | MsFlags::MS_NODEV, format!("pagesize={page_bytes}"));
        mount(Some("hugetlbfs"), target, Some("hugetlbfs"), flags, Some(size.as_str()))
            .map_err(|errno| VolumeError::io("mount huge pages at", target, errno.into()))
    }

    fn projects(&self) -> &dyn Projects {
        &LinuxProjects
    }

    fn unmount(&self, path: &Path) -> Result<(), VolumeError> {
        let (told, hears) = mpsc::channel();
        let target = path.to_owned();
        // The kernel writes what is left to a server elsewhere before this returns, and that one may be away: the thread is
        // left behind then, and ends when the server is back.
        std::thread::Builder::new()
            .name("unmount".to_owned())
            .spawn(move || told.send(detach(&target)))
            .map_err(|e| VolumeError::io("start a thread to unmount", path, e))?;
        match hears.recv_timeout(UNMOUNT_TIMEOUT) {
            Ok(done) => done,
            Err(_) if self.mounts()?.contains(path) => {
                Err(VolumeError::io("unmount", path, io::ErrorKind::TimedOut.into()))
            }
            Err(_) => {
                tracing::warn!(path = %path.display(), "unmounted; what was not written yet waits for its server");
                Ok(())
            }
        }
    }
}

/// Detached, because a container that is dying may hold it for a moment longer.
fn detach(path: &Path) -> Result<(), VolumeError> {
    match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
        Err(errno) => Err(VolumeError::io("unmount", path, errno.into())),
    }
}

/// Creates directories with exactly this mode, whatever the umask.
pub(crate) fn make_dir_all(path: &Path, mode: u32) -> Result<(), VolumeError> {
    if path.is_dir() {
        return Ok(());
    }
    let build = || -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    build().map_err(|e| VolumeError::io("create directory", path, e))
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;
    use parking_lot::Mutex;

    /// Remembers what is mounted; the file system below is the real one.
    #[derive(Default)]
    pub struct FakeMounter(pub Mutex<Vec<PathBuf>>);

    impl Mounter for FakeMounter {
        fn mounts(&self) -> Result<MountTable, VolumeError> {
            Ok(MountTable(self.0.lock().clone()))
        }
        fn mount_tmpfs(&self, path: &Path, _: &Tmpfs) -> Result<(), VolumeError> {
            self.0.lock().push(path.to_owned());
            Ok(())
        }
        fn bind(&self, _: &Path, target: &Path) -> Result<(), VolumeError> {
            self.0.lock().push(target.to_owned());
            Ok(())
        }
        fn mount_nfs(&self, _: &NfsMount, target: &Path) -> Result<(), VolumeError> {
            self.0.lock().push(target.to_owned());
            Ok(())
        }
        fn mount_huge_pages(&self, target: &Path, _: i64) -> Result<(), VolumeError> {
            self.0.lock().push(target.to_owned());
            Ok(())
        }

        fn unmount(&self, path: &Path) -> Result<(), VolumeError> {
            self.0.lock().retain(|p| p != path);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_with_its_escapes() {
        let text =
            "36 35 98:0 /x /mnt/a\\040b rw - ext3 /dev/root rw\n37 35 0:5 / /mnt rw - tmpfs tmpfs rw\n";
        let table = MountTable::parse(text);
        assert!(table.contains(Path::new("/mnt/a b")));
        assert_eq!(table.below(Path::new("/mnt")).len(), 2);
        assert_eq!(table.below(Path::new("/mn")).len(), 0, "a path is no string prefix");
    }

    #[test]
    fn what_the_node_writes_into_memory_stays_there_and_runs_nothing() {
        let data = Tmpfs::of_data();
        let all = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        assert_eq!((data.flags(), data.data().as_str()), (all, "noswap"));
        let pods = Tmpfs::of_pods(Some(4096));
        assert_eq!((pods.flags(), pods.data().as_str()), (all - MsFlags::MS_NOEXEC, "size=4096"));
    }

    #[test]
    fn a_file_system_in_memory_is_mounted_with_its_options() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        LinuxMounter.mount_tmpfs(dir.path(), &Tmpfs::of_data()).unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        LinuxMounter.unmount(dir.path()).unwrap();
        let path = dir.path().display().to_string();
        let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&path)).unwrap();
        for option in ["nosuid", "nodev", "noexec"] {
            assert!(line.contains(option), "{option} is missing from {line}");
        }
    }
}
