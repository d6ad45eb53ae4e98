//! `/stats/summary`: what the node, its pods and their containers use (upstream's stats v1alpha1).

use super::Server;
use super::error::HttpError;
use super::routes::json_body;
use crate::cri::api;
use axum::body::Body;
use http::Response;
use jiff::Timestamp;
use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Nanoseconds of one tick of /proc/stat: the kernel shows 100 of them a second to user space on every machine.
const TICK_NANOS: u64 = 10_000_000;

/// One container's use, as CRI gives it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub container: String,
    pub id: String,
    /// Of the cpu figures, in nanoseconds since 1970.
    pub time_nanos: i64,
    pub cpu_nanos: Option<u64>,
    pub cpu_nano_cores: Option<u64>,
    pub working_set: Option<u64>,
    pub usage: Option<u64>,
    pub rss: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub rootfs_used: Option<u64>,
}

/// The use of the newest attempt of every container, in order of namespace, pod and name. Containers that the runtime
/// still holds of earlier attempts and of pods that are gone are left out: their names would come twice.
pub(super) async fn samples(server: &Server) -> Result<Vec<Sample>, HttpError> {
    let stats = server.pods.container_stats().await?;
    let mut samples: Vec<Sample> =
        stats.iter().filter_map(sample).filter(|sample| is_newest(server, sample)).collect();
    samples.sort_by(|a, b| (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container)));
    Ok(samples)
}

fn is_newest(server: &Server, sample: &Sample) -> bool {
    let pod = server.pods.find(&sample.namespace, &sample.pod, Some(&sample.uid));
    pod.is_some_and(|pod| pod.containers.iter().any(|container| container.id == sample.id))
}

fn sample(stats: &api::ContainerStats) -> Option<Sample> {
    let attributes = stats.attributes.as_ref()?;
    let label = |key: &str| attributes.labels.get(key).cloned();
    let (cpu, memory) = (stats.cpu.as_ref(), stats.memory.as_ref());
    Some(Sample {
        namespace: label("io.kubernetes.pod.namespace")?,
        pod: label("io.kubernetes.pod.name")?,
        uid: label("io.kubernetes.pod.uid")?,
        container: label("io.kubernetes.container.name")?,
        id: attributes.id.clone(),
        time_nanos: cpu.map_or(0, |cpu| cpu.timestamp),
        cpu_nanos: cpu.and_then(|cpu| value(cpu.usage_core_nano_seconds.as_ref())),
        cpu_nano_cores: cpu.and_then(|cpu| value(cpu.usage_nano_cores.as_ref())),
        working_set: memory.and_then(|memory| value(memory.working_set_bytes.as_ref())),
        usage: memory.and_then(|memory| value(memory.usage_bytes.as_ref())),
        rss: memory.and_then(|memory| value(memory.rss_bytes.as_ref())),
        page_faults: memory.and_then(|memory| value(memory.page_faults.as_ref())),
        major_page_faults: memory.and_then(|memory| value(memory.major_page_faults.as_ref())),
        rootfs_used: stats.writable_layer.as_ref().and_then(|layer| value(layer.used_bytes.as_ref())),
    })
}

fn value(value: Option<&api::UInt64Value>) -> Option<u64> {
    value.map(|value| value.value)
}

/// The node's own use, in nanoseconds of cpu and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub cpu_nanos: u64,
    pub memory_total: u64,
    pub memory_available: u64,
    pub memory_free: u64,
}

impl Node {
    pub(super) async fn read() -> Result<Self, HttpError> {
        let failed = |error: std::io::Error| HttpError::internal(format!("node statistics: {error}"));
        let stat = tokio::fs::read_to_string("/proc/stat").await.map_err(failed)?;
        let meminfo = tokio::fs::read_to_string("/proc/meminfo").await.map_err(failed)?;
        Ok(Self::parse(&stat, &meminfo))
    }

