//! Sizes that hold: a directory is given a project of its file system's, and the project a limit (ext4, xfs).
//!
//! Which numbers are taken is what the kernel says: one that has files is somebody's. So two directories never share one,
//! whoever else gives numbers on the same file system, and a number is free again when the last file of it is gone. A
//! directory's own number is written beside it where no container can change it.
//!
//! The owner of a file may give it another project, unless its process is in a user namespace of its own (Linux keeps it
//! from that): a quota holds against what goes wrong, not against who is set on it. `sizeLimit: file` does.

mod kernel;

pub use kernel::LinuxProjects;

use crate::beneath::Dir;
use std::io;
use std::path::Path;

/// The project of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// Zero is no project.
    pub id: u32,
    /// Whether what is made in it is of the same project.
    pub inherits: bool,
}

/// What a project has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Zero is no limit.
    pub limit_bytes: u64,
    pub used_bytes: u64,
    pub inodes: u64,
}

/// The quotas of the file system that a directory lies on, as a port. Short system calls.
pub trait Projects: Send + Sync {
    /// Whether limits of projects hold there.
    fn enforces(&self, dir: &Dir) -> bool;
    fn project(&self, dir: &Dir) -> io::Result<Project>;
    /// What is in the directory already keeps its own.
    fn set_project(&self, dir: &Dir, project: Project) -> io::Result<()>;
    fn quota(&self, dir: &Dir, id: u32) -> io::Result<Quota>;
    /// Zero takes the limit away. Less than is used already lets nothing more be written.
    fn set_limit(&self, dir: &Dir, id: u32, bytes: u64) -> io::Result<()>;
    /// The number that was given to this directory.
    fn mark(&self, dir: &Dir) -> io::Result<Option<u32>>;
    fn set_mark(&self, dir: &Dir, id: u32) -> io::Result<()>;
}

/// Where no file system has quotas.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProjects;

impl Projects for NoProjects {
    fn enforces(&self, _: &Dir) -> bool {
        false
    }
    fn project(&self, _: &Dir) -> io::Result<Project> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn set_project(&self, _: &Dir, _: Project) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn quota(&self, _: &Dir, _: u32) -> io::Result<Quota> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn set_limit(&self, _: &Dir, _: u32, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn mark(&self, _: &Dir) -> io::Result<Option<u32>> {
        Ok(None)
    }
    fn set_mark(&self, _: &Dir, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Numbers of ours: above those that people, upstream's kubelet (from 1048577) and container runtimes give.
const FIRST: u32 = 1 << 30;
const COUNT: u32 = 1 << 30;
/// Numbers that are tried for one directory. Each that is in use is a directory of ours, and they are spread.
const TRIES: u32 = 4096;

/// Whether sizes hold below this path, which need not be there yet. Not where somebody's quota holds for all of it: files
/// do not move from one project to another by rename(2).
pub fn can_hold(kernel: &dyn Projects, path: &Path) -> bool {
    let there = path.ancestors().find(|path| path.is_dir()).map(Dir::open);
    let Some(Ok(there)) = there else { return false };
    kernel.enforces(&there) && kernel.project(&there).is_ok_and(|project| !project.inherits)
}

/// Lets nothing below the directory take more than so many bytes, rounded up to a kibibyte. Idempotent, and changes the
/// limit of one that is held already. The first time it is to be empty: what is in it does not count.
pub fn hold(kernel: &dyn Projects, dir: &Dir, bytes: u64) -> io::Result<()> {
    let bytes = bytes.max(1);
    let id = match kernel.mark(dir)? {
        Some(id) => id,
        None => return allot(kernel, dir, bytes),
    };
    let wanted = Project { id, inherits: true };
    // A container that owns the directory may have given it away.
    if kernel.project(dir)? != wanted {
        kernel.set_project(dir, wanted)?;
    }
    kernel.set_limit(dir, id, bytes)
}

/// The limit is there before the project is, and the mark last: whoever dies meanwhile leaves a limit of a number that
/// nobody has, which is as good as none.
fn allot(kernel: &dyn Projects, dir: &Dir, bytes: u64) -> io::Result<()> {
    let inode = dir.itself()?.inode();
    for id in numbers(inode).take(TRIES as usize) {
        if kernel.quota(dir, id)?.inodes > 0 {
            continue;
        }
        kernel.set_limit(dir, id, bytes)?;
        kernel.set_project(dir, Project { id, inherits: true })?;
        // Somebody else may have found it free at the same time: then both see two, and both go on.
        if kernel.quota(dir, id)?.inodes == 1 {
            return kernel.set_mark(dir, id);
        }
        kernel.set_project(dir, Project::default())?;
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "no number of a project is free"))
}

/// Where a directory looks for a number: each begins elsewhere, for no two have the same inode.
fn numbers(inode: u64) -> impl Iterator<Item = u32> {
    // An odd step comes to every number before it comes to one again.
    let (at, step) = (inode % u64::from(COUNT), (inode / u64::from(COUNT) % u64::from(COUNT)) | 1);
    (0_u64..).map_while(move |round| {
        let offset = at.wrapping_add(round.wrapping_mul(step)) % u64::from(COUNT);
        u32::try_from(offset).ok().map(|offset| FIRST + offset)
    })
}

/// What a held directory has; `None` of one that is not held.
pub fn held(kernel: &dyn Projects, path: &Path) -> Option<Quota> {
    let dir = Dir::open(path).ok()?;
    let id = kernel.mark(&dir).ok()??;
    kernel.quota(&dir, id).ok().filter(|quota| quota.limit_bytes > 0)
}

/// The numbers of the directories at these paths, to be given back by [`release`] once they are removed.
pub fn marks<'a>(kernel: &dyn Projects, paths: impl IntoIterator<Item = &'a Path>) -> Vec<u32> {
    let mark = |path: &Path| kernel.mark(&Dir::open(path).ok()?).ok()?;
    paths.into_iter().filter_map(mark).collect()
}

/// Takes the limits of these numbers away. `place` lies on their file system. One that is not taken away is taken over by
/// the next directory that finds it, so nobody waits for it.
pub fn release(kernel: &dyn Projects, place: &Path, ids: &[u32]) {
    let Ok(dir) = Dir::open(place) else { return };
    for id in ids {
        if let Err(error) = kernel.set_limit(&dir, *id, 0) {
            tracing::debug!(id, %error, place = %place.display(), "the limit of a removed volume is still there");
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
