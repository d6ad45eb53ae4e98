//! One file, directory or link, held by a descriptor: what is seen of it and what is done to it is the same one's.

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchownat};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

#[derive(Debug)]
pub struct Node {
    fd: OwnedFd,
    stat: FileStat,
}

impl Node {
    /// `fd` is opened with O_PATH.
    pub(super) fn of(fd: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        Ok(Self { fd, stat })
    }

    pub(super) fn stat(&self) -> &FileStat {
        &self.stat
    }

    fn is(&self, kind: SFlag) -> bool {
        SFlag::from_bits_truncate(self.stat.st_mode) & SFlag::S_IFMT == kind
    }

    pub fn is_dir(&self) -> bool {
        self.is(SFlag::S_IFDIR)
    }

    pub fn is_file(&self) -> bool {
        self.is(SFlag::S_IFREG)
    }

    pub fn is_link(&self) -> bool {
        self.is(SFlag::S_IFLNK)
    }

    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & PERMISSIONS
    }

    pub fn uid(&self) -> u32 {
        self.stat.st_uid
    }

    pub fn gid(&self) -> u32 {
        self.stat.st_gid
    }

    /// Whether this very node is what lies at `path`.
    pub fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (self.stat.st_dev, self.stat.st_ino))
    }

    pub fn inode(&self) -> u64 {
        self.stat.st_ino
    }

    /// Bytes of its content.
    pub fn len(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it takes on disk, in units of 512 bytes whatever the file system's own are.
    pub fn blocks(&self) -> u64 {
        u64::try_from(self.stat.st_blocks).unwrap_or(0)
    }

    pub fn chown(&self, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        Ok(fchownat(&self.fd, "", owner, group, AtFlags::AT_EMPTY_PATH)?)
    }

    /// A link has no mode of its own: it is an error.
    pub fn chmod(&self, mode: u32) -> io::Result<()> {
        if self.is_link() {
            return Err(Errno::ELOOP.into());
        }
        fs::set_permissions(self.path(), fs::Permissions::from_mode(mode))
    }

    /// Opens a regular file to be read.
    pub fn open(&self) -> io::Result<fs::File> {
        if !self.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        fs::File::open(self.path())
    }

    /// A path that leads to this very node for as long as it is held, whatever becomes of its name. Good for calls of this
    /// process alone.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }
}
