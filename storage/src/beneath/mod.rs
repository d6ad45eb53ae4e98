//! File work below directories that containers can write.
//!
//! A process in a container may at any time put a symbolic link, another directory or another file where a path led a
//! moment ago. So nothing below such a directory is reached by a path of the node's: the directory is opened once, and
//! everything below it by the kernel's `openat2` from that descriptor, which follows no link, leaves the directory by no
//! name and crosses no mount. What was opened is then read, changed and given away by its descriptor, never by its name.

mod copy;
mod node;
mod remove;
pub mod stream;
mod walk;

pub use copy::copy;
pub use node::Node;
pub use walk::{Reached, walk};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Directories in one another that are copied or sent; each keeps up to two descriptors open, of the 1024 that a process has at
/// least.
const MAX_DEPTH: usize = 200;

/// A directory that is held open; what lies below it is named relative to it.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const OPEN_DIR: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);

impl Dir {
    /// Opens the root. Links on the way are followed: no container may be able to change the directories above it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(nix::fcntl::open(path, OPEN_DIR | OFlag::O_CLOEXEC, Mode::empty())?))
    }

    /// Opens what is at `path` with these flags. A link on the way or at the end, a mount and whatever leads out of this
    /// directory is an error.
    fn below(&self, path: &Path, flags: OFlag, mode: u32) -> nix::Result<OwnedFd> {
        let how =
            OpenHow::new().flags(flags | OFlag::O_CLOEXEC).mode(Mode::from_bits_truncate(mode)).resolve(
                ResolveFlag::RESOLVE_BENEATH
                    | ResolveFlag::RESOLVE_NO_SYMLINKS
                    | ResolveFlag::RESOLVE_NO_MAGICLINKS
                    | ResolveFlag::RESOLVE_NO_XDEV,
            );
        openat2(self, path, how)
    }

    pub fn dir(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self(self.below(path.as_ref(), OPEN_DIR, 0)?))
    }

    /// The same, but links are followed that stay below this directory, and mounts are entered.
    pub fn within(&self, path: impl AsRef<Path>) -> io::Result<Node> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Node::of(openat2(self, path.as_ref(), how)?)
    }

    /// Whatever is there, to be looked at and given away; a link at the end is the link itself.
    pub fn node(&self, path: impl AsRef<Path>) -> io::Result<Node> {
        Node::of(self.below(path.as_ref(), OFlag::O_PATH | OFlag::O_NOFOLLOW, 0)?)
    }

    /// This directory as a node.
    pub fn itself(&self) -> io::Result<Node> {
        self.node(".")
    }

    /// Opens a regular file to be read. A pipe or a device in its place is an error, and keeps nobody waiting.
    pub fn file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let opened = self.below(path.as_ref(), OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY, 0)?;
        regular(File::from(opened))
    }

    /// Reads a regular file, but no more than `limit` bytes of it: containers choose how large it is.
    pub fn read(&self, path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(path)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// What is in this directory; only the names of the entries may be used, their paths are nobody's.
    pub fn entries(&self) -> io::Result<fs::ReadDir> {
        fs::read_dir(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Makes a directory with exactly this mode, whatever the umask, unless one of the name is there, which stays as it
    /// is. One that somebody else put there meanwhile is not given the mode.
    pub fn make_dir(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        let made = match mkdirat(self, name, Mode::from_bits_truncate(mode)) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        let dir = self.dir(name)?;
        let node = dir.itself()?;
        if made && node.uid() == nix::unistd::geteuid().as_raw() && node.mode() != mode {
            node.chmod(mode | node.mode() & 0o2000)?;
        }
        Ok(dir)
    }

    /// Makes the directories of a relative path, as [`Dir::make_dir`] does each.
    pub fn make_dir_all(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        let mut dir = self.dir(".")?;
        for part in path.as_ref().components() {
            match part {
                Component::Normal(name) => dir = dir.make_dir(name, mode)?,
                Component::CurDir => {}
                _ => return Err(Errno::EXDEV.into()),
            }
        }
        Ok(dir)
    }

    /// Makes a file that was not there, with exactly this mode and, where given, this owner and group.
    pub fn create(&self, path: impl AsRef<Path>, data: &[u8], permissions: Permissions) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        // Nobody else reads it before it is whole and its owner's.
        let mut file = File::from(self.below(path.as_ref(), flags, 0o600)?);
        file.write_all(data)?;
        permissions.give(&file)
    }

    /// Makes a file that was not there, which nobody else may read yet.
    pub fn new_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        Ok(File::from(self.below(name.as_ref(), flags, 0o600)?))
    }

    /// Writes a file from its beginning, or makes it with this mode. Who has it mounted sees what is written.
    pub fn overwrite(&self, path: impl AsRef<Path>, data: &[u8], mode: u32) -> io::Result<()> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mut file = regular(File::from(self.below(path.as_ref(), flags, 0o600)?))?;
        file.set_len(0)?;
        file.write_all(data)?;
        Permissions::of(mode).give(&file)
    }

    /// Puts a file at `name` in one step, in place of whatever has that name.
    pub fn replace(&self, name: impl AsRef<Path>, data: &[u8], mode: u32) -> io::Result<()> {
        let name = single(name.as_ref())?;
        let mut new = OsString::from(".new-");
        new.push(name);
        self.remove(&new)?;
        self.create(&new, data, Permissions::of(mode))?;
        self.rename(&new, name)
    }

    /// Both names are in this directory.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        Ok(nix::fcntl::renameat(self, single(from.as_ref())?, self, single(to.as_ref())?)?)
    }

    /// Brings what is at `from`, somewhere below this directory, to the name `to` in it.
    pub fn rename_from(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let from = from.as_ref();
        let (Some(parent), Some(name)) = (from.parent(), from.file_name()) else {
            return Err(Errno::EXDEV.into());
        };
        let parent = self.dir(if parent == "" { Path::new(".") } else { parent })?;
        Ok(nix::fcntl::renameat(&parent, name, self, single(to.as_ref())?)?)
    }

    /// Makes a symbolic link at `name`; `target` is text that is never looked at here.
    pub fn link(&self, target: impl AsRef<Path>, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(nix::unistd::symlinkat(target.as_ref(), self, single(name.as_ref())?)?)
    }

    /// Gives a file one more name, in this directory.
    pub fn name(&self, file: &Node, name: impl AsRef<Path>) -> io::Result<()> {
        let name = single(name.as_ref())?;
        let flags = AtFlags::AT_SYMLINK_FOLLOW;
        Ok(nix::unistd::linkat(nix::fcntl::AT_FDCWD, &file.path(), self, name, flags)?)
    }

    pub fn read_link(&self, name: impl AsRef<Path>) -> io::Result<PathBuf> {
        Ok(nix::fcntl::readlinkat(self, single(name.as_ref())?)?.into())
    }

    /// Removes whatever is at `name`, a directory with all that is in it. What is not there is removed already. A mount
    /// is an error, and so nothing of what is mounted goes.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        remove::remove(self, single(name.as_ref())?)
    }
}

