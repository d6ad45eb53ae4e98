//! The families of cAdvisor that dashboards and alerts are built on: of containers, of pods' groups (without a container), and
//! of the machine (the group `/`).

mod devices;
mod families;
mod network;

use super::respond;
use crate::blocking::reading;
use crate::cgroup_names::Names;
use crate::server::Server;
use crate::server::error::HttpError;
use crate::server::stats::{self, Node, PodSample, Processes, Sample};
use axum::body::Body;
use coracle_metrics::Text;
use http::Response;
use std::collections::HashMap;

/// What the rows of a page tell apart, beside labels of their own.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A group of the page, and what its own processes have open.
struct Row {
    sample: Sample,
    processes: Processes,
}

impl Row {
    fn labels(&self) -> Labels<'_> {
        let sample = &self.sample;
        let id = if sample.cgroup.is_empty() { &sample.id } else { &sample.cgroup };
        vec![
            ("container", &*sample.container),
            ("id", &**id),
            ("image", &*sample.image),
            ("name", &*sample.id),
            ("namespace", &*sample.namespace),
            ("pod", &*sample.pod),
        ]
    }

    fn millis(&self) -> i64 {
        self.sample.time_nanos / 1_000_000
    }
}

pub(in crate::server) async fn cadvisor(server: &Server) -> Result<Response<Body>, HttpError> {
    let node = Node::read().await?;
    let pods = stats::pods(server).await?;
    let rows = rows(server, &node, &pods).await;
    let mut page = Text::without_levels();
    for (name, kind, help, of) in families::CPU.iter().chain(families::MEMORY).chain(families::REST) {
        page.head(name, help, kind);
        for row in &rows {
            let Some(value) = of(&row.sample) else { continue };
            let mut labels = row.labels();
            if *name == "container_cpu_usage_seconds_total" {
                labels.insert(1, ("cpu", "total"));
            }
            page.sample_at(name, &labels, value, row.millis());
        }
    }
    failures(&mut page, &rows);
    open_files(&mut page, &rows);
    sockets(&mut page, &pods, &rows);
    devices::write(&mut page, &rows);
    network::write(&mut page, &node, &pods, &rows, &server.pods.sandbox_image());
    page.single(
        "container_scrape_error",
        "1 if there was an error while getting container metrics, 0 otherwise",
        "gauge",
        0,
    );
    machine(&mut page, &node);
    Ok(respond(page))
}

/// The machine, and each pod with its containers.
async fn rows(server: &Server, node: &Node, pods: &[PodSample]) -> Vec<Row> {
    let names: Names = server.pods.cgroup_names();
    let samples =
        pods.iter().flat_map(|pod| pod.whole(names).into_iter().chain(pod.containers.iter().cloned()));
    let samples: Vec<Sample> = std::iter::once(node.sample()).chain(samples).collect();
    let (cgroups, groups) =
        (server.cgroups.clone(), samples.iter().map(|s| s.cgroup.clone()).collect::<Vec<_>>());
    let read = move || -> HashMap<String, Processes> {
        let own = groups.into_iter().filter(|group| group != "/");
        own.map(|group| (group.clone(), cgroups.processes_of(&group))).collect()
    };
    let mut processes = reading("processes", read).await.unwrap_or_default();
    let of = |sample: Sample| Row { processes: processes.remove(&sample.cgroup).unwrap_or_default(), sample };
    samples.into_iter().map(of).collect()
}

fn failures(page: &mut Text, rows: &[Row]) {
    let name = "container_memory_failures_total";
    page.head(name, "Cumulative count of memory allocation failures.", "counter");
    for row in rows {
        let Some(account) = &row.sample.account else { continue };
        for (kind, count) in [("pgfault", account.page_faults), ("pgmajfault", account.major_page_faults)] {
            for scope in ["container", "hierarchy"] {
                let mut labels = row.labels();
                labels.insert(1, ("failure_type", kind));
                labels.push(("scope", scope));
                page.sample_at(name, &labels, count, row.millis());
            }
        }
    }
}

fn open_files(page: &mut Text, rows: &[Row]) {
    type Field = fn(&Processes) -> u64;
    let families: [(&str, &str, Field); 2] = [
        ("container_processes", "Number of processes running inside the container.", |p| p.count),
        ("container_file_descriptors", "Number of open file descriptors for the container.", |p| {
            p.descriptors
        }),
    ];
    // A pod's group has no processes of its own.
    let of_containers = || rows.iter().filter(|row| !row.sample.container.is_empty());
    for (name, help, of) in families {
        page.head(name, help, "gauge");
        for row in of_containers() {
            page.sample_at(name, &row.labels(), of(&row.processes), row.millis());
        }
    }
    let name = "container_ulimits_soft";
    page.head(
        name,
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        "gauge",
    );
    for row in of_containers() {
        let mut labels = row.labels();
        labels.push(("ulimit", "max_open_files"));
        let most = row.processes.most_open_files.map_or_else(|| "-1".to_owned(), |most| most.to_string());
        page.sample_at(name, &labels, most, row.millis());
    }
}

/// Where the kernel does not say what descriptors are, a container that is alone in its pod has all the sockets of the pod's
/// network. Of others nothing is known, and nothing is said.
fn sockets(page: &mut Text, pods: &[PodSample], rows: &[Row]) {
    let name = "container_sockets";
    page.head(name, "Number of open sockets for the container.", "gauge");
    for row in rows.iter().filter(|row| !row.sample.container.is_empty()) {
        let alone = || is_alone(pods, &row.sample.uid).then_some(row.processes.network_sockets).flatten();
        if let Some(count) = row.processes.sockets.or_else(alone) {
            page.sample_at(name, &row.labels(), count, row.millis());
        }
    }
}

/// Whether the pod has a network of its own, and one container.
fn is_alone(pods: &[PodSample], uid: &str) -> bool {
    let pod = pods.iter().find(|pod| pod.uid == uid);
    pod.and_then(|pod| pod.handle.as_ref()).is_some_and(|handle| {
        !handle.host_network && handle.containers.iter().filter(|container| container.running).count() == 1
    })
}

fn machine(page: &mut Text, node: &Node) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    page.single("machine_cpu_cores", "Number of logical CPU cores.", "gauge", cores);
    page.single(
        "machine_memory_bytes",
        "Amount of memory installed on the machine.",
        "gauge",
        node.memory_total,
    );
    page.single(
        "machine_swap_bytes",
        "Amount of swap memory available on the machine.",
        "gauge",
        node.swap_total,
    );
}
