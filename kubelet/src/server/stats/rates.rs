//! Cores in use, from a counter read twice.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Readings closer than this make no sensible rate: the one before is shown again.
const SHORTEST_NANOS: i64 = 1_000_000_000;
/// Over a longer time the rate would say nothing about now.
const LONGEST_NANOS: i64 = 300_000_000_000;

#[derive(Clone, Copy)]
struct Last {
    time_nanos: i64,
    cpu_nanos: u64,
    nano_cores: Option<u64>,
}

/// The last reading of each thing by its name.
#[derive(Default)]
pub struct Rates(Mutex<HashMap<String, Last>>);

impl Rates {
    /// Billionths of a core since the reading before; `None` at the first, and when the counter was set back.
    pub fn next(&self, name: &str, time_nanos: i64, cpu_nanos: u64) -> Option<u64> {
        let mut known = self.0.lock();
        let before = known.get(name).copied();
        if let Some(before) = before.filter(|b| time_nanos - b.time_nanos < SHORTEST_NANOS) {
            return before.nano_cores;
        }
        let nano_cores = before.and_then(|before| {
            let time = time_nanos.checked_sub(before.time_nanos).filter(|time| *time <= LONGEST_NANOS)?;
            let used = u128::from(cpu_nanos.checked_sub(before.cpu_nanos)?);
            u64::try_from(used * 1_000_000_000 / u128::try_from(time).ok()?).ok()
        });
        known.insert(name.to_owned(), Last { time_nanos, cpu_nanos, nano_cores });
        nano_cores
    }

    /// What has gone is not remembered.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.0.lock().retain(|name, _| keep(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readings_make_a_rate() {
        let (rates, second) = (Rates::default(), 1_000_000_000);
        assert_eq!(rates.next("n", second, 100), None);
        assert_eq!(rates.next("n", 3 * second, 1_000_000_100), Some(500_000_000));
        // Too soon for another one.
        assert_eq!(rates.next("n", 3 * second + 5, 9_000_000_000), Some(500_000_000));
        assert_eq!(rates.next("n", 5 * second, 0), None);
        assert_eq!(rates.next("n", 1000 * second, 50), None);
        rates.retain(|name| name != "n");
        assert_eq!(rates.next("n", 1001 * second, 50), None);
    }
}
