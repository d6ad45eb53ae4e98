//! `/stats/summary`: what the node, its pods and their containers use (upstream's stats v1alpha1).

mod cgroup;
mod containers;
mod io;
mod node;
mod pressure;
mod processes;
mod rates;

pub use cgroup::Cgroups;

pub(super) use cgroup::Account;
pub(super) use containers::{PodSample, Sample, pods, value};
pub(super) use io::DeviceUse;
pub(super) use node::{Interface, Node};
pub(super) use pressure::{Pressure, Pressures};
pub(super) use processes::Processes;
pub(super) use rates::Rates;

use super::Server;
use super::error::HttpError;
use super::routes::json_body;
use crate::cri::api;
use crate::volume_stats::{Files, Share, file_system};
use axum::body::Body;
use http::Response;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// The node's own name among those whose use is remembered; no pod has an empty UID.
const NODE: &str = "";
/// What those of groups that are no pod's begin with.
const SYSTEM: &str = "/";

/// With `only_cpu_and_memory=true` in the query, nothing else is told.
pub(super) async fn summary(server: &Arc<Server>, query: &str) -> Result<Response<Body>, HttpError> {
    let node = Node::read().await?;
    let pods = pods(server).await?;
    let kept =
        |name: &str| name == NODE || name.starts_with(SYSTEM) || pods.iter().any(|pod| pod.uid == name);
    server.rates.retain(kept);
    let images = server.pods.runtime().image_fs_info().await.unwrap_or_default();
    let now = Timestamp::now();
    let short =
        form_urlencoded::parse(query.as_bytes()).any(|(k, v)| k == "only_cpu_and_memory" && v == "true");
    let (pods, volumes) = if short { (pods, Vec::new()) } else { volumes(server, pods).await? };
    let of = |at: usize| volumes.get(at).map_or(&[][..], Vec::as_slice);
    let pods: Vec<Value> = pods.iter().enumerate().map(|(at, sample)| pod(server, sample, of(at))).collect();
    let mut summary = compact(json!({ "node": node_json(server, &node, &images, now), "pods": pods }));
    if short {
        keep_cpu_and_memory(&mut summary);
    }
    Ok(json_body(&summary))
}

/// The pods again, and what their volumes use.
async fn volumes(
    server: &Arc<Server>,
    pods: Vec<PodSample>,
) -> Result<(Vec<PodSample>, Vec<Vec<Share>>), HttpError> {
    let server = server.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let stats = server.pods.volume_stats();
        stats.retain(|uid| pods.iter().any(|pod| pod.uid == uid));
        let of = |sample: &PodSample| {
            let handle = sample.handle.as_ref()?;
            Some(stats.of(&server.pods_dir, &handle.pod, &time(sample.time_nanos())))
        };
        let volumes = pods.iter().map(|sample| of(sample).unwrap_or_default()).collect();
        (pods, volumes)
    });
    reading.await.map_err(|error| HttpError::internal(error.to_string()))
}

/// Takes away what is neither cpu nor memory, nor says whose they are.
fn keep_cpu_and_memory(value: &mut Value) {
    const KEPT: [&str; 10] = [
        "node",
        "nodeName",
        "pods",
        "podRef",
        "name",
        "startTime",
        "systemContainers",
        "containers",
        "cpu",
        "memory",
    ];
    match value {
        Value::Object(map) => {
            map.retain(|key, _| KEPT.contains(&key.as_str()));
            let parts = map.iter_mut().filter(|(key, _)| {
                matches!(key.as_str(), "node" | "pods" | "systemContainers" | "containers")
            });
            parts.for_each(|(_, part)| keep_cpu_and_memory(part));
        }
        Value::Array(list) => list.iter_mut().for_each(keep_cpu_and_memory),
        _ => {}
    }
}

/// Without fields that nothing is known for.
fn compact(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let known = map.into_iter().filter(|(_, value)| !value.is_null());
            known.map(|(key, value)| (key, compact(value))).collect()
        }
        Value::Array(list) => list.into_iter().map(compact).collect(),
        other => other,
    }
}

fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(0)
}

