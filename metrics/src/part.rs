//! The metrics of one component, listed in one place with [`metric_families!`](crate::metric_families).

use crate::{Counter, Family, Gauge, Histogram, Text};
use std::marker::PhantomData;
use std::time::Duration;

/// The upper bounds of a histogram's buckets.
pub type Buckets = &'static [f64];

/// What a family holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One family as its component describes it.
#[derive(Debug)]
pub struct Description {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// None for counters and gauges.
    pub buckets: Buckets,
}

/// The families of a component, in the order of the page.
pub trait Families: Copy + 'static {
    const ALL: &'static [Self];

    fn description(self) -> &'static Description;
    /// Its place in [`ALL`](Self::ALL).
    fn index(self) -> usize;
}

/// So many bounds, the first as given and each the factor times the one before, as upstream computes them.
#[must_use]
pub const fn exponential<const N: usize>(first: f64, factor: f64) -> [f64; N] {
    let mut bounds = [first; N];
    let mut at = 1;
    while at < N {
        bounds[at] = bounds[at - 1] * factor;
        at += 1;
    }
    bounds
}

/// Makes the enum `Metric` with a variant for each family. What is given first stands in front of every name:
/// `"kubelet_"; Variant = counter "name" [labels], help;` and for histograms `histogram(first, factor, number) "name" …`, or
/// `histogram{BOUNDS} "name" …` where they follow no factor.
#[macro_export]
macro_rules! metric_families {
    ($prefix:literal; $($id:ident = $kind:ident $(($first:literal, $factor:literal, $number:literal))? $({$bounds:expr})?
        $name:literal [$($label:literal),*], $help:literal;)*) => {
        /// The families, in the order of the page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($id),* }

        impl $crate::Families for Metric {
            const ALL: &'static [Self] = &[$(Self::$id),*];

            fn index(self) -> usize {
                self as usize
            }

            fn description(self) -> &'static $crate::Description {
                match self { $(Self::$id => {
                    const DESCRIPTION: $crate::Description = $crate::Description {
                        name: concat!($prefix, $name),
                        help: $help,
                        kind: $crate::metric_families!(@kind $kind),
                        labels: &[$($label),*],
                        buckets: $crate::metric_families!(@buckets $($first, $factor, $number)? $({$bounds})?),
                    };
                    &DESCRIPTION
                })* }
            }
        }
    };
    (@kind counter) => { $crate::Kind::Counter };
    (@kind gauge) => { $crate::Kind::Gauge };
    (@kind histogram) => { $crate::Kind::Histogram };
    (@buckets) => { &[] };
    (@buckets {$bounds:expr}) => { $bounds };
    (@buckets $first:literal, $factor:literal, $number:literal) => {
        &$crate::exponential::<$number>($first, $factor)
    };
}

enum Recorder {
    Counter(Family<Counter>),
    Gauge(Family<Gauge>),
    Histogram(Family<Histogram>),
}

impl Recorder {
    fn new(of: &'static Description) -> Self {
        let (name, help, labels, buckets) = (of.name, of.help, of.labels, of.buckets);
        match of.kind {
            Kind::Counter => Self::Counter(Family::new(name, help, labels, Counter::default)),
            Kind::Gauge => Self::Gauge(Family::new(name, help, labels, Gauge::default)),
            Kind::Histogram => {
                Self::Histogram(Family::new(name, help, labels, move || Histogram::new(buckets)))
            }
        }
    }
}

/// The figures of a component.
pub struct Metrics<M> {
    recorders: Vec<Recorder>,
    families: PhantomData<fn() -> M>,
}

impl<M> std::fmt::Debug for Metrics<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl<M: Families> Default for Metrics<M> {
    fn default() -> Self {
        let recorders = M::ALL.iter().map(|metric| Recorder::new(metric.description())).collect();
        Self { recorders, families: PhantomData }
    }
}

impl<M: Families> Metrics<M> {
    fn recorder(&self, metric: M, labels: &[&str]) -> &Recorder {
        let description = metric.description();
        debug_assert_eq!(labels.len(), description.labels.len(), "labels of {}", description.name);
        &self.recorders[metric.index()]
    }

