//! Visiting all that lies below a directory, however containers rearrange it meanwhile.

use super::{Dir, Node, is_gone};
use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes of a path below one descriptor, after which the next descriptor is opened: the kernel takes no path of more than
/// 4096 (PATH_MAX), the last name of which may have 255.
const MAX_PATH: usize = 3500;
/// Directories that deep paths keep open at once. A process has 1024 descriptors where nobody raised that. With the longest
/// names directories may be nested 800 deep, with short ones a hundred thousand.
const MAX_OPEN: usize = 64;

/// How much a walk has seen.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    All,
    /// Some directories were nested too deep, and were left out.
    NotTheDeepest,
}

struct Base {
    dir: Dir,
    /// How many others it hangs on.
    depth: usize,
}

/// A directory to be read, relative to an open one.
struct Pending {
    base: Rc<Base>,
    path: PathBuf,
}

/// Visits the root, then everything below it, each directory before what is in it. What vanishes or becomes a link
/// meanwhile is left out, and so are other file systems and other mounts of the same.
///
/// # Errors
/// The first of `visit`, and what the kernel refuses.
pub fn walk(root: &Dir, mut visit: impl FnMut(&Node) -> io::Result<()>) -> io::Result<Reached> {
    visit(&root.itself()?)?;
    let base = Rc::new(Base { dir: root.dir(".")?, depth: 0 });
    let mut pending = vec![Pending { base, path: PathBuf::from(".") }];
    let mut reached = Reached::All;
    while let Some(next) = pending.pop() {
        let dir = match next.base.dir.dir(&next.path) {
            Err(error) if is_gone(&error) => continue,
            opened => opened?,
        };
        let Some(here) = rebased(next, &dir)? else {
            reached = Reached::NotTheDeepest;
            continue;
        };
        for entry in dir.entries()? {
            let name = entry?.file_name();
            let node = match dir.node(&name) {
                Err(error) if is_gone(&error) => continue,
                node => node?,
            };
            visit(&node)?;
            if node.is_dir() {
                pending.push(Pending { base: here.base.clone(), path: here.path.join(&name) });
            }
        }
    }
    Ok(reached)
}

/// The place again, from a descriptor of its own where its path has become long. `None`: there are too many of those.
fn rebased(place: Pending, dir: &Dir) -> io::Result<Option<Pending>> {
    if place.path.as_os_str().len() <= MAX_PATH {
        return Ok(Some(place));
    }
    let depth = place.base.depth + 1;
    if depth >= MAX_OPEN {
        return Ok(None);
    }
    let base = Rc::new(Base { dir: dir.dir(Path::new("."))?, depth });
    Ok(Some(Pending { base, path: PathBuf::from(".") }))
}

impl Reached {
    /// An error where something was left out.
    pub fn whole(self) -> io::Result<()> {
        match self {
            Self::All => Ok(()),
            Self::NotTheDeepest => Err(Errno::ENAMETOOLONG.into()),
        }
    }
}
