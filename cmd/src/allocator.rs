//! The allocator's caches of threads that wait.
//!
//! Each thread keeps what it freed last, some megabytes after a burst, and gives of it back only as it goes on working. A
//! thread that waits does not, for as long as it waits.

use std::cell::Cell;
use std::ptr;
use std::time::{Duration, Instant};

/// A thread that waits again and again gives its cache back at most so often. To empty a full cache takes some ten
/// microseconds, and as much again to fill it.
const EVERY: Duration = Duration::from_millis(100);

thread_local! {
    static EMPTIED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// To be called by a thread that is about to wait for work.
pub fn give_back() {
    let now = Instant::now();
    let _ = EMPTIED.try_with(|emptied| {
        if emptied.get().is_none_or(|last| now.saturating_duration_since(last) >= EVERY) {
            empty();
            emptied.set(Some(now));
        }
    });
}

#[expect(
    unsafe_code,
    reason = "the allocator has no safe form of the call; it takes and writes nothing of ours"
)]
fn empty() {
    let (none, no_len) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the name ends with a zero, and `thread.tcache.flush` neither reads nor writes through the other pointers,
    // which are null as it asks for. An error means that this thread has no cache.
    unsafe { tikv_jemalloc_sys::mallctl(c"thread.tcache.flush".as_ptr(), none, no_len, ptr::null_mut(), 0) };
}
