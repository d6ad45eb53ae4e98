//! How long things took, by the names that dashboards know, for `/metrics`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// A family of upstream's. Those with an operation tell them apart by the label `operation_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// From the first look at a pod until all its containers run.
    PodStart,
    /// One step of a pod's worker.
    PodWorker,
    /// One look at all that the runtime has.
    PlegRelist,
    /// Between two such looks.
    PlegInterval,
    /// One call to the runtime.
    Runtime,
}

/// Prometheus' own.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Family {
    pub const ALL: [Self; 5] =
        [Self::PodStart, Self::PodWorker, Self::PlegRelist, Self::PlegInterval, Self::Runtime];

    pub fn name(self) -> &'static str {
        match self {
            Self::PodStart => "kubelet_pod_start_duration_seconds",
            Self::PodWorker => "kubelet_pod_worker_duration_seconds",
            Self::PlegRelist => "kubelet_pleg_relist_duration_seconds",
            Self::PlegInterval => "kubelet_pleg_relist_interval_seconds",
            Self::Runtime => "kubelet_runtime_operations_duration_seconds",
        }
    }

    pub fn help(self) -> &'static str {
        match self {
            Self::PodStart => {
                "Duration in seconds from when the kubelet first saw a pod to when all its containers ran"
            }
            Self::PodWorker => "Duration in seconds of one step of a pod's worker",
            Self::PlegRelist => "Duration in seconds of asking the runtime for all sandboxes and containers",
            Self::PlegInterval => "Interval in seconds between two such questions",
            Self::Runtime => "Duration in seconds of calls to the runtime",
        }
    }

    /// Upper bounds in seconds; upstream's.
    pub fn bounds(self) -> &'static [f64] {
        match self {
            Self::PodStart => &[
                0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
                300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
            ],
            Self::Runtime => &[
                0.005,
                0.0125,
                0.03125,
                0.078_125,
                0.195_312_5,
                0.488_281_25,
                1.220_703_125,
                3.051_757_812_5,
                7.629_394_531_25,
                19.073_486_328_125,
                47.683_715_820_312_5,
                119.209_289_550_781_25,
                298.023_223_876_953_1,
                745.058_059_692_382_8,
            ],
            Self::PodWorker | Self::PlegRelist | Self::PlegInterval => DEFAULT,
        }
    }

    pub fn has_operation(self) -> bool {
        matches!(self, Self::PodWorker | Self::Runtime)
    }
}

/// How often it took at most each bound; the last are all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    pub counts: Vec<u64>,
    pub sum: f64,
    pub count: u64,
}

static ALL: Mutex<BTreeMap<(Family, &'static str), Histogram>> = Mutex::new(BTreeMap::new());

/// `operation` is empty for families without.
pub fn took(family: Family, operation: &'static str, time: Duration) {
    let seconds = time.as_secs_f64();
    let mut all = ALL.lock();
    let histogram = all.entry((family, operation)).or_default();
    histogram.counts.resize(family.bounds().len(), 0);
    for (count, bound) in histogram.counts.iter_mut().zip(family.bounds()) {
        *count += u64::from(seconds <= *bound);
    }
    histogram.sum += seconds;
    histogram.count += 1;
}

pub fn all() -> BTreeMap<(Family, &'static str), Histogram> {
    ALL.lock().clone()
}
