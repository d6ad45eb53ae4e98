//! How long things took, by the names that dashboards know, for `/metrics`.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// A family of upstream's. Those with labels are told apart by their values, with a comma between.
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
    /// Preparing all claims of a pod, or giving them back.
    Dra,
    /// Writing a pod's cgroup.
    Cgroup,
    /// Pulling an image.
    ImagePull,
    /// Answering a request.
    Http,
    /// One device plugin's answer to an allocation.
    DeviceAllocation,
    /// Placing the resources of one pod; in milliseconds.
    TopologyAdmission,
}

/// Prometheus' own.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Family {
    pub const ALL: [Self; 11] = [
        Self::PodStart,
        Self::PodWorker,
        Self::PlegRelist,
        Self::PlegInterval,
        Self::Runtime,
        Self::Dra,
        Self::Cgroup,
        Self::ImagePull,
        Self::Http,
        Self::DeviceAllocation,
        Self::TopologyAdmission,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::PodStart => "kubelet_pod_start_duration_seconds",
            Self::PodWorker => "kubelet_pod_worker_duration_seconds",
            Self::PlegRelist => "kubelet_pleg_relist_duration_seconds",
            Self::PlegInterval => "kubelet_pleg_relist_interval_seconds",
            Self::Runtime => "kubelet_runtime_operations_duration_seconds",
            Self::Dra => "dra_operations_duration_seconds",
            Self::Cgroup => "kubelet_cgroup_manager_duration_seconds",
            Self::ImagePull => "kubelet_image_pull_duration_seconds",
            Self::Http => "kubelet_http_requests_duration_seconds",
            Self::DeviceAllocation => "kubelet_device_plugin_alloc_duration_seconds",
            Self::TopologyAdmission => "kubelet_topology_manager_admission_duration_ms",
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
            Self::Dra => "Duration in seconds of preparing the claims of a pod, or giving them back",
            Self::Cgroup => "Duration in seconds of writing the cgroup of a pod",
            Self::ImagePull => "Duration in seconds of pulling an image, by its size",
            Self::Http => "Duration in seconds until requests are answered; what is streamed comes later",
            Self::DeviceAllocation => "Duration in seconds of a device plugin's answer to an allocation",
            Self::TopologyAdmission => "Duration in milliseconds of placing the resources of a pod",
        }
    }

    /// How many of the family's unit are a second.
    fn units_per_second(self) -> f64 {
        if self == Self::TopologyAdmission { 1000.0 } else { 1.0 }
    }

    /// Upper bounds; upstream's.
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
            Self::Dra => {
                &[0.1, 0.15, 0.25, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 4.0, 5.0, 7.5, 10.0, 15.0, 25.0, 40.0]
            }
            Self::TopologyAdmission => {
                &[0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2]
            }
            Self::ImagePull => &[
                1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 180.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
                3600.0,
            ],
            Self::PodWorker
            | Self::PlegRelist
            | Self::PlegInterval
            | Self::Cgroup
            | Self::Http
            | Self::DeviceAllocation => DEFAULT,
        }
    }

    /// The names of its labels.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Self::PodWorker | Self::Runtime | Self::Cgroup => &["operation_type"],
            Self::ImagePull => &["image_size_in_bytes"],
            Self::Http => &["method", "path", "server_type", "long_running"],
            Self::Dra => &["operation_name", "is_error"],
            Self::DeviceAllocation => &["resource_name"],
            Self::PodStart | Self::PlegRelist | Self::PlegInterval | Self::TopologyAdmission => &[],
        }
    }
}

/// How often it took at most each bound; the last are all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    pub counts: Vec<u64>,
    pub sum: f64,
    pub count: u64,
}

static ALL: Mutex<BTreeMap<(Family, Cow<'static, str>), Histogram>> = Mutex::new(BTreeMap::new());

/// `operation` has the values of the labels, with a comma between.
pub fn took(family: Family, operation: impl Into<Cow<'static, str>>, time: Duration) {
    let amount = time.as_secs_f64() * family.units_per_second();
    let mut all = ALL.lock();
    let histogram = all.entry((family, operation.into())).or_default();
    histogram.counts.resize(family.bounds().len(), 0);
    for (count, bound) in histogram.counts.iter_mut().zip(family.bounds()) {
        *count += u64::from(amount <= *bound);
    }
    histogram.sum += amount;
    histogram.count += 1;
}

pub fn all() -> BTreeMap<(Family, Cow<'static, str>), Histogram> {
    ALL.lock().clone()
}
