//! `/metrics`, `/metrics/resource`, `/metrics/cadvisor`, `/metrics/probes` and `/metrics/slis`, in Prometheus' text form.

mod cadvisor;
mod pods;
mod probes;
mod resource;
mod slis;
mod volumes;

pub(super) use cadvisor::cadvisor;
pub(super) use probes::probes;
pub(super) use resource::resource;
pub(super) use slis::objectives;

use super::Server;
use crate::blocking::reading;
use crate::volume_stats::Share;
use axum::body::Body;
use coracle_metrics::{CONTENT_TYPE, Text, stability};
use http::{HeaderValue, Response, header};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

const NANOS: f64 = 1e9;

fn respond(page: Text) -> Response<Body> {
    let mut response = Response::new(Body::from(page.finish()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// Counters become seconds, as Prometheus wants them.
#[allow(clippy::cast_precision_loss, reason = "shown with 53 bits: exact to a microsecond for centuries")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / NANOS
}

/// The kubelet's own: the pods and containers it runs.
pub(super) async fn kubelet(server: &Server) -> Response<Body> {
    let mut page = Text::default();
    page.head("kubelet_node_name", "The node's name. The count is always 1.", "gauge");
    page.sample("kubelet_node_name", &[("node", &server.node_name)], 1);
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
    page.head("kubelet_running_pods", "Number of pods that have a running pod sandbox", "gauge");
    page.sample("kubelet_running_pods", &[], running_pods);
    page.head("kubelet_running_containers", "Number of containers currently running", "gauge");
    for (state, count) in containers {
        page.sample("kubelet_running_containers", &[("container_state", state)], count);
    }
    let all = server.pods.pods();
    pods::write(&mut page, &all, &server.pods.orphans());
    pods::logs(&mut page, server, &all).await;
    pods::volumes(&mut page, &server.pods.volumes());
    resizes(&mut page, &all);
    let version = server.cgroups.version();
    page.single("kubelet_cgroup_version", "Version of the machine's control groups", "gauge", version);
    server.metrics.render(&mut page);
    claims(&mut page, server);
    page.page(&(server.process_metrics)());
    // Containers' use is the runtime's word, and control groups' where it says nothing.
    let name = "kubelet_metrics_provider";
    page.head(name, "Who tells what containers use: cadvisor or cri", "gauge");
    page.sample(name, &[("provider", "cri")], 1);
    stability::render(&mut page);
    respond(page)
}

/// How many pods wait for other resources, and how many are being given them.
fn resizes(page: &mut Text, pods: &[Arc<Pod>]) {
    let conditions = |kind: &'static str| {
        let all = pods.iter().filter_map(|pod| pod.status.as_ref()?.conditions.as_ref()).flatten();
        all.filter(move |condition| condition.type_ == kind && condition.status == "True")
    };
    let name = "kubelet_pod_pending_resizes";
    page.head(name, "Number of pods whose resize waits", "gauge");
    for reason in ["Deferred", "Infeasible"] {
        let waiting = conditions("PodResizePending").filter(|c| c.reason.as_deref() == Some(reason)).count();
        page.sample(name, &[("reason", &reason.to_ascii_lowercase())], waiting);
    }
    let progress = conditions("PodResizeInProgress").count();
    page.single(
        "kubelet_pod_in_progress_resizes",
        "Number of pods that are being resized",
        "gauge",
        progress,
    );
}

/// How many claims are, or may be, prepared.
fn claims(page: &mut Text, server: &Server) {
    let name = "dra_resource_claims_in_use";
    page.head(name, "ResourceClaims in use by this node, by driver; <any> counts each once", "gauge");
    for (driver, count) in server.pods.claims_in_use() {
        page.sample(name, &[("driver_name", &driver)], count);
    }
}

/// What pods' volumes hold, as it was counted last.
async fn shares(server: &Server) -> Vec<Share> {
    let (stats, pods, pods_dir) = (server.pods.volume_stats(), server.pods.pods(), server.pods_dir.clone());
    let time = jiff::Timestamp::now().to_string();
    let count = move || pods.iter().flat_map(|pod| stats.of(&pods_dir, pod, &time)).collect();
    reading("volumes of pods", count).await.unwrap_or_default()
}
