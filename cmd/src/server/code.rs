//! Hands the code that only the start needed back to the system.
//!
//! A page of the program's file counts as the process's own from the first touch on, and the kernel maps fifteen
//! neighbours with it: after the start that is most of the binary, while an idle node runs through little of it. What is
//! needed again comes from the page cache, without the disk as long as that holds it.

use nix::sys::mman::{MmapAdvise, madvise};
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// By then every component has started.
const SETTLED: Duration = Duration::from_secs(10);

/// Waits until the start is over, and hands back once.
pub async fn hand_back(stop: CancellationToken) {
    if stop.run_until_cancelled(tokio::time::sleep(SETTLED)).await.is_none() {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    ranges(&maps, &program).for_each(release);
}

/// The executable mappings of the program's file: nobody ever writes there, so they are as the file has them.
fn ranges<'m>(maps: &'m str, program: &Path) -> impl Iterator<Item = Range<usize>> + use<'m> {
    let program = program.to_string_lossy().into_owned();
    maps.lines().filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next()?, fields.next()?);
        if rights != "r-xp" || fields.nth(3)? != program {
            return None;
        }
        let (from, to) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(address(from)?..address(to)?)
    })
}

#[expect(
    unsafe_code,
    reason = "the system call has no safe form; the pages are read-only and backed by their file"
)]
fn release(range: Range<usize>) {
    let Some(start) = NonNull::new(std::ptr::without_provenance_mut(range.start)) else { return };
    // SAFETY: the range is a read-only private mapping of the program's file as the kernel has just listed it. Dropped
    // pages are read from the file again when they are touched, with what they held.
    if let Err(error) = unsafe { madvise(start, range.len(), MmapAdvise::MADV_DONTNEED) } {
        tracing::debug!(%error, "code not handed back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_named() {
        let maps = "1000-2000 r--p 00000000 08:00 7   /bin/a\n2000-5000 r-xp 00001000 08:00 7   /bin/a\n\
                    5000-6000 rw-p 00004000 08:00 7   /bin/a\n7000-8000 r-xp 00000000 08:00 8   /lib/c.so\n\
                    9000-a000 rw-p 00000000 00:00 0\n";
        let found: Vec<_> = ranges(maps, Path::new("/bin/a")).map(|range| (range.start, range.end)).collect();
        assert_eq!(found, [(0x2000, 0x5000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_program_goes_on_afterwards() {
        hand_back(CancellationToken::new()).await;
        assert_eq!(ranges("", Path::new("")).count(), 0);
    }
}
