//! The families of cAdvisor that dashboards and alerts are built on.

use super::{respond, seconds};
use crate::server::Server;
use crate::server::error::HttpError;
use crate::server::stats::{self, Node, PodSample, Sample, value};
use axum::body::Body;
use coracle_metrics::Text;
use http::Response;

/// Name, kind, help, and the value if it is known.
type Family = (&'static str, &'static str, &'static str, fn(&Sample) -> Option<String>);

fn secs(nanos: u64) -> Option<String> {
    Some(seconds(nanos).to_string())
}

const CPU: &[Family] = &[
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

const MEMORY: &[Family] = &[
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
        s.account.as_ref().map(|a| a.memory_limit.unwrap_or(0).to_string())
    }),
];

const REST: &[Family] = &[
    (
        "container_fs_usage_bytes",
        "gauge",
        "Number of bytes that are consumed by the container on this filesystem.",
        |s| text(s.rootfs_used),
    ),
    ("container_processes", "gauge", "Number of processes running inside the container.", |s| {
        of(s, |a| a.processes)
    }),
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

/// cAdvisor shows throttling only where there is a quota.
fn limited(sample: &Sample, field: fn(&stats::Account) -> u64) -> Option<String> {
    sample.account.as_ref().filter(|a| a.cpu_quota.is_some()).map(|account| field(account).to_string())
}

pub(in crate::server) async fn cadvisor(server: &Server) -> Result<Response<Body>, HttpError> {
    let node = Node::read().await?;
    let pods = stats::pods(server).await?;
    let mut page = Text::default();
    for (name, kind, help, of) in CPU.iter().chain(MEMORY).chain(REST) {
        page.head(name, help, kind);
        for sample in pods.iter().flat_map(|pod| &pod.containers) {
            let Some(value) = of(sample) else { continue };
            let id = if sample.cgroup.is_empty() { &sample.id } else { &sample.cgroup };
            let mut labels = vec![
                ("container", &*sample.container),
                ("id", &**id),
                ("image", &*sample.image),
                ("name", &*sample.id),
                ("namespace", &*sample.namespace),
                ("pod", &*sample.pod),
            ];
            if *name == "container_cpu_usage_seconds_total" {
                labels.insert(1, ("cpu", "total"));
            }
            page.sample_at(name, &labels, value, sample.time_nanos / 1_000_000);
        }
    }
    networks(&mut page, &pods);
    page.head("machine_cpu_cores", "Number of logical CPU cores.", "gauge");
    page.sample("machine_cpu_cores", &[], std::thread::available_parallelism().map_or(1, usize::from));
    page.head("machine_memory_bytes", "Amount of memory installed on the machine.", "gauge");
    page.sample("machine_memory_bytes", &[], node.memory_total);
    page.head("machine_swap_bytes", "Amount of swap memory available on the machine.", "gauge");
    page.sample("machine_swap_bytes", &[], node.swap_total);
    Ok(respond(page))
}

/// A pod's network belongs to its sandbox, which cAdvisor shows without a container.
fn networks(page: &mut Text, pods: &[PodSample]) {
    type Field = fn(&crate::cri::api::NetworkInterfaceUsage) -> Option<u64>;
    let families: [(&str, &str, Field); 4] = [
        ("container_network_receive_bytes_total", "Cumulative count of bytes received", |i| {
            value(i.rx_bytes.as_ref())
        }),
        (
            "container_network_receive_errors_total",
            "Cumulative count of errors encountered while receiving",
            |i| value(i.rx_errors.as_ref()),
        ),
        ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |i| {
            value(i.tx_bytes.as_ref())
        }),
        (
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
            |i| value(i.tx_errors.as_ref()),
        ),
    ];
    for (name, help, field) in families {
        page.head(name, help, "counter");
        for pod in pods {
            for interface in &pod.network {
                let Some(value) = field(interface) else { continue };
                let labels =
                    [("interface", &*interface.name), ("namespace", &*pod.namespace), ("pod", &*pod.pod)];
                page.sample_at(name, &labels, value, pod.time_nanos() / 1_000_000);
            }
        }
    }
}
