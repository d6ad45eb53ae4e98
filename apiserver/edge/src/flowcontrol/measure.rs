//! What the filter counts, under upstream's names (`apiserver_flowcontrol_*`).

use super::queueset::Refusal;
use super::state::{FlowControl, LevelState};
use coracle_component_base::metrics::{Counter, Gauge, Histogram, Metric, Text};
use std::sync::Arc;
use std::time::Duration;

/// Upstream's buckets of waiting and execution, in seconds.
const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// The figures of one schema at one level.
pub(super) struct Stats {
    dispatched: Counter,
    rejected: [Counter; 4],
    executing: Gauge,
    executing_seats: Gauge,
    queued: Gauge,
    queued_seats: Gauge,
    waited: Histogram,
    waited_in_vain: Histogram,
    took: Histogram,
    watch_took: Histogram,
}

impl Default for Stats {
    fn default() -> Self {
        let histogram = || Histogram::new(SECONDS);
        Self {
            dispatched: Counter::default(),
            rejected: Default::default(),
            executing: Gauge::default(),
            executing_seats: Gauge::default(),
            queued: Gauge::default(),
            queued_seats: Gauge::default(),
            waited: histogram(),
            waited_in_vain: histogram(),
            took: histogram(),
            watch_took: histogram(),
        }
    }
}

impl Stats {
    pub(super) fn began(&self, seats: u32) {
        self.dispatched.add(1);
        self.executing.add(1);
        self.executing_seats.add(i64::from(seats));
    }

    pub(super) fn ended(&self, seats: u32, took: Duration, watch: bool) {
        self.executing.add(-1);
        self.executing_seats.add(-i64::from(seats));
        let histogram = if watch { &self.watch_took } else { &self.took };
        histogram.observe(took);
    }

    pub(super) fn refused(&self, why: Refusal) {
        for (counter, one) in self.rejected.iter().zip(Refusal::ALL) {
            if one == why {
                counter.add(1);
            }
        }
    }

    pub(super) fn waited(&self, time: Duration, executed: bool) {
        let histogram = if executed { &self.waited } else { &self.waited_in_vain };
        histogram.observe(time);
    }

    /// Counts a waiting request until the guard is dropped.
    pub(super) fn in_queue(self: &Arc<Self>, seats: u32) -> InQueue {
        self.queued.add(1);
        self.queued_seats.add(i64::from(seats));
        InQueue { stats: self.clone(), seats }
    }
}

pub(super) struct InQueue {
    stats: Arc<Stats>,
    seats: u32,
}

impl Drop for InQueue {
    fn drop(&mut self) {
        self.stats.queued.add(-1);
        self.stats.queued_seats.add(-i64::from(self.seats));
    }
}

type Named<'a> = ((&'a str, &'a str), &'a Stats);

fn series<'a, M: Metric + 'a>(
    text: &mut Text,
    (name, help): (&str, &str),
    all: &[Named<'a>],
    pick: impl Fn(&'a Stats) -> Vec<(Option<(&'static str, &'static str)>, &'a M)>,
) {
    let name = format!("apiserver_flowcontrol_{name}");
    text.head(&name, help, M::KIND);
    for ((level, schema), stats) in all {
        for (extra, metric) in pick(stats) {
            let mut labels = vec![("flow_schema", *schema), ("priority_level", *level)];
            labels.extend(extra);
            metric.render(&name, &labels, text);
        }
    }
}

impl FlowControl {
    /// Appends all figures to a page.
    pub fn render(&self, text: &mut Text) {
        let stats = self.stats.lock().clone();
        let all: Vec<Named<'_>> =
            stats.iter().map(|((level, schema), s)| ((level.as_str(), schema.as_str()), &**s)).collect();
        let dispatched = ("dispatched_requests_total", "Requests that were executed.");
        series(text, dispatched, &all, |s| vec![(None, &s.dispatched)]);
        let rejected = ("rejected_requests_total", "Requests that were refused, by reason.");
        series(text, rejected, &all, |s| {
            let labelled = Refusal::ALL.iter().zip(&s.rejected);
            let seen = labelled.filter(|(_, counter)| counter.get() > 0);
            seen.map(|(why, counter)| (Some(("reason", why.reason())), counter)).collect()
        });
        render_gauges(text, &all);
        let waited = ("request_wait_duration_seconds", "Time that requests waited in their queues.");
        series(text, waited, &all, |s| {
            vec![(Some(("execute", "false")), &s.waited_in_vain), (Some(("execute", "true")), &s.waited)]
        });
        let took = ("request_execution_seconds", "Time that requests held their seats.");
        series(text, took, &all, |s| {
            vec![(Some(("type", "regular")), &s.took), (Some(("type", "watch")), &s.watch_took)]
        });
        self.render_levels(text);
    }

    fn render_levels(&self, text: &mut Text) {
        let state = self.state();
        let mut gauge = |name: &str, help: &str, value: &dyn Fn(&LevelState) -> f64| {
            let name = format!("apiserver_flowcontrol_{name}");
            text.head(&name, help, "gauge");
            for (level, at_work) in &state.levels {
                text.sample(&name, &[("priority_level", level)], value(at_work));
            }
        };
        gauge("nominal_limit_seats", "Seats of each level by its shares.", &|l| {
            l.now.lock().seats.nominal.into()
        });
        gauge("lower_limit_seats", "Seats that a level never lends.", &|l| l.now.lock().seats.min.into());
        gauge("upper_limit_seats", "Seats that a level may have at most.", &|l| {
            l.now.lock().seats.max.into()
        });
        gauge("current_limit_seats", "Seats of each level at this moment.", &|l| l.now.lock().limit.into());
        gauge("demand_seats_high_watermark", "Most seats in demand in the last period.", &|l| {
            l.now.lock().high.into()
        });
        gauge("demand_seats_smoothed", "Seats in demand, smoothed.", &|l| l.now.lock().need);
        gauge("demand_seats_average", "Seats in demand on average in the last period.", &|l| {
            l.with(|set, _, _| set.demand.average)
        });
        gauge("demand_seats_stdev", "Deviation of the seats in demand in the last period.", &|l| {
            l.with(|set, _, _| set.demand.deviation)
        });
    }
}

fn render_gauges(text: &mut Text, all: &[Named<'_>]) {
    let queued = ("current_inqueue_requests", "Requests that wait in queues.");
    series(text, queued, all, |s| vec![(None, &s.queued)]);
    let seats = ("current_inqueue_seats", "Seats that waiting requests will take.");
    series(text, seats, all, |s| vec![(None, &s.queued_seats)]);
    let executing = ("current_executing_requests", "Requests that hold seats.");
    series(text, executing, all, |s| vec![(None, &s.executing)]);
    let taken = ("current_executing_seats", "Seats that are taken.");
    series(text, taken, all, |s| vec![(None, &s.executing_seats)]);
}
