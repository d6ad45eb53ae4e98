//! Removing a directory with all that is in it.

use super::{Dir, is_gone};
use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsStr;
use std::io;

/// Directories that are open at once, one in the other; what lies deeper is brought up first. Containers may nest as many
/// as they like, and a process has 1024 descriptors and a stack of a few megabytes.
const MAX_DEPTH: usize = 64;
/// How often a directory is read again because something came meanwhile. Nobody should write to it any more.
const MAX_PASSES: usize = 100;

pub(super) fn remove(parent: &Dir, name: &OsStr) -> io::Result<()> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let top = parent.dir(name)?;
    let (mut raised, mut passes) = (0, 0);
    while passes < MAX_PASSES {
        let before = raised;
        empty(&top, &top, 1, &mut raised)?;
        passes += usize::from(raised == before);
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            // What was brought up, or came meanwhile.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::ENOTEMPTY.into())
}

/// Removes a file, or a directory that holds nothing.
pub(super) fn remove_empty(parent: &Dir, name: &OsStr) -> io::Result<()> {
    let removed = match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => unlinkat(parent, name, UnlinkatFlags::RemoveDir),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes what is in `dir`, which is `depth` levels deep; directories below the deepest level are moved into `top`, and
/// `raised` counts them.
fn empty(dir: &Dir, top: &Dir, depth: usize, raised: &mut usize) -> io::Result<()> {
    for entry in dir.entries()? {
        let name = entry?.file_name();
        match unlinkat(dir, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => continue,
            Err(Errno::EISDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if depth >= MAX_DEPTH {
            raise(dir, &name, top, raised)?;
            continue;
        }
        let below = match dir.dir(&name) {
            // Somebody has put something else there, which the next pass sees. A mount stays, and keeps what it is in.
            Err(error) if is_gone(&error) && !is_mount(&error) => continue,
            below => below?,
        };
        empty(&below, top, depth + 1, raised)?;
        match unlinkat(dir, name.as_os_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn is_mount(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EXDEV as i32)
}

fn raise(dir: &Dir, name: &OsStr, top: &Dir, raised: &mut usize) -> io::Result<()> {
    loop {
        *raised += 1;
        match renameat(dir, name, top, format!(".raised-{raised}").as_str()) {
            // One of an earlier pass has the name.
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            moved => return Ok(moved.or_else(|e| if e == Errno::ENOENT { Ok(()) } else { Err(e) })?),
        }
    }
}