    /// Adds to a counter, which never goes down, or to a gauge.
    pub fn add(&self, metric: M, labels: &[&str], by: i64) {
        match self.recorder(metric, labels) {
            Recorder::Counter(family) => {
                family.with(labels, |counter| counter.add(u64::try_from(by).unwrap_or_default()));
            }
            Recorder::Gauge(family) => family.with(labels, |gauge| gauge.add(by)),
            Recorder::Histogram(_) => debug_assert!(false, "{} is a histogram", metric.description().name),
        }
    }

    /// Sets one gauge.
    pub fn set(&self, metric: M, labels: &[&str], to: i64) {
        match self.recorder(metric, labels) {
            Recorder::Gauge(family) => family.with(labels, |gauge| gauge.set(to)),
            _ => debug_assert!(false, "{} is no gauge", metric.description().name),
        }
    }

    /// Adds to a gauge, and drops its series where it comes to zero.
    pub fn count(&self, metric: M, labels: &[&str], by: i64) {
        match self.recorder(metric, labels) {
            Recorder::Gauge(family) => family.count(labels, by),
            _ => debug_assert!(false, "{} is no gauge", metric.description().name),
        }
    }

    /// Drops the gauge with these labels: what it told of is gone.
    pub fn remove(&self, metric: M, labels: &[&str]) {
        match self.recorder(metric, labels) {
            Recorder::Gauge(family) => {
                family.retain(|values| !values.iter().map(|value| &**value).eq(labels.iter().copied()));
            }
            _ => debug_assert!(false, "{} is no gauge", metric.description().name),
        }
    }

    /// Replaces all gauges of a family.
    pub fn set_all<'l>(&self, metric: M, samples: impl IntoIterator<Item = (Vec<&'l str>, usize)>) {
        let Recorder::Gauge(family) = &self.recorders[metric.index()] else {
            debug_assert!(false, "{} is no gauge", metric.description().name);
            return;
        };
        family.retain(|_| false);
        for (labels, amount) in samples {
            family.with(&labels, |gauge| gauge.add(i64::try_from(amount).unwrap_or(i64::MAX)));
        }
    }

    pub fn observe(&self, metric: M, labels: &[&str], duration: Duration) {
        match self.recorder(metric, labels) {
            Recorder::Histogram(family) => family.with(labels, |histogram| histogram.observe(duration)),
            _ => debug_assert!(false, "{} is no histogram", metric.description().name),
        }
    }

    /// For histograms of other things than time: what is below zero counts as zero.
    pub fn observe_number(&self, metric: M, labels: &[&str], number: f64) {
        self.observe(metric, labels, Duration::try_from_secs_f64(number).unwrap_or_default());
    }

    /// Writes everything, each family's head also where it has no series yet.
    pub fn render(&self, text: &mut Text) {
        for recorder in &self.recorders {
            match recorder {
                Recorder::Counter(family) => family.render_with_head(text),
                Recorder::Gauge(family) => family.render_with_head(text),
                Recorder::Histogram(family) => family.render_with_head(text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::metric_families! { "test_";
        Victims = histogram(1.0, 2.0, 7) "victims" [], "Pods taken away for one other.";
        Pending = gauge "pending_pods" ["queue"], "Pods that wait.";
        Attempts = counter "attempts_total" ["result"], "Attempts.";
    }

    #[test]
    fn histograms_are_cumulative_and_gauges_are_replaced() {
        let metrics = Metrics::<Metric>::default();
        metrics.observe_number(Metric::Victims, &[], 3.0);
        metrics.observe_number(Metric::Victims, &[], 100.0);
        metrics.set_all(Metric::Pending, [(vec!["active"], 3)]);
        metrics.set_all(Metric::Pending, [(vec!["gated"], 1)]);
        let mut text = Text::default();
        metrics.render(&mut text);
        let page = text.finish();
        for line in [
            "test_victims_bucket{le=\"2\"} 0",
            "test_victims_bucket{le=\"64\"} 1",
            "test_victims_bucket{le=\"+Inf\"} 2",
            "test_victims_sum 103",
            "test_pending_pods{queue=\"gated\"} 1",
            "# TYPE test_attempts_total counter",
        ] {
            assert!(page.lines().any(|written| written == line), "{line} in {page}");
        }
        assert!(!page.contains("active"), "{page}");
    }

    #[test]
    fn bounds_grow_by_their_factor() {
        assert_eq!(exponential::<4>(1.0, 2.0), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(Metric::Victims.description().buckets.len(), 7);
    }
}
