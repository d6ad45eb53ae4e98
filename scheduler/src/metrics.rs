//! What the scheduler counts, under upstream's names. It knows no server: whoever serves metrics hands a [`Page`].

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
struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    buckets: (f64, f64, i32),
}

const NONE: (f64, f64, i32) = (0.0, 0.0, 0);
const MILLIS: (f64, f64, i32) = (0.001, 2.0, 15);

macro_rules! families {
    ($($id:ident = $name:literal, $kind:literal, [$($label:literal),*], $buckets:expr, $help:literal;)*) => {
        /// The families, in the order of the page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($id),* }

        impl Metric {
            const ALL: &[Self] = &[$(Self::$id),*];

            fn family(self) -> &'static Family {
                match self { $(Self::$id => {
                    const FAMILY: Family = Family {
                        name: concat!("scheduler_", $name), help: $help, kind: $kind,
                        labels: &[$($label),*], buckets: $buckets,
                    };
                    &FAMILY
                })* }
            }
        }
    };
}

families! {
    ScheduleAttempts = "schedule_attempts_total", "counter", ["result", "profile"], NONE,
        "Attempts to schedule a pod, by what came of them.";
    AttemptDuration = "scheduling_attempt_duration_seconds", "histogram", ["result", "profile"], MILLIS,
        "Time of an attempt, decision and binding.";
    AlgorithmDuration = "scheduling_algorithm_duration_seconds", "histogram", [], MILLIS,
        "Time of a decision.";
    PreemptionVictims = "preemption_victims", "histogram", [], (1.0, 2.0, 7), "Pods taken away for one other.";
    PreemptionAttempts = "preemption_attempts_total", "counter", [], NONE, "Attempts to take pods away.";
    PendingPods = "pending_pods", "gauge", ["queue"], NONE, "Pods without a node, by the queue they wait in.";
    SliDuration = "pod_scheduling_sli_duration_seconds", "histogram", ["attempts"], (0.01, 2.0, 20),
        "Time from a pod's coming into the queue to its node.";
    Attempts = "pod_scheduling_attempts", "histogram", [], (1.0, 2.0, 5), "Attempts until a pod got its node.";
    ExtensionPoint = "framework_extension_point_duration_seconds", "histogram",
        ["extension_point", "status", "profile"], (0.0001, 2.0, 12), "Time of all plugins of an extension point.";
    PluginExecution = "plugin_execution_duration_seconds", "histogram",
        ["plugin", "extension_point", "status"], (0.00001, 1.5, 20),
        "Time of one plugin at one extension point, of every tenth pod.";
    PluginEvaluation = "plugin_evaluation_total", "counter", ["plugin", "extension_point", "profile"], NONE,
        "Pods that a plugin was asked about at an extension point.";
    PreemptionDuration = "preemption_goroutines_duration_seconds", "histogram", ["result"], MILLIS,
        "Time until the victims of a pod were told.";
    PreemptionExecutions = "preemption_goroutines_execution_total", "counter", ["result"], NONE,
        "Pods whose victims were told, by what came of it.";
    IncomingPods = "queue_incoming_pods_total", "counter", ["queue", "event"], NONE,
        "Pods that came into a queue, by the event that brought them there.";
    AfterFlush = "pod_scheduled_after_flush_total", "counter", [], NONE,
        "Pods that got a node when they were tried because they had waited for too long.";
    Goroutines = "goroutines", "gauge", ["operation"], NONE, "Tasks at work beside the scheduling cycle.";
    PermitWait = "permit_wait_duration_seconds", "histogram", ["result"], MILLIS, "Time of waiting for permission.";
    CacheSize = "cache_size", "gauge", ["type"], NONE, "Nodes, pods, and assumed pods that the scheduler knows.";
    UnschedulablePods = "unschedulable_pods", "gauge", ["plugin", "profile"], NONE,
        "Pods that wait, by the plugins that refused them.";
}

enum Value {
    Number(i64),
    Histogram { buckets: Vec<u64>, sum: f64, count: u64 },
}

#[derive(Default)]
pub struct Metrics {
    values: Mutex<BTreeMap<(Metric, Vec<String>), Value>>,
}

fn bounds(family: &Family) -> impl Iterator<Item = f64> {
    let (first, factor, number) = family.buckets;
    (0..number).map(move |n| first * factor.powi(n))
}

impl Metrics {
    fn with(&self, metric: Metric, labels: &[&str], change: impl FnOnce(&mut Value, &Family)) {
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

    pub fn add(&self, metric: Metric, labels: &[&str], by: i64) {
        self.with(metric, labels, |value, _| {
            if let Value::Number(number) = value {
                *number += by;
            }
        });
    }

    /// Replaces all gauges of a family.
    pub fn set_all<'l>(&self, metric: Metric, samples: impl IntoIterator<Item = (Vec<&'l str>, usize)>) {
        self.values.lock().retain(|(m, _), _| *m != metric);
        for (labels, amount) in samples {
            self.add(metric, &labels, i64::try_from(amount).unwrap_or(i64::MAX));
        }
    }

    pub fn observe(&self, metric: Metric, labels: &[&str], duration: Duration) {
        self.observe_number(metric, labels, duration.as_secs_f64());
    }

    pub fn observe_number(&self, metric: Metric, labels: &[&str], number: f64) {
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
        for metric in Metric::ALL {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[derive(Default)]
    pub struct Lines(pub Vec<String>);

    impl Page for Lines {
        fn head(&mut self, name: &str, _help: &str, kind: &str) {
            self.0.push(format!("# {name} {kind}"));
        }
        fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
            self.0.push(format!("{name} {labels:?} {value}"));
        }
    }

    #[test]
    fn histograms_are_cumulative_and_gauges_are_replaced() {
        let metrics = Metrics::default();
        metrics.observe_number(Metric::PreemptionVictims, &[], 3.0);
        metrics.observe_number(Metric::PreemptionVictims, &[], 100.0);
        metrics.set_all(Metric::PendingPods, [(vec!["active"], 3)]);
        metrics.set_all(Metric::PendingPods, [(vec!["gated"], 1)]);
        let mut page = Lines::default();
        metrics.render(&mut page);
        let has = |line: &str| assert!(page.0.iter().any(|l| l == line), "{line} in {:#?}", page.0);
        has("scheduler_preemption_victims_bucket [(\"le\", \"2\")] 0");
        has("scheduler_preemption_victims_bucket [(\"le\", \"64\")] 1");
        has("scheduler_preemption_victims_bucket [(\"le\", \"+Inf\")] 2");
        has("scheduler_preemption_victims_sum [] 103");
        has("scheduler_pending_pods [(\"queue\", \"gated\")] 1");
        assert!(!page.0.iter().any(|l| l.contains("active")));
        assert_eq!(page.0.iter().filter(|l| l.starts_with('#')).count(), Metric::ALL.len());
    }
}
