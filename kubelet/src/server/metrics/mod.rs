//! `/metrics`, `/metrics/resource`, `/metrics/cadvisor` and `/metrics/probes`, in Prometheus' text form.

mod cadvisor;
mod counted;
mod probes;
mod resource;

pub(super) use cadvisor::cadvisor;
pub(super) use probes::probes;
pub(super) use resource::resource;

use super::Server;
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
        self.sample(name, labels, value);
        self.0.push('\n');
    }

    /// With the time of the reading, in milliseconds since 1970.
    fn value_at(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display, millis: i64) {
        self.sample(name, labels, value);
        let _ = writeln!(self.0, " {millis}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (key, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{key}=\"{text}\"", if at == 0 { "{" } else { "," });
        }
        let _ = write!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
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
    counted::write(&mut page);
    volumes(&mut page, server);
    page.respond()
}

/// Upstream's names of what the volumes of claims use, with the summary's fields.
const VOLUME_STATS: [(&str, &str, &str); 6] = [
    ("kubelet_volume_stats_capacity_bytes", "capacityBytes", "Capacity in bytes of the volume"),
    ("kubelet_volume_stats_available_bytes", "availableBytes", "Number of available bytes in the volume"),
    ("kubelet_volume_stats_used_bytes", "usedBytes", "Number of used bytes in the volume"),
    ("kubelet_volume_stats_inodes", "inodes", "Maximum number of inodes in the volume"),
    ("kubelet_volume_stats_inodes_free", "inodesFree", "Number of free inodes in the volume"),
    ("kubelet_volume_stats_inodes_used", "inodesUsed", "Number of used inodes in the volume"),
];

/// What was measured last of claims' volumes; one that several pods have is told once.
fn volumes(page: &mut Page, server: &Server) {
    let stats = server.pods.volume_stats();
    let mut claims = BTreeMap::new();
    for pod in server.pods.pods() {
        for share in stats.known(pod.metadata.uid.as_deref().unwrap_or_default()) {
            let reference = &share.entry["pvcRef"];
            if let (Some(namespace), Some(name)) =
                (reference["namespace"].as_str(), reference["name"].as_str())
            {
                claims.insert((namespace.to_owned(), name.to_owned()), share.entry);
            }
        }
    }
    if claims.is_empty() {
        return;
    }
    for (name, field, help) in VOLUME_STATS {
        page.family(name, "gauge", help);
        for ((namespace, claim), entry) in &claims {
            if let Some(value) = entry[field].as_u64() {
                page.value(name, &[("namespace", namespace), ("persistentvolumeclaim", claim)], value);
            }
        }
    }
    page.family(
        "kubelet_volume_stats_health_status_abnormal",
        "gauge",
        "Abnormal volume health status. The count is either 1 or 0",
    );
    for ((namespace, claim), entry) in &claims {
        if let Some(abnormal) = entry["volumeHealthStats"]["abnormal"].as_bool() {
            let labels = [("namespace", namespace.as_str()), ("persistentvolumeclaim", claim.as_str())];
            page.value("kubelet_volume_stats_health_status_abnormal", &labels, u8::from(abnormal));
        }
    }
}
