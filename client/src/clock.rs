//! Steps of the wall clock: a box without a battery-backed clock starts in the past and is set right later, and one
//! that slept wakes up hours later.
//!
//! Timers run on the monotonic clock, so whatever waits for a time of the wall clock (a TTL, a deadline, the end of a
//! token) waits too long or too short after a step. Whoever computed such a wait computes it anew when
//! [`count`] has changed.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often the two clocks are compared: the longest that a step goes unnoticed. A look costs microseconds.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// Differences up to this are the clock being slewed, or a busy machine.
const JUMP_LIMIT: Duration = Duration::from_secs(2);

static STEPS: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::channel(0).0);

/// How many steps this process has noticed.
pub fn count() -> u64 {
    *STEPS.borrow()
}

/// Tells of every further step.
pub fn steps() -> watch::Receiver<u64> {
    STEPS.subscribe()
}

/// Counts a step.
pub fn announce() {
    STEPS.send_modify(|count| *count += 1);
}

/// Looks for steps until `stop`; once a process.
pub async fn watch(stop: CancellationToken) {
    let mut last = (SystemTime::now(), Instant::now());
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_some() {
        let now = (SystemTime::now(), Instant::now());
        let (wall, steady) = std::mem::replace(&mut last, now);
        if let Some(step) = step(wall, now.0, now.1 - steady) {
            tracing::warn!(
                seconds = step,
                "the clock was set; looking again at everything that waits for a time"
            );
            announce();
        }
    }
}

/// By how many seconds the wall clock was set while `steady` passed, if it was.
fn step(before: SystemTime, after: SystemTime, steady: Duration) -> Option<f64> {
    let expected = before + steady;
    let seconds = match after.duration_since(expected) {
        Ok(ahead) => ahead.as_secs_f64(),
        Err(behind) => -behind.duration().as_secs_f64(),
    };
    (seconds.abs() > JUMP_LIMIT.as_secs_f64()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_what_the_steady_clock_does_not_explain() {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let at = |seconds| noon + Duration::from_secs(seconds);
        assert_eq!(step(noon, at(15), Duration::from_secs(15)), None);
        assert_eq!(step(noon, at(16), Duration::from_secs(15)), None);
        assert_eq!(step(noon, at(86_415), Duration::from_secs(15)), Some(86_400.0));
        assert_eq!(step(at(86_400), at(15), Duration::from_secs(15)), Some(-86_400.0));
    }
}
