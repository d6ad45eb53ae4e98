//! Counters, gauges and histograms with labels, in the text format of Prometheus.
//!
//! Recording in a series that exists takes a shared lock and a hash of the borrowed label values: nothing is allocated.

use crate::Text;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Series of one family; recordings beyond are counted in one series whose label values are all `other`, so that a
/// label which turns out to be unbounded cannot eat the memory.
const MOST_SERIES: usize = 10_000;
const OVERFLOW: &str = "other";

/// One kind of measurement.
pub trait Metric: Send + Sync {
    /// `counter`, `gauge` or `histogram`.
    const KIND: &'static str;

    fn render(&self, name: &str, labels: &[(&str, &str)], text: &mut Text);
}

/// Only ever goes up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Metric for Counter {
    const KIND: &'static str = "counter";

    fn render(&self, name: &str, labels: &[(&str, &str)], text: &mut Text) {
        text.sample(name, labels, self.get());
    }
}

#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn add(&self, by: i64) {
        self.0.fetch_add(by, Relaxed);
    }

    pub fn set(&self, to: i64) {
        self.0.store(to, Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

impl Metric for Gauge {
    const KIND: &'static str = "gauge";

    fn render(&self, name: &str, labels: &[(&str, &str)], text: &mut Text) {
        text.sample(name, labels, self.get());
    }
}

/// Durations in buckets, given by their upper bounds in seconds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last takes what is above all of them.
    buckets: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
    /// How often the sum began again at zero, every 584 years of seconds or 18 GB of bytes.
    sum_overflows: AtomicU64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum_nanos: AtomicU64::new(0), sum_overflows: AtomicU64::new(0) }
    }

    pub fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let before = self.sum_nanos.fetch_add(nanos, Relaxed);
        if before.checked_add(nanos).is_none() {
            self.sum_overflows.fetch_add(1, Relaxed);
        }
    }

    /// For histograms of other things than time: a whole number of what the bounds are in.
    pub fn observe_number(&self, number: u64) {
        self.observe(Duration::from_secs(number));
    }

    fn sum(&self) -> f64 {
        let rest = Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64();
        let whole = Duration::from_nanos(u64::MAX).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let overflows = self.sum_overflows.load(Relaxed) as f64;
        overflows.mul_add(whole, rest)
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }
}

impl Metric for Histogram {
    const KIND: &'static str = "histogram";

    fn render(&self, name: &str, labels: &[(&str, &str)], text: &mut Text) {
        let (bucket, sum, count) = (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
        let mut total = 0;
        let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, held) in bounds.zip(&self.buckets) {
            total += held.load(Relaxed);
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            text.sample(&bucket, &labels, total);
        }
        text.sample(&sum, labels, self.sum());
        text.sample(&count, labels, total);
    }
}

struct Series<M> {
    values: Box<[Box<str>]>,
    metric: Arc<M>,
}

/// A metric with labels.
pub struct Family<M> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    make: Box<dyn Fn() -> M + Send + Sync>,
    series: RwLock<All<M>>,
}

type All<M> = HashMap<u64, Vec<Series<M>>, BuildHasherDefault<Hashed>>;

/// What is a hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A quick hash of label values: a write passes some fifty families. Who gives names to resources so that they collide
/// makes their series slower to find, no more than [`MOST_SERIES`] of them.
fn hash_of(values: &[&str]) -> u64 {
    /// From the golden ratio, as in the hash tables of Firefox.
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
    let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    let mut hash = 0;
    for value in values {
        for chunk in value.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash, u64::from_le_bytes(word));
        }
        hash = mix(hash, value.len() as u64);
    }
    hash ^ hash >> 32
}

impl<M: Metric> Family<M> {
    pub fn new(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        make: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        Self { name, help, labels, make: Box::new(make), series: RwLock::default() }
    }

    /// Gives `record` the series with these label values, in the order of the family's labels. Missing values count
    /// as empty, surplus ones are left out.
    pub fn with<R>(&self, values: &[&str], record: impl FnOnce(&M) -> R) -> R {
        let values = &values[..values.len().min(self.labels.len())];
        let hash = hash_of(values);
        if let Some(series) = find(&self.series.read(), hash, values) {
            return record(&series.metric);
        }
        record(&self.entered(hash, values))
    }

    /// The series with these label values, for whoever records in it often.
    pub fn handle(&self, values: &[&str]) -> Arc<M> {
        let values = &values[..values.len().min(self.labels.len())];
        let hash = hash_of(values);
        let found = find(&self.series.read(), hash, values).map(|series| series.metric.clone());
        found.unwrap_or_else(|| self.entered(hash, values))
    }

