//! So many in a second, and some at once after a quiet time.

use std::time::Duration;
use tokio::time::Instant;

/// The default is upstream's of a kubelet's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// More than 0.
    pub per_second: u32,
    /// How many may go at once after a quiet time, at least 1.
    pub burst: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { per_second: 50, burst: 100 }
    }
}

/// Lets callers through at a pace.
#[derive(Debug)]
pub struct Paced {
    each: Duration,
    burst: Duration,
    /// When all that were let through would have gone one by one.
    gone: Instant,
}

impl Paced {
    pub fn new(pace: Pace) -> Self {
        let each = Duration::from_secs(1) / pace.per_second.max(1);
        Self { each, burst: each.saturating_mul(pace.burst.max(1) - 1), gone: Instant::now() }
    }

    /// Waits for the next turn. One that is cancelled has not had its turn.
    pub async fn turn(&mut self) {
        let ahead = self.gone.saturating_duration_since(Instant::now());
        let wait = ahead.saturating_sub(self.burst);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        self.gone = self.gone.max(Instant::now()) + self.each;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_one_by_one() {
        let mut paced = Paced::new(Pace { per_second: 2, burst: 3 });
        let start = Instant::now();
        let mut at = Vec::new();
        for _ in 0..5 {
            paced.turn().await;
            at.push(start.elapsed().as_millis());
        }
        assert_eq!(at, [0, 0, 0, 500, 1000]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let later = Instant::now();
        for _ in 0..3 {
            paced.turn().await;
        }
        assert!(later.elapsed().is_zero(), "a quiet time gives the burst back, and no more");
        paced.turn().await;
        assert_eq!(later.elapsed().as_millis(), 500);
    }
}