/// What a new file is given.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    pub mode: u32,
    pub owner: Option<u32>,
    pub group: Option<u32>,
}

impl Permissions {
    pub fn of(mode: u32) -> Self {
        Self { mode, owner: None, group: None }
    }

    fn give(self, file: &File) -> io::Result<()> {
        let owner = self.owner.map(nix::unistd::Uid::from_raw);
        let group = self.group.map(nix::unistd::Gid::from_raw);
        if owner.is_some() || group.is_some() {
            nix::unistd::fchown(file, owner, group)?;
        }
        Ok(nix::sys::stat::fchmod(file, Mode::from_bits_truncate(self.mode))?)
    }
}

/// Removes what is at `path`, which lies below `root`; see [`Dir::remove`].
pub fn remove_below(root: &Path, path: &Path) -> io::Result<()> {
    let outside = || io::Error::from(Errno::EXDEV);
    let relative = path.strip_prefix(root).map_err(|_| outside())?;
    let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else { return Err(outside()) };
    let opened = Dir::open(root).and_then(|dir| dir.dir(if parent == "" { Path::new(".") } else { parent }));
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.remove(name),
    }
}

/// Removes the file or the empty directory at `path`, which lies below `root`. What is not there is removed already; a
/// directory that holds anything is an error, and so is a mount.
pub fn remove_empty(root: &Path, path: &Path) -> io::Result<()> {
    let outside = || io::Error::from(Errno::EXDEV);
    let relative = path.strip_prefix(root).map_err(|_| outside())?;
    let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else { return Err(outside()) };
    let opened = Dir::open(root).and_then(|dir| dir.dir(if parent == "" { Path::new(".") } else { parent }));
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => remove::remove_empty(&opened?, name),
    }
}

/// Opens a regular file to be read, below its ancestor so many levels up; of those directories none may be a link.
pub fn open_below(levels: usize, path: &Path) -> io::Result<File> {
    let (root, relative) = ancestor(levels, path)?;
    Dir::open(root)?.file(relative)
}

/// Opens the directory that a file lies in, as [`open_below`] opens the file.
pub fn parent_below(levels: usize, path: &Path) -> io::Result<Dir> {
    let (root, relative) = ancestor(levels, path)?;
    Dir::open(root)?.dir(relative.parent().filter(|parent| *parent != "").unwrap_or(Path::new(".")))
}

fn ancestor(levels: usize, path: &Path) -> io::Result<(&Path, &Path)> {
    let root = path.ancestors().nth(levels);
    let relative = root.and_then(|root| path.strip_prefix(root).ok().map(|relative| (root, relative)));
    relative.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// One name of a directory: not `..`, and no path.
fn single(name: &Path) -> io::Result<&OsStr> {
    let mut parts = name.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) => Ok(part),
        _ => Err(Errno::EXDEV.into()),
    }
}

/// Refuses what is no regular file.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// What another process may make of an entry while it is looked at: nothing, or something that is not to be followed.
fn is_gone(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV))
}

#[cfg(test)]
mod tests;
