//! Closed-loop load: a number of clients, each sending its next call when the last one was answered.

use crate::Error;
use crate::http::{Call, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// When a load ends: whichever comes first.
#[derive(Clone, Copy)]
pub struct Limit {
    pub time: Duration,
    pub calls: u64,
}

impl Limit {
    pub fn time(time: Duration) -> Self {
        Self { time, calls: u64::MAX }
    }
}

/// Every answered call's latency, sorted, and how long the whole took.
pub struct Answers {
    pub latencies: Vec<Duration>,
    pub elapsed: Duration,
}

impl Answers {
    pub fn per_second(&self) -> f64 {
        count(self.latencies.len()) / self.elapsed.as_secs_f64()
    }

    /// In milliseconds.
    pub fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.latencies, percent)
    }
}

/// Counts here stay far below 2^32, where `f64` is exact.
pub fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// The smallest value that at least `percent` of the sorted values do not exceed, in milliseconds; NaN of nothing.
pub fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(f64::NAN, |value| value.as_secs_f64() * 1000.0)
}

pub fn median(mut values: Vec<Duration>) -> f64 {
    values.sort_unstable();
    percentile(&values, 50)
}

/// Runs `clients` connections until the limit; `call` makes the `n`th call of all. The first refusal ends it with an
/// error. Connections are opened before the clock starts.
pub async fn closed_loop<F>(target: &Target, clients: usize, limit: Limit, call: F) -> Result<Answers, Error>
where
    F: Fn(u64) -> Call + Send + Sync + 'static,
{
    let call = Arc::new(call);
    let next = Arc::new(AtomicU64::new(0));
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(target.connect().await?);
    }
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for mut connection in connections {
        let (call, next) = (call.clone(), next.clone());
        workers.spawn(async move {
            let mut latencies = Vec::with_capacity(4096);
            while start.elapsed() < limit.time {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= limit.calls {
                    break;
                }
                let call = call(n);
                let sent = Instant::now();
                connection.call(call).await?;
                latencies.push(sent.elapsed());
            }
            Ok::<_, Error>(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(ended) = workers.join_next().await {
        latencies.extend(ended??);
    }
    let elapsed = start.elapsed();
    latencies.sort_unstable();
    Ok(Answers { latencies, elapsed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(millis: &[u64]) -> Vec<Duration> {
        millis.iter().map(|m| Duration::from_millis(*m)).collect()
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values = sorted(&[1, 2, 3, 4]);
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (2.0, 4.0));
        assert_eq!((percentile(&values, 0), percentile(&values, 100)), (1.0, 4.0));
        assert!(percentile(&[], 50).is_nan());
    }

    #[test]
    fn the_median_needs_no_order() {
        let values = vec![Duration::from_millis(9), Duration::from_millis(1), Duration::from_millis(5)];
        assert_eq!(median(values), 5.0);
    }
}
