//! How much one client may ask while the server cannot keep up with all of them: what it can answer depends on the machine,
//! and a flood below [`Allowance::most`] fills the queue of a slow one all the same.

use std::time::{Duration, Instant};

/// How often it is looked at whether the server keeps up.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Questions a second that a client is left however busy the server is.
const LEAST: u32 = 50;

/// Questions a second of one client: halved after each [`INTERVAL`] in which the queue was never seen empty, and a
/// sixteenth more after each other one.
pub struct Allowance {
    most: u32,
    allowed: u32,
    kept_up: bool,
    looked: Instant,
}

impl Allowance {
    pub fn new(most: u32, now: Instant) -> Self {
        Self { most, allowed: most, kept_up: true, looked: now }
    }

    /// Nothing waits to be read.
    pub fn queue_is_empty(&mut self) {
        self.kept_up = true;
    }

    pub fn is_whole(&self) -> bool {
        self.allowed == self.most
    }

    pub fn a_second(&self) -> u32 {
        self.allowed
    }

    /// Whether an interval is over: what is allowed is for the next one then.
    pub fn look(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.looked) < INTERVAL {
            return false;
        }
        self.allowed = if self.kept_up { self.allowed + self.allowed / 16 + 1 } else { self.allowed / 2 };
        self.allowed = self.allowed.clamp(LEAST.min(self.most), self.most);
        (self.looked, self.kept_up) = (now, false);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_keep_up_allows_less_until_it_can() {
        let mut now = Instant::now();
        let mut allowance = Allowance::new(5_000, now);
        let mut after = |allowance: &mut Allowance, kept_up: bool| {
            if kept_up {
                allowance.queue_is_empty();
            }
            assert!(!allowance.look(now + INTERVAL / 2));
            now += INTERVAL;
            assert!(allowance.look(now));
            allowance.a_second()
        };
        // What came before the first look is not known.
        assert_eq!(after(&mut allowance, true), 5_000);
        assert_eq!([(); 3].map(|()| after(&mut allowance, false)), [2_500, 1_250, 625]);
        assert!(!allowance.is_whole());
        assert_eq!([(); 2].map(|()| after(&mut allowance, true)), [665, 707]);
        for _ in 0..20 {
            after(&mut allowance, false);
        }
        assert_eq!(allowance.a_second(), LEAST);
        for _ in 0..90 {
            after(&mut allowance, true);
        }
        assert!(allowance.is_whole());
    }
}
