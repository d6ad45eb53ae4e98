//! Counters, gauges and histograms of a part of the control plane, which knows no server: whoever serves metrics hands a
//! [`Page`]. A part lists its families with [`metric_families`].

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where metrics are written: a family's head, then its samples.
pub trait Page {
    /// `kind` is `counter`, `gauge` or `histogram`.
    fn head(&mut self, name: &str, help: &str, kind: &str);
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str);
}

/// One family: name, help, kind, names of labels, and the first bound, factor and number of a histogram's buckets.
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub buckets: (f64, f64, i32),
}

/// Buckets of what has none.
pub const NONE: (f64, f64, i32) = (0.0, 0.0, 0);

/// The families of a part, in the order of the page.
pub trait Families: Copy + Ord + 'static {
    const ALL: &'static [Self];

    fn family(self) -> &'static Family;
}

/// Makes the enum `Metric` with a variant for each family: `Variant = name, kind, [labels], buckets, help;`. What is
/// given first stands in front of every name.
#[macro_export]
macro_rules! metric_families {
    ($prefix:literal;
     $($id:ident = $name:literal, $kind:literal, [$($label:literal),*], $buckets:expr, $help:literal;)*) => {
        /// The families, in the order of the page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($id),* }

        impl $crate::metrics::families::Families for Metric {
            const ALL: &'static [Self] = &[$(Self::$id),*];

            fn family(self) -> &'static $crate::metrics::families::Family {
                match self { $(Self::$id => {
                    const FAMILY: $crate::metrics::families::Family = $crate::metrics::families::Family {
                        name: concat!($prefix, $name), help: $help, kind: $kind,
                        labels: &[$($label),*], buckets: $buckets,
                    };
                    &FAMILY
                })* }
            }
        }
    };
}
pub use metric_families;

enum Value {
    Number(i64),
    Histogram { buckets: Vec<u64>, sum: f64, count: u64 },
}

/// The figures of some families.
pub struct Metrics<M> {
    values: Mutex<BTreeMap<(M, Vec<String>), Value>>,
}

impl<M> Default for Metrics<M> {
    fn default() -> Self {
        Self { values: Mutex::default() }
    }
}

fn bounds(family: &Family) -> impl Iterator<Item = f64> {
    let (first, factor, number) = family.buckets;
    (0..number).map(move |n| first * factor.powi(n))
}

impl<M: Families> Metrics<M> {
    fn with(&self, metric: M, labels: &[&str], change: impl FnOnce(&mut Value, &Family)) {
        let family = metric.family();
        debug_assert_eq!(labels.len(), family.labels.len(), "labels of {}", family.name);
        let key = (metric, labels.iter().map(|l| (*l).to_owned()).collect());
        let mut values = self.values.lock();
        let value = values.entry(key).or_insert_with(|| match family.kind {
            "histogram" => Value::Histogram { buckets: vec![0; bounds(family).count()], sum: 0.0, count: 0 },
            _ => Value::Number(0),
        });
        change(value, family);
    }

    pub fn add(&self, metric: M, labels: &[&str], by: i64) {
        self.with(metric, labels, |value, _| {
            if let Value::Number(number) = value {
                *number += by;
            }
        });
    }

    /// Replaces all gauges of a family.
    pub fn set_all<'l>(&self, metric: M, samples: impl IntoIterator<Item = (Vec<&'l str>, usize)>) {
        self.values.lock().retain(|(m, _), _| *m != metric);
        for (labels, amount) in samples {
            self.add(metric, &labels, i64::try_from(amount).unwrap_or(i64::MAX));
        }
    }

    pub fn observe(&self, metric: M, labels: &[&str], duration: Duration) {
        self.observe_number(metric, labels, duration.as_secs_f64());
    }

    pub fn observe_number(&self, metric: M, labels: &[&str], number: f64) {
        self.with(metric, labels, |value, family| {
            if let Value::Histogram { buckets, sum, count } = value {
                if let Some(at) = bounds(family).position(|bound| number <= bound) {
                    buckets[at] += 1;
                }
                *sum += number;
                *count += 1;
            }
        });
    }

    /// Writes everything.
    pub fn render(&self, page: &mut dyn Page) {
        let values = self.values.lock();
        for metric in M::ALL {
            let family = metric.family();
            page.head(family.name, family.help, family.kind);
            let from = (*metric, Vec::new());
            for ((_, labels), value) in values.range(from..).take_while(|((m, _), _)| m == metric) {
                let labels: Vec<(&str, &str)> =
                    family.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
                render(page, family, &labels, value);
            }
        }
    }
}

fn render(page: &mut dyn Page, family: &Family, labels: &[(&str, &str)], value: &Value) {
    let Value::Histogram { buckets, sum, count } = value else {
        if let Value::Number(number) = value {
            page.sample(family.name, labels, &number.to_string());
        }
        return;
    };
    let mut total = 0;
    for (bound, amount) in bounds(family).zip(buckets) {
        total += amount;
        let bound = bound.to_string();
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
        page.sample(&format!("{}_bucket", family.name), &labels, &total.to_string());
    }
    let labels_inf: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
    page.sample(&format!("{}_bucket", family.name), &labels_inf, &count.to_string());
    page.sample(&format!("{}_sum", family.name), labels, &sum.to_string());
    page.sample(&format!("{}_count", family.name), labels, &count.to_string());
}
