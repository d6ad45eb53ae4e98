//! The kernel's side: quotactl(2), by a descriptor, and the attributes of `linux/fs.h`. No library here has either.

use super::{Project, Projects, Quota};
use crate::beneath::Dir;
use nix::errno::Errno;
use nix::libc;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The file systems of this machine; setting anything needs CAP_SYS_ADMIN. Kernels before 5.14, which take no descriptor
/// of a file system, have none that holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxProjects;

/// The same on every architecture; not every libc names it.
const SYS_QUOTACTL_FD: libc::c_long = 443;
const PROJECTS: u32 = 2;
const GET_QUOTA: u32 = 0x0080_0007;
const SET_QUOTA: u32 = 0x0080_0008;
/// The state of quotas; in spite of its name not of xfs alone.
const GET_STATE: u32 = 0x5805;
/// Of [`State::flags`]: whether limits of projects are enforced.
const ENFORCED: u16 = 1 << 5;
/// Of [`Block::valid`]: the limits of space.
const LIMITS_OF_SPACE: u32 = 1;
/// In which limits are told.
const UNIT_BYTES: u64 = 1024;

/// `_IOR('X', 31, struct fsxattr)` and `_IOW('X', 32, struct fsxattr)`.
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;
/// New files and directories are of the directory's project.
const INHERITS: u32 = 0x200;

/// Only who has CAP_SYS_ADMIN on the machine may see or write it, which no container has that is not privileged.
const OWN_MARK: &CStr = c"trusted.coracle.project";

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct Block {
    hard_limit: u64,
    soft_limit: u64,
    used_bytes: u64,
    hard_inodes: u64,
    soft_inodes: u64,
    used_inodes: u64,
    grace: u64,
    inode_grace: u64,
    valid: u32,
    padding: u32,
}

/// `struct fs_quota_stat`, of which only the beginning is read.
#[repr(C)]
#[derive(Default)]
struct State {
    version: i8,
    flags: u16,
    rest: [u64; 16],
}

fn told(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[expect(unsafe_code, reason = "the system call has no safe form")]
fn quotactl<T>(dir: &Dir, command: u32, id: u32, data: &mut T) -> io::Result<()> {
    let fd: RawFd = dir.as_fd().as_raw_fd();
    // SAFETY: the kernel reads or writes one `T`, which has the command's form and outlives the call.
    told(unsafe {
        libc::syscall(SYS_QUOTACTL_FD, fd, (command << 8) | PROJECTS, id, std::ptr::from_mut(data))
    })
}

#[expect(unsafe_code, reason = "the system call has no safe form")]
fn attributes(dir: &Dir, request: u32, data: &mut Attributes) -> io::Result<()> {
    let fd: RawFd = dir.as_fd().as_raw_fd();
    // SAFETY: the kernel reads or writes one `Attributes`, as the request's number says, which outlives the call.
    told(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, std::ptr::from_mut(data)) })
}

fn block(dir: &Dir, id: u32) -> io::Result<Block> {
    let mut block = Block::default();
    match quotactl(dir, GET_QUOTA, id, &mut block) {
        // xfs knows nothing of a project that never had anything.
        Err(error) if is(&error, &[Errno::ENOENT]) => Ok(Block::default()),
        read => read.map(|()| block),
    }
}

fn is(error: &io::Error, errnos: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|raw| errnos.contains(&Errno::from_raw(raw)))
}

impl Projects for LinuxProjects {
    fn enforces(&self, dir: &Dir) -> bool {
        let mut state = State::default();
        quotactl(dir, GET_STATE, 0, &mut state).is_ok() && state.flags & ENFORCED != 0
    }

    fn project(&self, dir: &Dir) -> io::Result<Project> {
        let mut now = Attributes::default();
        attributes(dir, GET_XATTR, &mut now)?;
        Ok(Project { id: now.project, inherits: now.flags & INHERITS != 0 })
    }

    fn set_project(&self, dir: &Dir, project: Project) -> io::Result<()> {
        let mut now = Attributes::default();
        attributes(dir, GET_XATTR, &mut now)?;
        now.project = project.id;
        now.flags = if project.inherits { now.flags | INHERITS } else { now.flags & !INHERITS };
        attributes(dir, SET_XATTR, &mut now)
    }

    fn quota(&self, dir: &Dir, id: u32) -> io::Result<Quota> {
        let block = block(dir, id)?;
        let limit = block.hard_limit.saturating_mul(UNIT_BYTES);
        Ok(Quota { limit_bytes: limit, used_bytes: block.used_bytes, inodes: block.used_inodes })
    }

    fn set_limit(&self, dir: &Dir, id: u32, bytes: u64) -> io::Result<()> {
        let mut block =
            Block { hard_limit: bytes.div_ceil(UNIT_BYTES), valid: LIMITS_OF_SPACE, ..Block::default() };
        quotactl(dir, SET_QUOTA, id, &mut block)
    }

    #[expect(unsafe_code, reason = "the system call has no safe form")]
    fn mark(&self, dir: &Dir) -> io::Result<Option<u32>> {
        let (fd, mut id) = (dir.as_fd().as_raw_fd(), [0_u8; 4]);
        // SAFETY: the name ends in NUL, and the kernel writes at most as many bytes as there are.
        let read = unsafe { libc::fgetxattr(fd, OWN_MARK.as_ptr(), id.as_mut_ptr().cast(), id.len()) };
        match told(i64::try_from(read).unwrap_or(-1)) {
            Ok(()) => {
                Ok(usize::try_from(read).is_ok_and(|read| read == id.len()).then(|| u32::from_le_bytes(id)))
            }
            Err(error) if is(&error, &[Errno::ENODATA, Errno::EOPNOTSUPP]) => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[expect(unsafe_code, reason = "the system call has no safe form")]
    fn set_mark(&self, dir: &Dir, id: u32) -> io::Result<()> {
        let (fd, id) = (dir.as_fd().as_raw_fd(), id.to_le_bytes());
        // SAFETY: the name ends in NUL, and the kernel reads as many bytes as there are.
        told(unsafe { libc::fsetxattr(fd, OWN_MARK.as_ptr(), id.as_ptr().cast(), id.len(), 0) }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_kernels_form() {
        assert_eq!((size_of::<Attributes>(), size_of::<Block>()), (28, 72));
        assert_eq!(std::mem::offset_of!(State, flags), 2);
        assert_eq!(size_of::<Attributes>(), usize::try_from((GET_XATTR >> 16) & 0x3fff).unwrap());
    }

    /// Whatever the file system of this machine is, it is asked rightly: a project can be read where there are any.
    #[test]
    fn a_directory_without_quotas_is_no_error() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        if !LinuxProjects.enforces(&dir) {
            assert!(LinuxProjects.quota(&dir, 5).is_err(), "there is nothing to ask");
        }
        match LinuxProjects.project(&dir) {
            Ok(project) => assert_eq!((project.id, project.inherits), (0, false)),
            Err(error) => assert!(is(&error, &[Errno::ENOTTY, Errno::EOPNOTSUPP]), "{error}"),
        }
    }
}