fn node_json(server: &Server, node: &Node, images: &[api::FilesystemUsage], now: Timestamp) -> Value {
    let time = now.to_string();
    let nano_cores = server.rates.next(NODE, nanos(now), node.cpu_nanos);
    let fs = file_system("/", &time);
    json!({
        "nodeName": server.node_name,
        "startTime": Timestamp::from_second(node.boot_second).ok().map(|t| t.to_string()),
        "systemContainers": system_containers(server, &time),
        "cpu": {
            "time": time, "usageNanoCores": nano_cores, "usageCoreNanoSeconds": node.cpu_nanos,
            "psi": node.pressures.cpu.as_ref().map(Pressure::to_json),
        },
        "io": io_json(Some(&node.pressures), &time),
        "memory": {
            "time": time,
            "availableBytes": node.memory_available,
            "usageBytes": node.memory_total.saturating_sub(node.memory_free),
            "workingSetBytes": node.working_set(),
            "rssBytes": node.rss,
            "pageFaults": node.page_faults,
            "majorPageFaults": node.major_page_faults,
            "psi": node.pressures.memory.as_ref().map(Pressure::to_json),
        },
        "swap": { "time": time, "swapAvailableBytes": node.swap_free, "swapUsageBytes": node.swap_used() },
        "network": node.network(&time),
        "runtime": { "imageFs": image_fs(images, &time), "containerFs": image_fs(images, &time) },
        "rlimit": { "time": time, "maxpid": node.most_tasks, "curproc": node.tasks },
        "fs": fs,
    })
}

/// All pods together, and this process where it has a group of its own, under upstream's names.
fn system_containers(server: &Server, time: &str) -> Vec<Value> {
    let groups = [("pods", Some(server.pods.cgroup_names().all())), ("kubelet", server.cgroups.own())];
    let known = groups.into_iter().filter_map(|(name, group)| Some((name, group?)));
    known.filter_map(|(name, group)| system_container(server, name, &group, time)).collect()
}

fn system_container(server: &Server, name: &str, group: &str, time: &str) -> Option<Value> {
    let account = server.cgroups.read(group)?;
    let made = server.cgroups.made(group).and_then(|second| Timestamp::from_second(second).ok());
    let now = time.parse().map(nanos).unwrap_or(0);
    let nano_cores = server.rates.next(group, now, account.cpu_nanos);
    Some(json!({
        "name": name,
        "startTime": made.map(|made| made.to_string()),
        "cpu": {
            // Upstream has a number at the first reading, too.
            "time": time, "usageNanoCores": nano_cores.unwrap_or(0), "usageCoreNanoSeconds": account.cpu_nanos,
            "psi": account.pressures.cpu.as_ref().map(Pressure::to_json),
        },
        "memory": memory_json(&account, time),
        "swap": { "time": time, "swapUsageBytes": account.swap },
        "io": io_json(Some(&account.pressures), time),
    }))
}

fn memory_json(account: &Account, time: &str) -> Value {
    json!({
        "time": time,
        "availableBytes": available(account),
        "usageBytes": account.memory_usage,
        "workingSetBytes": account.working_set,
        "rssBytes": account.rss,
        "pageFaults": account.page_faults,
        "majorPageFaults": account.major_page_faults,
        "psi": account.pressures.memory.as_ref().map(Pressure::to_json),
    })
}

/// What a group may still use of its memory; `None` without a limit.
fn available(account: &Account) -> Option<u64> {
    account.memory_limit.map(|limit| limit.saturating_sub(account.working_set))
}

fn io_json(pressures: Option<&Pressures>, time: &str) -> Value {
    let io = pressures.and_then(|pressures| pressures.io.as_ref());
    io.map_or(Value::Null, |io| json!({ "time": time, "psi": io.to_json() }))
}

/// The file system of the images, with what they take of it.
fn image_fs(images: &[api::FilesystemUsage], time: &str) -> Value {
    let Some(first) = images.first() else { return Value::Null };
    let mount = first.fs_id.as_ref().map_or("/", |id| id.mountpoint.as_str());
    let mut fs = file_system(mount, time);
    if fs.is_object() {
        fs["usedBytes"] = value(first.used_bytes.as_ref()).into();
        fs["inodesUsed"] = value(first.inodes_used.as_ref()).into();
    }
    fs
}

