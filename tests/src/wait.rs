//! Waiting for a condition.

use std::time::{Duration, Instant};

/// First and longest pause between two looks. Most conditions take a few hundred milliseconds; those that take longer are
/// looked at less often, because looks cost processor time that what is waited for needs.
const AGAIN: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_millis(500);

/// Asks `look` until it is content. `Err` carries the state that was seen.
///
/// # Panics
/// After `limit`, with the last state seen.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) if began.elapsed() >= limit => {
                panic!("{what}: not within {} s; last seen:\n{last}", limit.as_secs())
            }
            Err(_) => std::thread::sleep((began.elapsed() / 8).clamp(AGAIN, MOST)),
        }
    }
}
