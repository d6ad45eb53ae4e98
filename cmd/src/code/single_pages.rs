//! Has the kernel map of a file the one page that is touched, and not the fifteen around it.
//!
//! A mapping that a userfaultfd watches for writes is one that the kernel maps nothing ahead in (userfaultfd(2), the
//! asynchronous write protection of Linux 6.7). Nothing is ever protected here, so no fault is ever reported, and a page
//! is mapped as always; there are more faults, each of a page that the page cache holds, in well under two microseconds.

use nix::libc;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The interface's version; the kernel knows one.
const API: u64 = 0xAA;
/// Faults of the kernel itself are nothing to hear of, and hearing of them wants a right.
const USER_MODE_ONLY: libc::c_int = 1;
/// Write protection of mappings of any kind, resolved without anybody being asked.
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const MODE_WP: u64 = 1 << 1;
/// `_IOWR(0xAA, 0x3F, struct uffdio_api)` and `_IOWR(0xAA, 0x00, struct uffdio_register)`.
const UFFDIO_API: u32 = 0xC018_AA3F;
const UFFDIO_REGISTER: u32 = 0xC020_AA00;

/// Mappings are watched as long as this is there.
pub struct SinglePages(OwnedFd);

impl SinglePages {
    /// Nothing where the kernel cannot (before 6.7, on some architectures) or a sandbox keeps it from this process.
    pub fn open() -> Option<Self> {
        let fd = open()?;
        let mut api = [API, FEATURE_WP_ASYNC, 0];
        control(&fd, UFFDIO_API, &mut api).then_some(Self(fd))
    }

    /// Whether pages of `range` are mapped singly from now on. It is whole pages of this process's own mappings.
    pub fn keep(&self, range: &Range<usize>) -> bool {
        let mut register = [range.start as u64, range.len() as u64, MODE_WP, 0];
        control(&self.0, UFFDIO_REGISTER, &mut register)
    }
}

#[expect(unsafe_code, reason = "the system call has no safe form")]
fn open() -> Option<OwnedFd> {
    // SAFETY: the call takes flags alone and gives a descriptor that nobody else has, or an error.
    let fd =
        unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: as above.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[expect(unsafe_code, reason = "the system call has no safe form")]
fn control<const WORDS: usize>(fd: &OwnedFd, request: u32, argument: &mut [u64; WORDS]) -> bool {
    // SAFETY: both requests read and write a structure of 64-bit words, three and four, as the number says that names
    // them; the arrays are as long. Registering for write protection changes no page.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(request), argument.as_mut_ptr()) };
    done == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
    use std::num::NonZero;

    const LENGTH: usize = 1 << 20;
    const PAGE: usize = 4096;

    fn resident_kib(start: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own = maps.split_once(&format!("{start:x}-")).unwrap().1;
        let line = own.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Touches one page in sixteen.
    #[expect(unsafe_code, reason = "reads what it has mapped")]
    fn touched_kib(start: usize) -> usize {
        for at in (0..LENGTH).step_by(16 * PAGE) {
            // SAFETY: within the mapping, which lasts as long as the test.
            unsafe { std::ptr::with_exposed_provenance::<u8>(start + at).read_volatile() };
        }
        resident_kib(start)
    }

    #[test]
    #[expect(unsafe_code, reason = "maps a file of its own")]
    fn only_the_page_that_is_touched_is_mapped() {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, &vec![7; LENGTH]).unwrap();
        let length = NonZero::new(LENGTH).unwrap();
        // SAFETY: a new mapping of a file that nobody else has.
        let mapped =
            unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, &file, 0) }.unwrap();
        let start = mapped.as_ptr().expose_provenance();
        let before = touched_kib(start);
        let Some(single) = SinglePages::open() else {
            assert!(before > 0, "this kernel cannot");
            return;
        };
        assert!(single.keep(&(start..start + LENGTH)));
        // SAFETY: as above; nothing was written to it.
        unsafe { madvise(mapped, LENGTH, MmapAdvise::MADV_DONTNEED) }.unwrap();
        assert_eq!(resident_kib(start), 0);
        assert_eq!(touched_kib(start), LENGTH / 16 / 1024, "{before} KiB before");
        // SAFETY: as above.
        unsafe { munmap(mapped, LENGTH) }.unwrap();
    }
}
