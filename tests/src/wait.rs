//! Waiting for a condition.

use std::time::{Duration, Instant};

/// How often a condition is looked at again; most of them take a few hundred milliseconds.
const AGAIN: Duration = Duration::from_millis(50);

/// Asks `look` until it is content. `Err` carries the state that was seen.
///
/// # Panics
/// After `limit`, with the last state seen.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) if Instant::now() >= until => {
                panic!("{what}: not within {} s; last seen:\n{last}", limit.as_secs())
            }
            Err(_) => std::thread::sleep(AGAIN),
        }
    }
}
