//! `/metrics`, `/metrics/resource`, `/metrics/cadvisor`, `/metrics/probes` and `/metrics/slis`, in Prometheus' text form.

mod cadvisor;
mod counted;
mod measured;
mod probes;
mod resource;
mod slis;
mod tallies;
mod volumes;

pub(super) use cadvisor::cadvisor;
pub(super) use probes::probes;
pub(super) use resource::resource;
pub(super) use slis::{checked, objectives};

use super::Server;
use crate::blocking::reading;
use crate::volume_stats::Share;
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
pub(super) async fn kubelet(server: &Server) -> Response<Body> {
    let mut page = Page::default();
    page.family("kubelet_node_name", "gauge", "The node's name. The count is always 1.");
    page.value("kubelet_node_name", &[("node", &server.node_name)], 1);
    volumes::write(&mut page, &shares(server).await);
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
    measured::write(&mut page);
    tallies::write(&mut page);
    claims(&mut page, server);
    page.0.push_str(&(server.process_metrics)());
    page.respond()
}

/// How many claims are, or may be, prepared.
fn claims(page: &mut Page, server: &Server) {
    let name = "dra_resource_claims_in_use";
    page.family(name, "gauge", "ResourceClaims in use by this node, by driver; <any> counts each once");
    for (driver, count) in server.pods.claims_in_use() {
        page.value(name, &[("driver_name", &driver)], count);
    }
}

/// What pods' volumes hold, as it was counted last.
async fn shares(server: &Server) -> Vec<Share> {
    let (stats, pods, pods_dir) = (server.pods.volume_stats(), server.pods.pods(), server.pods_dir.clone());
    let time = jiff::Timestamp::now().to_string();
    let count = move || pods.iter().flat_map(|pod| stats.of(&pods_dir, pod, &time)).collect();
    reading("volumes of pods", count).await.unwrap_or_default()
}
