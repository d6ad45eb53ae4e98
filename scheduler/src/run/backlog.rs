//! Whether there is more work than usual: a storm, in which events wait.

use std::time::Duration;
use tokio::time::Instant;

/// More pods in the active queue than this are a storm; fewer are bound in some ten milliseconds.
const QUEUED: usize = 64;
/// So many attempts within [`WINDOW`] are one too, however short the queue: those who create pods, or the deletion of
/// victims, may be what everything waits for.
const ATTEMPTS: usize = 20;
const WINDOW: Duration = Duration::from_millis(100);
/// How long a storm of attempts lasts after the last such window.
const BACKLOG_TTL: Duration = Duration::from_millis(300);

#[derive(Default)]
pub struct Backlog {
    /// The window's begin, and the attempts in it.
    window: Option<(Instant, usize)>,
    until: Option<Instant>,
}

impl Backlog {
    /// Counts an attempt to schedule a pod.
    pub fn attempted(&mut self, now: Instant) {
        let (begun, attempts) = self.window.filter(|(begun, _)| *begun + WINDOW > now).unwrap_or((now, 0));
        self.window = Some((begun, attempts + 1));
        if attempts + 1 >= ATTEMPTS {
            self.until = Some(now + BACKLOG_TTL);
        }
    }

    /// `queued` is how many pods can be scheduled now.
    pub fn is_storm(&self, queued: usize, now: Instant) -> bool {
        queued > QUEUED || self.ends(now).is_some()
    }

    /// When a storm of attempts is over, if there is one.
    pub fn ends(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_attempts_in_a_row_are_a_storm_until_they_end() {
        let (mut backlog, begun) = (Backlog::default(), Instant::now());
        for n in 0..100 {
            backlog.attempted(begun + WINDOW / 10 * n);
        }
        assert!(!backlog.is_storm(QUEUED, begun + WINDOW * 10), "ten in a window are none");
        assert!(backlog.is_storm(QUEUED + 1, begun), "a queue is one by itself");
        let now = begun + WINDOW * 20;
        (0..ATTEMPTS).for_each(|_| backlog.attempted(now));
        assert!(backlog.is_storm(0, now));
        assert_eq!(backlog.ends(now), Some(now + BACKLOG_TTL));
        assert!(!backlog.is_storm(0, now + BACKLOG_TTL));
    }
}
