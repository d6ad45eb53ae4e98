//! Hands code back to the system that only the start or a burst needed.
//!
//! A page of the program's file counts as the process's own from the first touch on, and the kernel maps fifteen
//! neighbours with it: after the start that is most of the binary, while an idle node runs through little of it. The same
//! holds for its constants and unwind tables. What is needed again comes from the page cache, without the disk as long as
//! that holds it, and without its neighbours where the kernel can do that ([`single_pages`]).

mod single_pages;

use self::single_pages::SinglePages;
use nix::sys::mman::{MmapAdvise, madvise};
use nix::sys::resource::{UsageWho, getrusage};
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// By then every component has started.
const SETTLE_DELAY: Duration = Duration::from_secs(10);

/// How often it is looked whether a burst is over: the second look after it finds that it is. A look takes microseconds.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// So much more than after it was handed back last is worth handing back again: what comes back is some hundred page
/// faults, a millisecond together.
const GROWTH_BYTES: u64 = 4 << 20;

/// The most looks between two times: ten minutes.
const MAX_PATIENCE: u32 = 63;

/// A process that has worked for more of the time has its burst still.
const BUSY_PERCENT: u128 = 10;

/// Hands back once the start is over, and then whenever a burst is.
pub async fn hand_back(stop: CancellationToken) {
    if stop.run_until_cancelled(tokio::time::sleep(SETTLE_DELAY)).await.is_none() {
        return;
    }
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    let _single = single_pages(&program);
    release_all(&program);
    let (mut looks, mut worked) = (Looks::default(), worked());
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_some() {
        let now = self::worked();
        if looks.is_over(mapped_bytes(), now.saturating_sub(worked)) {
            release_all(&program);
        }
        worked = now;
    }
}

/// What the looks have seen.
#[derive(Default)]
struct Looks {
    /// The least that was ever mapped while little was done.
    least: Option<u64>,
    /// Whether the last look found the process busy.
    busy: bool,
    /// Looks that are still to pass before anything is handed back again.
    waiting: u32,
    /// How many are to pass the next time: what was handed back in vain is left longer and longer.
    patience: u32,
}

impl Looks {
    /// Whether code is to be handed back: a burst mapped it and is over; `worked` is the CPU time since the last look.
    fn is_over(&mut self, mapped: u64, worked: Duration) -> bool {
        let was_busy = std::mem::replace(
            &mut self.busy,
            worked.as_millis() * 100 > LOOK_INTERVAL.as_millis() * BUSY_PERCENT,
        );
        if self.busy {
            (self.waiting, self.patience) = (0, 0);
            return false;
        }
        let least = self.least.map_or(mapped, |least| least.min(mapped));
        self.least = Some(least);
        let grown = mapped > least + GROWTH_BYTES;
        if !grown && self.waiting == 0 {
            self.patience = 0;
        }
        let over = was_busy || (grown && self.waiting == 0);
        self.waiting = if over { self.patience } else { self.waiting.saturating_sub(1) };
        self.patience = if over { (2 * self.patience + 1).min(MAX_PATIENCE) } else { self.patience };
        over
    }
}

/// CPU time of the process.
fn worked() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let micros = [usage.user_time(), usage.system_time()].map(|t| t.tv_sec() * 1_000_000 + t.tv_usec());
    Duration::from_micros(micros.into_iter().sum::<i64>().unsigned_abs())
}

/// Of files, in memory, counted as this process's own.
fn mapped_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// From now on each page of the program that is touched comes alone; before, a start is quicker with its neighbours.
fn single_pages(program: &Path) -> Option<SinglePages> {
    let pages = SinglePages::open();
    if pages.is_none() {
        tracing::debug!("this kernel maps neighbours of the program's pages, too");
    }
    let pages = pages?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let kept = ranges(&maps, program).filter(|range| pages.keep(range)).count();
    tracing::debug!(kept, "pages of the program come singly");
    Some(pages)
}

fn release_all(program: &Path) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    ranges(&maps, program).for_each(release);
}

/// The mappings of the program's file where nobody ever writes, so that they are as the file has them: its code, and the
/// constants at its beginning. Other mappings that can only be read were written when addresses were put into them.
fn ranges<'m>(maps: &'m str, program: &Path) -> impl Iterator<Item = Range<usize>> + use<'m> {
    let program = program.to_string_lossy().into_owned();
    maps.lines().filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let untouched = rights == "r-xp" || (rights == "r--p" && offset.bytes().all(|digit| digit == b'0'));
        if !untouched || fields.nth(2)? != program {
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
                    5000-6000 r--p 00004000 08:00 7   /bin/a\n6000-7000 rw-p 00005000 08:00 7   /bin/a\n7000-8000 r-xp 00000000 08:00 8   /lib/c.so\n\
                    9000-a000 rw-p 00000000 00:00 0\n";
        let found: Vec<_> = ranges(maps, Path::new("/bin/a")).map(|range| (range.start, range.end)).collect();
        assert_eq!(found, [(0x1000, 0x2000), (0x2000, 0x5000)]);
    }

    #[test]
    fn a_burst_is_over_when_code_was_mapped_and_little_is_done() {
        let (mut looks, idle, busy) = (Looks::default(), Duration::from_millis(500), Duration::from_secs(9));
        let mut over = |mib: u64, worked| looks.is_over(mib << 20, worked);
        assert!(!over(20, idle), "what an idle process needs is known after the first look only");
        assert!(!over(23, idle) && over(25, idle), "a short burst");
        assert!(!over(21, idle) && !over(21, idle));
        assert!(!over(60, busy) && !over(60, busy));
        assert!(over(60, idle), "a long one, in which it was never seen idle");
        assert!(!over(21, idle) && !over(24, idle), "what is needed at rest stays");
    }

    #[test]
    fn what_comes_back_is_handed_back_again_later_and_later() {
        let (mut looks, idle) = (Looks::default(), Duration::from_millis(500));
        assert!(!looks.is_over(20 << 20, idle));
        let mut times = (1..=300u32).filter(|_| looks.is_over(30 << 20, idle)).count();
        assert!((7..=11).contains(&times), "{times} times");
        looks.is_over(20 << 20, idle);
        for _ in 0..MAX_PATIENCE {
            looks.is_over(20 << 20, idle);
        }
        times = (1..=10).filter(|_| looks.is_over(30 << 20, idle)).count();
        assert_eq!(times, 4, "after a rest it begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn the_program_goes_on_afterwards() {
        let before = mapped_bytes();
        assert!(before > 0 && worked() > Duration::ZERO);
        let stop = CancellationToken::new();
        let handing = tokio::spawn(hand_back(stop.clone()));
        tokio::time::sleep(SETTLE_DELAY + 3 * LOOK_INTERVAL).await;
        stop.cancel();
        handing.await.unwrap();
        let after = mapped_bytes();
        assert!(after < before, "of {before} bytes of files {after} are mapped still");
    }
}