    /// All but idle and waiting for I/O counts as use; guests are within user time already.
    pub(super) fn parse(stat: &str, meminfo: &str) -> Self {
        let ticks: Vec<u64> = stat
            .lines()
            .find_map(|line| line.strip_prefix("cpu "))
            .map(|line| line.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect())
            .unwrap_or_default();
        let busy: u64 =
            ticks.iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, n)| n).sum();
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Self {
            cpu_nanos: busy * TICK_NANOS,
            memory_total: field("MemTotal:"),
            memory_available: field("MemAvailable:"),
            memory_free: field("MemFree:"),
        }
    }

    pub(super) fn working_set(&self) -> u64 {
        self.memory_total.saturating_sub(self.memory_available)
    }
}

pub(super) async fn summary(server: &Server) -> Result<Response<Body>, HttpError> {
    let node = Node::read().await?;
    let samples = samples(server).await?;
    let now = Timestamp::now().to_string();
    let mut pods: BTreeMap<(&str, &str, &str), Vec<&Sample>> = BTreeMap::new();
    for sample in &samples {
        pods.entry((&sample.namespace, &sample.pod, &sample.uid)).or_default().push(sample);
    }
    let pods: Vec<Value> = pods.into_values().map(|samples| pod(server, &samples)).collect();
    Ok(json_body(&json!({
        "node": {
            "nodeName": server.node_name,
            "cpu": { "time": now, "usageCoreNanoSeconds": node.cpu_nanos },
            "memory": {
                "time": now,
                "availableBytes": node.memory_available,
                "usageBytes": node.memory_total.saturating_sub(node.memory_free),
                "workingSetBytes": node.working_set(),
            },
            "fs": file_system(&now),
        },
        "pods": pods,
    })))
}

fn pod(server: &Server, samples: &[&Sample]) -> Value {
    let Some(first) = samples.first() else { return Value::Null };
    let sum = |of: fn(&Sample) -> Option<u64>| samples.iter().filter_map(|sample| of(sample)).sum::<u64>();
    let time = time(first.time_nanos);
    let found = server.pods.find(&first.namespace, &first.pod, Some(&first.uid));
    let started = found.and_then(|pod| pod.pod.status.as_ref()?.start_time.clone());
    json!({
        "podRef": { "name": first.pod, "namespace": first.namespace, "uid": first.uid },
        "startTime": started,
        "containers": samples.iter().map(|sample| container(sample)).collect::<Vec<_>>(),
        "cpu": {
            "time": time,
            "usageNanoCores": sum(|s| s.cpu_nano_cores),
            "usageCoreNanoSeconds": sum(|s| s.cpu_nanos),
        },
        "memory": {
            "time": time, "usageBytes": sum(|s| s.usage), "workingSetBytes": sum(|s| s.working_set),
            "rssBytes": sum(|s| s.rss),
        },
    })
}

fn container(sample: &Sample) -> Value {
    let time = time(sample.time_nanos);
    json!({
        "name": sample.container,
        "cpu": {
            "time": time, "usageNanoCores": sample.cpu_nano_cores, "usageCoreNanoSeconds": sample.cpu_nanos,
        },
        "memory": {
            "time": time, "usageBytes": sample.usage, "workingSetBytes": sample.working_set,
            "rssBytes": sample.rss, "pageFaults": sample.page_faults,
            "majorPageFaults": sample.major_page_faults,
        },
        "rootfs": { "time": time, "usedBytes": sample.rootfs_used },
    })
}

fn time(nanos: i64) -> String {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// The root file system.
fn file_system(now: &str) -> Value {
    let Ok(fs) = statvfs("/") else { return Value::Null };
    let size = fs.fragment_size();
    json!({
        "time": now,
        "availableBytes": fs.blocks_available() * size,
        "capacityBytes": fs.blocks() * size,
        "usedBytes": fs.blocks().saturating_sub(fs.blocks_free()) * size,
        "inodes": fs.files(),
        "inodesFree": fs.files_free(),
        "inodesUsed": fs.files().saturating_sub(fs.files_free()),
    })
}
