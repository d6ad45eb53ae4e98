//! `/metrics`, `/metrics/resource` and `/metrics/cadvisor`, in Prometheus' text form.

use super::Server;
use super::error::HttpError;
use super::stats::{Node, Sample, samples};
use axum::body::Body;
use http::{HeaderValue, Response, header};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

const NANOS: f64 = 1e9;

/// The page under construction.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (key, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{key}=\"{text}\"", if at == 0 { "{" } else { "," });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn respond(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.0));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// Counters become seconds, as Prometheus wants them.
#[allow(clippy::cast_precision_loss, reason = "shown with 53 bits: exact to a microsecond for centuries")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / NANOS
}

/// The kubelet's own: the pods and containers it runs.
pub(super) fn kubelet(server: &Server) -> Response<Body> {
    let mut page = Page::default();
    page.family("kubelet_node_name", "gauge", "The node's name. The count is always 1.");
    page.value("kubelet_node_name", &[("node", &server.node_name)], 1);
    let (mut running_pods, mut containers) = (0u32, BTreeMap::from([("exited", 0u32), ("running", 0)]));
    for pod in server.pods.pods() {
        let metadata = &pod.metadata;
        let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { continue };
        let Some(handle) = server.pods.find(namespace, name, metadata.uid.as_deref()) else { continue };
        running_pods += u32::from(handle.sandbox_id.is_some());
        for container in &handle.containers {
            *containers.entry(if container.running { "running" } else { "exited" }).or_default() += 1;
        }
    }
    page.family("kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox");
    page.value("kubelet_running_pods", &[], running_pods);
    page.family("kubelet_running_containers", "gauge", "Number of containers currently running");
    for (state, count) in containers {
        page.value("kubelet_running_containers", &[("container_state", state)], count);
    }
    page.respond()
}

type Family = (&'static str, &'static str, &'static str, fn(&Sample) -> Option<f64>);

#[allow(clippy::cast_precision_loss, reason = "bytes are exact up to 8 PiB")]
fn working_set(sample: &Sample) -> Option<f64> {
    sample.working_set.map(|bytes| bytes as f64)
}

#[allow(clippy::cast_precision_loss, reason = "bytes are exact up to 8 PiB")]
fn usage(sample: &Sample) -> Option<f64> {
    sample.usage.map(|bytes| bytes as f64)
}

#[allow(clippy::cast_precision_loss, reason = "bytes are exact up to 8 PiB")]
fn rss(sample: &Sample) -> Option<f64> {
    sample.rss.map(|bytes| bytes as f64)
}

fn cpu(sample: &Sample) -> Option<f64> {
    sample.cpu_nanos.map(seconds)
}

const CPU: Family = (
    "container_cpu_usage_seconds_total",
    "counter",
    "Cumulative cpu time consumed by the container in core-seconds",
    cpu,
);
const MEMORY: Family = (
    "container_memory_working_set_bytes",
    "gauge",
    "Current working set of the container in bytes",
    working_set,
);
const CADVISOR: [Family; 4] = [
    CPU,
    MEMORY,
    ("container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory", usage),
    ("container_memory_rss", "gauge", "Size of RSS in bytes.", rss),
];

/// What metrics-server reads.
pub(super) async fn resource(server: &Server) -> Result<Response<Body>, HttpError> {
    let node = Node::read().await?;
    let samples = samples(server).await?;
    let mut page = Page::default();
    for (name, kind, help, of) in [CPU, MEMORY] {
        page.family(name, kind, help);
        for sample in &samples {
            let Some(value) = of(sample) else { continue };
            let labels =
                [("container", &*sample.container), ("namespace", &*sample.namespace), ("pod", &*sample.pod)];
            page.value(name, &labels, value);
        }
    }
    page.family(
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
    );
    page.value("node_cpu_usage_seconds_total", &[], seconds(node.cpu_nanos));
    page.family("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes");
    page.value("node_memory_working_set_bytes", &[], node.working_set());
    pods(&mut page, &samples);
    page.family(
        "resource_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
    );
    page.value("resource_scrape_error", &[], 0);
    Ok(page.respond())
}

fn pods(page: &mut Page, samples: &[Sample]) {
    let mut sums: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for sample in samples {
        let sum = sums.entry((&sample.namespace, &sample.pod)).or_default();
        sum.0 += sample.cpu_nanos.unwrap_or(0);
        sum.1 += sample.working_set.unwrap_or(0);
    }
    page.family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
    );
    for ((namespace, pod), (cpu, _)) in &sums {
        page.value("pod_cpu_usage_seconds_total", &[("namespace", namespace), ("pod", pod)], seconds(*cpu));
    }
    page.family("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes");
    for ((namespace, pod), (_, memory)) in &sums {
        page.value("pod_memory_working_set_bytes", &[("namespace", namespace), ("pod", pod)], memory);
    }
}

/// The few of cAdvisor's families that dashboards begin with.
pub(super) async fn cadvisor(server: &Server) -> Result<Response<Body>, HttpError> {
    let node = Node::read().await?;
    let samples = samples(server).await?;
    let mut page = Page::default();
    for (name, kind, help, of) in CADVISOR {
        page.family(name, kind, help);
        for sample in &samples {
            let Some(value) = of(sample) else { continue };
            let labels = [
                ("container", &*sample.container),
                ("name", &*sample.id),
                ("namespace", &*sample.namespace),
                ("pod", &*sample.pod),
            ];
            page.value(name, &labels, value);
        }
    }
    page.family("machine_cpu_cores", "gauge", "Number of logical CPU cores.");
    page.value("machine_cpu_cores", &[], std::thread::available_parallelism().map_or(1, usize::from));
    page.family("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.");
    page.value("machine_memory_bytes", &[], node.memory_total);
    Ok(page.respond())
}
