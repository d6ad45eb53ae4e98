//! The families of one value for each group.

use crate::server::metrics::seconds;
use crate::server::stats::{self, Pressures, Sample};

/// Name, kind, help, and the value if it is known.
pub(super) type Family = (&'static str, &'static str, &'static str, fn(&Sample) -> Option<String>);

fn secs(nanos: u64) -> Option<String> {
    Some(seconds(nanos).to_string())
}

pub(super) const CPU: &[Family] = &[
    ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", |s| {
        secs(s.cpu_nanos?)
    }),
    ("container_cpu_user_seconds_total", "counter", "Cumulative user cpu time consumed in seconds.", |s| {
        secs(s.account.as_ref()?.cpu_user_nanos)
    }),
    (
        "container_cpu_system_seconds_total",
        "counter",
        "Cumulative system cpu time consumed in seconds.",
        |s| secs(s.account.as_ref()?.cpu_system_nanos),
    ),
    ("container_cpu_cfs_periods_total", "counter", "Number of elapsed enforcement period intervals.", |s| {
        limited(s, |a| a.periods)
    }),
    ("container_cpu_cfs_throttled_periods_total", "counter", "Number of throttled period intervals.", |s| {
        limited(s, |a| a.throttled_periods)
    }),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Total time duration the container has been throttled.",
        |s| s.account.as_ref().filter(|a| a.cpu_quota.is_some()).and_then(|a| secs(a.throttled_nanos)),
    ),
    ("container_spec_cpu_period", "gauge", "CPU period of the container.", |s| of(s, |a| a.cpu_period)),
    ("container_spec_cpu_quota", "gauge", "CPU quota of the container.", |s| {
        s.account.as_ref()?.cpu_quota.map(|quota| quota.to_string())
    }),
    ("container_spec_cpu_shares", "gauge", "CPU share of the container.", |s| of(s, |a| a.cpu_shares)),
];

pub(super) const MEMORY: &[Family] = &[
    ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |s| text(s.working_set)),
    (
        "container_memory_usage_bytes",
        "gauge",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |s| text(s.usage),
    ),
    ("container_memory_rss", "gauge", "Size of RSS in bytes.", |s| text(s.rss)),
    ("container_memory_cache", "gauge", "Number of bytes of page cache memory.", |s| of(s, |a| a.cache)),
    ("container_memory_mapped_file", "gauge", "Size of memory mapped files in bytes.", |s| {
        of(s, |a| a.mapped_file)
    }),
    ("container_memory_swap", "gauge", "Container swap usage in bytes.", |s| text(s.swap)),
    ("container_memory_max_usage_bytes", "gauge", "Maximum memory usage recorded in bytes", |s| {
        of(s, |a| a.memory_peak)
    }),
    ("container_memory_failcnt", "counter", "Number of memory usage hits limits", |s| {
        of(s, |a| a.memory_failures)
    }),
    ("container_spec_memory_limit_bytes", "gauge", "Memory limit for the container.", |s| {
        of(s, |a| a.memory_limit.unwrap_or(0))
    }),
    (
        "container_spec_memory_reservation_limit_bytes",
        "gauge",
        "Memory reservation limit for the container.",
        |s| of(s, |a| a.memory_reservation.unwrap_or(0)),
    ),
    ("container_spec_memory_swap_limit_bytes", "gauge", "Memory swap limit for the container.", |s| {
        of(s, |a| a.swap_limit.unwrap_or(0))
    }),
];

pub(super) const REST: &[Family] = &[
    (
        "container_fs_usage_bytes",
        "gauge",
        "Number of bytes that are consumed by the container on this filesystem.",
        |s| text(s.rootfs_used),
    ),
    ("container_threads", "gauge", "Number of threads running inside the container", |s| {
        of(s, |a| a.processes)
    }),
    (
        "container_threads_max",
        "gauge",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        |s| of(s, |a| a.most_processes.unwrap_or(0)),
    ),
    (
        "container_oom_events_total",
        "counter",
        "Count of out of memory events observed for the container",
        |s| of(s, |a| a.oom_kills),
    ),
    (
        "container_pressure_cpu_waiting_seconds_total",
        "counter",
        "Time in which tasks waited for CPUs.",
        |s| stalled(s, |p| Some(p.cpu.as_ref()?.some.total_micros)),
    ),
    ("container_pressure_cpu_stalled_seconds_total", "counter", "Time in which no task got a CPU.", |s| {
        stalled(s, |p| Some(p.cpu.as_ref()?.full.total_micros))
    }),
    (
        "container_pressure_memory_waiting_seconds_total",
        "counter",
        "Time in which tasks waited for memory.",
        |s| stalled(s, |p| Some(p.memory.as_ref()?.some.total_micros)),
    ),
    (
        "container_pressure_memory_stalled_seconds_total",
        "counter",
        "Time in which all tasks waited for memory.",
        |s| stalled(s, |p| Some(p.memory.as_ref()?.full.total_micros)),
    ),
    (
        "container_pressure_io_waiting_seconds_total",
        "counter",
        "Time in which tasks waited for disks.",
        |s| stalled(s, |p| Some(p.io.as_ref()?.some.total_micros)),
    ),
    (
        "container_pressure_io_stalled_seconds_total",
        "counter",
        "Time in which all tasks waited for disks.",
        |s| stalled(s, |p| Some(p.io.as_ref()?.full.total_micros)),
    ),
    (
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds.",
        |s| s.started.map(|second| second.to_string()),
    ),
    ("container_last_seen", "gauge", "Last time a container was seen by the exporter", |s| {
        Some((s.time_nanos / 1_000_000_000).to_string())
    }),
];

fn text(value: Option<u64>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn of(sample: &Sample, field: fn(&stats::Account) -> u64) -> Option<String> {
    sample.account.as_ref().map(|account| field(account).to_string())
}

fn stalled(sample: &Sample, micros: fn(&Pressures) -> Option<u64>) -> Option<String> {
    secs(micros(&sample.account.as_ref()?.pressures)?.saturating_mul(1000))
}

/// cAdvisor shows throttling only where there is a quota.
fn limited(sample: &Sample, field: fn(&stats::Account) -> u64) -> Option<String> {
    sample.account.as_ref().filter(|a| a.cpu_quota.is_some()).map(|account| field(account).to_string())
}
