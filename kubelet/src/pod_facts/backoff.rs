//! Exponential back-off as the kubelet does it: the first repetition is free, then 10 s, doubled up to 300 s, and
//! forgotten after ten quiet minutes.

use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

const INITIAL: Duration = Duration::from_secs(10);
/// The longest pause; upstream's.
pub const MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug)]
struct Entry {
    delay: Duration,
    updated: Instant,
}

/// Back-off of several things, by name.
#[derive(Clone, Debug)]
pub struct Backoff {
    entries: HashMap<String, Entry>,
    max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::up_to(MAX)
    }
}

impl Backoff {
    /// With another longest pause, which may be the first one too.
    pub fn up_to(max: Duration) -> Self {
        Self { entries: HashMap::new(), max }
    }

    /// How long the thing that failed at `failed` must still wait, with the whole delay for messages.
    pub fn waiting(&self, key: &str, failed: Instant, now: Instant) -> Option<(Duration, Duration)> {
        let entry = self.entries.get(key).filter(|e| !expired(e, failed))?;
        let left = (failed + entry.delay).saturating_duration_since(now);
        (!left.is_zero()).then_some((left, entry.delay))
    }

    /// The thing is tried again: the next failure waits longer.
    pub fn next(&mut self, key: &str, now: Instant) {
        let delay = match self.entries.get(key).filter(|e| !expired(e, now)) {
            Some(entry) => (entry.delay * 2).min(self.max),
            None => INITIAL.min(self.max),
        };
        self.entries.insert(key.to_owned(), Entry { delay, updated: now });
    }

    pub fn reset(&mut self, key: &str) {
        self.entries.remove(key);
    }
}

fn expired(entry: &Entry, now: Instant) -> bool {
    now.saturating_duration_since(entry.updated) > 2 * MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_restart_is_free_and_the_rest_double() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        assert_eq!(backoff.waiting("c", now, now), None);
        let mut delays = Vec::new();
        for _ in 0..7 {
            backoff.next("c", now);
            let (left, delay) = backoff.waiting("c", now, now).unwrap();
            assert_eq!(left, delay);
            delays.push(delay.as_secs());
            now += delay;
            assert_eq!(backoff.waiting("c", now - delay, now), None);
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
        now += Duration::from_secs(601);
        assert_eq!(backoff.waiting("c", now, now), None, "ten quiet minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_pause_can_be_shorter() {
        let (mut backoff, now) = (Backoff::up_to(Duration::from_secs(4)), Instant::now());
        for _ in 0..3 {
            backoff.next("c", now);
            assert_eq!(backoff.waiting("c", now, now).unwrap().1, Duration::from_secs(4));
        }
    }
}
