//! What metrics-server reads: upstream's resource metrics, each with the time of its reading.

use super::{respond, seconds};
use crate::server::Server;
use crate::server::error::HttpError;
use crate::server::stats::{self, Node, PodSample, Sample};
use axum::body::Body;
use coracle_metrics::Text;
use http::Response;
use jiff::Timestamp;

fn millis(nanos: i64) -> i64 {
    nanos / 1_000_000
}

pub(in crate::server) async fn resource(server: &Server) -> Result<Response<Body>, HttpError> {
    let node = Node::read().await?;
    let now = Timestamp::now().as_millisecond();
    let pods = stats::pods(server).await;
    let mut page = Text::default();
    let failed = u8::from(pods.is_err());
    // Upstream shows the node even where the runtime does not answer.
    let pods = pods.unwrap_or_default();
    containers(&mut page, &pods);
    of_node(&mut page, &node, now);
    of_pods(&mut page, &pods);
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    page.head("resource_scrape_error", help, "gauge");
    page.sample("resource_scrape_error", &[], failed);
    Ok(respond(page))
}

fn of_node(page: &mut Text, node: &Node, now: i64) {
    let name = "node_cpu_usage_seconds_total";
    page.head(name, "Cumulative cpu time consumed by the node in core-seconds", "counter");
    page.sample_at(name, &[], seconds(node.cpu_nanos), now);
    let name = "node_memory_working_set_bytes";
    page.head(name, "Current working set of the node in bytes", "gauge");
    page.sample_at(name, &[], node.working_set(), now);
    let name = "node_swap_usage_bytes";
    page.head(name, "Current swap usage of the node in bytes. Reported only on non-windows systems", "gauge");
    page.sample_at(name, &[], node.swap_used(), now);
}

fn containers(page: &mut Text, pods: &[PodSample]) {
    let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(&Sample) -> Option<String>| {
        page.head(name, help, kind);
        for sample in pods.iter().flat_map(|pod| &pod.containers) {
            let Some(value) = of(sample) else { continue };
            let labels =
                [("container", &*sample.container), ("namespace", &*sample.namespace), ("pod", &*sample.pod)];
            page.sample_at(name, &labels, value, millis(sample.time_nanos));
        }
    };
    family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
        &|s| s.cpu_nanos.map(|nanos| seconds(nanos).to_string()),
    );
    family(
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
        &|s| s.working_set.map(|bytes| bytes.to_string()),
    );
    family(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
        &|s| s.started.map(|second| second.to_string()),
    );
    family(
        "container_swap_usage_bytes",
        "gauge",
        "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        &|s| s.swap.map(|bytes| bytes.to_string()),
    );
    family(
        "container_swap_limit_bytes",
        "gauge",
        "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        &|s| s.account.as_ref()?.most_swap.map(|bytes| bytes.to_string()),
    );
}

fn of_pods(page: &mut Text, pods: &[PodSample]) {
    let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(&PodSample) -> String| {
        page.head(name, help, kind);
        for pod in pods {
            let labels = [("namespace", &*pod.namespace), ("pod", &*pod.pod)];
            page.sample_at(name, &labels, of(pod), millis(pod.time_nanos()));
        }
    };
    family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
        &|pod| seconds(pod.cpu_nanos()).to_string(),
    );
    family("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes", &|pod| {
        pod.working_set().to_string()
    });
    family(
        "pod_swap_usage_bytes",
        "gauge",
        "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        &|pod| {
            let sum = || pod.containers.iter().filter_map(|c| c.swap).sum();
            pod.account.as_ref().map_or_else(sum, |account| account.swap).to_string()
        },
    );
}