    fn entered(&self, hash: u64, values: &[&str]) -> Arc<M> {
        self.entered_in(&mut self.series.write(), hash, values)
    }

    fn entered_in(&self, all: &mut All<M>, hash: u64, values: &[&str]) -> Arc<M> {
        if all.len() >= MOST_SERIES && find(all, hash, values).is_none() {
            let values = vec![OVERFLOW; self.labels.len()];
            let hash = hash_of(&values);
            return self.enter(all, hash, &values).clone();
        }
        self.enter(all, hash, values).clone()
    }

    fn enter<'a>(&self, all: &'a mut All<M>, hash: u64, values: &[&str]) -> &'a Arc<M> {
        let bucket = all.entry(hash).or_default();
        let at = bucket.iter().position(|series| same(series, values)).unwrap_or_else(|| {
            let values = values.iter().map(|value| Box::from(*value)).collect();
            bucket.push(Series { values, metric: Arc::new((self.make)()) });
            bucket.len() - 1
        });
        &bucket[at].metric
    }

    /// Drops the series whose label values, in the order of the family's labels, are not to be kept, and the room that
    /// they took.
    pub fn retain(&self, keep: impl Fn(&[Box<str>]) -> bool) {
        let mut all = self.series.write();
        all.retain(|_, bucket| {
            bucket.retain(|series| keep(&series.values));
            !bucket.is_empty()
        });
        if all.capacity() > 4 * all.len() {
            all.shrink_to_fit();
        }
    }

    /// Writes all series, in the order of their labels, and nothing where there is none.
    pub fn render(&self, text: &mut Text) {
        if !self.series.read().is_empty() {
            self.render_with_head(text);
        }
    }

    /// As [`render`](Self::render), the head also where there is no series.
    pub fn render_with_head(&self, text: &mut Text) {
        text.head(self.name, self.help, M::KIND);
        self.each(|labels, metric| metric.render(self.name, labels, text));
    }

    /// Shows all series, in the order of their labels.
    pub fn each(&self, mut show: impl FnMut(&[(&str, &str)], &M)) {
        let all = self.series.read();
        let mut sorted: Vec<&Series<M>> = all.values().flatten().collect();
        sorted.sort_by_key(|series| &series.values);
        for series in sorted {
            let labels: Vec<(&str, &str)> =
                self.labels.iter().copied().zip(series.values.iter().map(|value| &**value)).collect();
            show(&labels, &series.metric);
        }
    }
}

impl Family<Gauge> {
    /// Adds to a series, and drops it where it comes to zero: nothing is left of a namespace, once all that was counted in it
    /// has gone.
    pub fn count(&self, values: &[&str], by: i64) {
        let values = &values[..values.len().min(self.labels.len())];
        let hash = hash_of(values);
        let mut all = self.series.write();
        let gauge = self.entered_in(&mut all, hash, values);
        gauge.add(by);
        if gauge.get() != 0 {
            return;
        }
        if let Some(bucket) = all.get_mut(&hash) {
            bucket.retain(|series| !Arc::ptr_eq(&series.metric, &gauge));
            if bucket.is_empty() {
                all.remove(&hash);
            }
        }
    }
}

fn find<'a, M>(all: &'a All<M>, hash: u64, values: &[&str]) -> Option<&'a Series<M>> {
    all.get(&hash)?.iter().find(|series| same(series, values))
}

fn same<M>(series: &Series<M>, values: &[&str]) -> bool {
    series.values.iter().map(|value| &**value).eq(values.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn what_is_counted_no_more_has_no_series() {
        let family = Family::new("held", "Held.", &["namespace"], Gauge::default);
        for (namespace, by) in [("a", 2), ("b", 1), ("a", -1), ("b", -1)] {
            family.count(&[namespace], by);
        }
        let mut shown = Vec::new();
        family.each(|labels, gauge| shown.push((labels[0].1.to_owned(), gauge.get())));
        assert_eq!(shown, [("a".to_owned(), 1)]);
        assert_eq!(family.series.read().len(), 1);
    }

    #[test]
    fn labels_are_told_apart() {
        let words =
            ["", "a", "b", "ab", "pods", "CREATE", "UPDATE", "configmaps", "apiserver_request", "123456789"];
        let mut seen = HashSet::new();
        for one in words {
            for two in words {
                for three in words {
                    assert!(seen.insert(hash_of(&[one, two, three])), "{one} {two} {three}");
                }
            }
        }
        assert_ne!(hash_of(&["ab", "c"]), hash_of(&["a", "bc"]));
    }
}