fn pod(server: &Server, sample: &PodSample, volumes: &[Share]) -> Value {
    let time_nanos = sample.time_nanos();
    let time = time(time_nanos);
    let sum = |of: fn(&Sample) -> Option<u64>| sample.containers.iter().filter_map(of).sum::<u64>();
    let started = sample.handle.as_ref().and_then(|h| h.pod.status.as_ref()?.start_time.clone());
    let nano_cores = server.rates.next(&sample.uid, time_nanos, sample.cpu_nanos());
    let of_containers = sample.containers.iter().filter_map(|c| c.cpu_nano_cores).reduce(|a, b| a + b);
    let account = sample.account.as_ref();
    let logs = sample.containers.iter().fold((0, 0), |all, c| (all.0 + c.logs.0, all.1 + c.logs.1));
    let fs = file_system("/", &time);
    let of_volumes = volumes.iter().filter(|s| s.ephemeral).fold(Files::default(), |all, s| all + s.files);
    let inodes = sum(|s| s.rootfs_inodes) + logs.1 + of_volumes.inodes;
    let shown =
        (!volumes.is_empty()).then(|| volumes.iter().map(|share| share.entry.clone()).collect::<Vec<_>>());
    json!({
        "podRef": { "name": sample.pod, "namespace": sample.namespace, "uid": sample.uid },
        "startTime": started,
        "containers": sample.containers.iter().map(|c| container(c, &fs)).collect::<Vec<_>>(),
        "cpu": {
            "time": time, "usageNanoCores": nano_cores.or(of_containers), "usageCoreNanoSeconds": sample.cpu_nanos(),
            "psi": account.and_then(|account| account.pressures.cpu.as_ref()).map(Pressure::to_json),
        },
        "memory": account.map_or_else(|| json!({
            "time": time, "usageBytes": sum(|s| s.usage), "workingSetBytes": sample.working_set(), "rssBytes": sum(|s| s.rss),
        }), |account| memory_json(account, &time)),
        "io": io_json(account.map(|account| &account.pressures), &time),
        "swap": { "time": time, "swapUsageBytes": account.map_or_else(|| sum(|s| s.swap), |account| account.swap) },
        "network": network(&sample.network, &time),
        "process_stats": { "process_count": sample.processes.or(account.map(|account| account.processes)) },
        "volume": shown,
        "ephemeral-storage": with_used(&fs, sum(|s| s.rootfs_used) + logs.0 + of_volumes.bytes, Some(inodes)),
    })
}

fn network(interfaces: &[api::NetworkInterfaceUsage], time: &str) -> Value {
    let entry = |interface: &api::NetworkInterfaceUsage| {
        json!({ "name": interface.name, "rxBytes": value(interface.rx_bytes.as_ref()),
            "rxErrors": value(interface.rx_errors.as_ref()), "txBytes": value(interface.tx_bytes.as_ref()),
            "txErrors": value(interface.tx_errors.as_ref()) })
    };
    let Some(first) = interfaces.first() else { return Value::Null };
    let mut network = entry(first);
    network["time"] = time.into();
    network["interfaces"] = interfaces.iter().map(entry).collect::<Vec<_>>().into();
    network
}

/// A part of a file system.
fn with_used(fs: &Value, bytes: u64, inodes: Option<u64>) -> Value {
    let mut part = fs.clone();
    if part.is_object() {
        part["usedBytes"] = bytes.into();
        part["inodesUsed"] = inodes.into();
    }
    part
}

fn container(sample: &Sample, fs: &Value) -> Value {
    let time = time(sample.time_nanos);
    let started = sample.started.and_then(|second| Timestamp::from_second(second).ok());
    let pressures = sample.account.as_ref().map(|account| &account.pressures);
    json!({
        "name": sample.container,
        "startTime": started.map(|t| t.to_string()),
        "cpu": {
            "time": time, "usageNanoCores": sample.cpu_nano_cores, "usageCoreNanoSeconds": sample.cpu_nanos,
            "psi": pressures.and_then(|all| all.cpu.as_ref()).map(Pressure::to_json),
        },
        "io": io_json(pressures, &time),
        "memory": {
            "time": time, "availableBytes": sample.available.or_else(|| available(sample.account.as_ref()?)), "usageBytes": sample.usage,
            "workingSetBytes": sample.working_set, "rssBytes": sample.rss, "pageFaults": sample.page_faults,
            "majorPageFaults": sample.major_page_faults,
            "psi": pressures.and_then(|all| all.memory.as_ref()).map(Pressure::to_json),
        },
        "swap": { "time": time, "swapUsageBytes": sample.swap },
        "rootfs": sample.rootfs_used.map(|bytes| with_used(fs, bytes, sample.rootfs_inodes)),
        "logs": with_used(fs, sample.logs.0, Some(sample.logs.1)),
    })
}

fn time(nanos: i64) -> String {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}
