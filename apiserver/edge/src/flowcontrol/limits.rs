//! How the server's seats are shared among the priority levels: nominally by their shares, and every ten seconds by
//! what they need, within what each lends and may borrow.
//!
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#priority-levels>

use super::config::Level;
use std::time::Duration;

/// Between two adjustments, as upstream.
pub const ADJUST_INTERVAL: Duration = Duration::from_secs(10);

/// How much of the smoothed demand is left after one period without it, as upstream: it halves in five minutes.
const SMOOTHING: f64 = 0.977;

/// Seats of a level, in whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    pub nominal: u32,
    /// What is left when everything that can be lent is lent.
    pub min: u32,
    pub max: u32,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn whole(seats: f64) -> u32 {
    seats.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// Seats of each level, from its shares.
pub fn nominal(total: u32, levels: &[&Level]) -> Vec<Seats> {
    let sum: f64 = levels.iter().map(|l| f64::from(l.shares)).sum::<f64>().max(1.0);
    levels
        .iter()
        .map(|level| {
            let nominal = whole((f64::from(total) * f64::from(level.shares) / sum).ceil());
            let part = |percent: u32| whole((f64::from(nominal) * f64::from(percent) / 100.0).round());
            let max = level.borrowing_percent.map_or(nominal.saturating_add(total), |p| nominal + part(p));
            Seats { nominal, min: nominal - part(level.lendable_percent).min(nominal), max }
        })
        .collect()
}

/// Demand for seats over a period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    from: Duration,
    last: Duration,
    area: f64,
    squares: f64,
    pub high: u32,
    pub average: f64,
    pub deviation: f64,
    pub smoothed: f64,
}

impl Demand {
    /// `seats` were in demand until `now`.
    pub fn advance(&mut self, now: Duration, seats: u32) {
        let passed = now.saturating_sub(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.area += f64::from(seats) * passed;
        self.squares += f64::from(seats) * f64::from(seats) * passed;
    }

    pub fn saw(&mut self, seats: u32) {
        self.high = self.high.max(seats);
    }

    /// Ends a period in which `seats` are in demand at last; returns its highest demand.
    pub fn close(&mut self, now: Duration, seats: u32) -> u32 {
        self.advance(now, seats);
        let passed = now.saturating_sub(self.from).as_secs_f64();
        if passed > 0.0 {
            self.average = self.area / passed;
            self.deviation = (self.squares / passed - self.average * self.average).max(0.0).sqrt();
            let envelope = self.average + self.deviation;
            // Periods without a single request are made up for.
            let periods = (passed / ADJUST_INTERVAL.as_secs_f64()).max(1.0);
            let kept = SMOOTHING.powf(periods);
            self.smoothed = if envelope >= self.smoothed {
                envelope
            } else {
                kept * self.smoothed + (1.0 - kept) * envelope
            };
        }
        (self.from, self.area, self.squares) = (now, 0.0, 0.0);
        std::mem::replace(&mut self.high, seats)
    }
}

/// What a level needs in the coming period.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub seats: Seats,
    pub high: u32,
    pub smoothed: f64,
}

/// Current limits: each level gets what it needed lately in the same proportion, at least what it does not lend and
/// at most what it may borrow, and together they have `total`.
pub fn share(total: u32, needs: &[Need]) -> Vec<u32> {
    let low: Vec<f64> =
        needs.iter().map(|n| f64::from(n.seats.min.max(n.seats.nominal.min(n.high)))).collect();
    let target: Vec<f64> = needs.iter().zip(&low).map(|(n, low)| n.smoothed.max(*low).max(0.01)).collect();
    let sum = |factor: f64| -> f64 { given(needs, &low, &target, factor).iter().sum() };
    let wanted = f64::from(total);
    let (mut from, mut to) = (0.0, 1.0);
    while sum(to) < wanted && to < 1e9 {
        to *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(from, to);
        if sum(middle) < wanted { from = middle } else { to = middle }
    }
    given(needs, &low, &target, to).iter().map(|seats| whole(seats.round())).collect()
}

fn given(needs: &[Need], low: &[f64], target: &[f64], factor: f64) -> Vec<f64> {
    let one = |(need, (low, target)): (&Need, (&f64, &f64))| {
        (target * factor).min(f64::from(need.seats.max)).max(*low)
    };
    needs.iter().zip(low.iter().zip(target)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(shares: u32, lendable: u32, borrowing: Option<u32>) -> Level {
        Level { shares, lendable_percent: lendable, borrowing_percent: borrowing, ..Level::default() }
    }

    #[test]
    fn shares_become_seats() {
        let levels = [level(30, 33, None), level(100, 90, Some(50)), level(5, 0, Some(0))];
        let seats = nominal(600, &levels.iter().collect::<Vec<_>>());
        assert_eq!(seats[0], Seats { nominal: 134, min: 134 - 44, max: 734 });
        assert_eq!(seats[1], Seats { nominal: 445, min: 445 - 401, max: 445 + 223 });
        assert_eq!(seats[2], Seats { nominal: 23, min: 23, max: 23 });
    }

    #[test]
    fn the_idle_lend_to_the_busy() {
        let seats = |nominal, min, max| Seats { nominal, min, max };
        let needs = [
            Need { seats: seats(100, 10, 700), high: 300, smoothed: 300.0 },
            Need { seats: seats(500, 100, 1100), high: 0, smoothed: 0.0 },
        ];
        let limits = share(600, &needs);
        assert_eq!(limits.iter().sum::<u32>(), 600);
        // In the proportion of 300 to the 100 that are never lent.
        assert_eq!(limits, [450, 150]);
        // What the lender needs comes back to it, up to its nominal seats.
        let back = [needs[0], Need { high: 450, smoothed: 450.0, ..needs[1] }];
        let limits = share(600, &back);
        assert!(limits[1] >= 450 && limits[0] >= 100, "{limits:?}");
    }

    #[test]
    fn nobody_borrows_beyond_the_limit() {
        let seats = |nominal, min, max| Seats { nominal, min, max };
        let needs = [
            Need { seats: seats(100, 100, 120), high: 500, smoothed: 500.0 },
            Need { seats: seats(500, 0, 1100), high: 0, smoothed: 0.0 },
        ];
        assert_eq!(share(600, &needs)[0], 120);
    }

    #[test]
    fn demand_rises_at_once_and_falls_slowly() {
        let mut demand = Demand::default();
        demand.advance(Duration::from_secs(5), 0);
        demand.saw(40);
        assert_eq!(demand.close(Duration::from_secs(10), 40), 40);
        assert!((demand.average - 20.0).abs() < 1e-9 && (demand.deviation - 20.0).abs() < 1e-9);
        assert!((demand.smoothed - 40.0).abs() < 1e-9);
        assert_eq!(demand.close(Duration::from_secs(20), 0), 40, "the high water mark begins where it ended");
        let before = demand.smoothed;
        demand.close(Duration::from_secs(30), 0);
        assert!(demand.smoothed < before && demand.smoothed > 0.9 * before);
    }
}
