//! What containers and pods use, as the runtime and their control groups say.

use super::cgroup::{Account, Cgroups};
use super::node::Interface;
use crate::blocking::reading;
use crate::cgroup_names::Names;
use crate::cri::api;
use crate::pods_api::PodHandle;
use crate::server::Server;
use crate::server::error::HttpError;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One container's use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub container: String,
    pub id: String,
    pub image: String,
    /// Of the cpu figures, in nanoseconds since 1970.
    pub time_nanos: i64,
    /// When the container started, in seconds since 1970.
    pub started: Option<i64>,
    pub cpu_nanos: Option<u64>,
    pub cpu_nano_cores: Option<u64>,
    pub working_set: Option<u64>,
    pub usage: Option<u64>,
    pub available: Option<u64>,
    pub rss: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub swap: Option<u64>,
    pub rootfs_used: Option<u64>,
    pub rootfs_inodes: Option<u64>,
    /// Bytes and number of its log files.
    pub logs: (u64, u64),
    /// Where its control group is.
    pub cgroup: String,
    /// Of that group, if it is asked for and there.
    pub account: Option<Account>,
}

/// A pod with what its containers use.
#[derive(Clone, Debug, Default)]
pub struct PodSample {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub handle: Option<PodHandle>,
    pub containers: Vec<Sample>,
    pub account: Option<Account>,
    pub network: Vec<api::NetworkInterfaceUsage>,
    pub processes: Option<u64>,
}

impl PodSample {
    /// By the pod's own group, which its sandbox belongs to; else the sum of its containers.
    pub fn cpu_nanos(&self) -> u64 {
        let sum = || self.containers.iter().filter_map(|c| c.cpu_nanos).sum();
        self.account.as_ref().map_or_else(sum, |account| account.cpu_nanos)
    }

    pub fn working_set(&self) -> u64 {
        let sum = || self.containers.iter().filter_map(|c| c.working_set).sum();
        self.account.as_ref().map_or_else(sum, |account| account.working_set)
    }

    /// The pod's own group, as a container without a name.
    pub fn whole(&self, names: Names) -> Option<Sample> {
        let account = self.account.clone()?;
        let mut whole = Sample {
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            uid: self.uid.clone(),
            cgroup: names.pod(&self.handle.as_ref()?.pod),
            time_nanos: self.time_nanos(),
            account: Some(account),
            ..Sample::default()
        };
        fill(&mut whole);
        Some(whole)
    }

    /// When the figures were read, in nanoseconds since 1970.
    pub fn time_nanos(&self) -> i64 {
        self.containers.iter().map(|c| c.time_nanos).max().unwrap_or(0)
    }
}

/// The use of the newest attempt of every container, by pod, in order of namespace and name. Containers that the runtime
/// still holds of earlier attempts and of pods that are gone are left out: their names would come twice.
pub async fn pods(server: &Server) -> Result<Vec<PodSample>, HttpError> {
    let stats = server.pods.container_stats().await?;
    let names = server.pods.cgroup_names();
    let mut sandboxes = sandboxes(server).await;
    let mut pods: BTreeMap<(String, String, String), PodSample> = BTreeMap::new();
    for mut sample in stats.iter().filter_map(sample) {
        let Some(handle) = server.pods.find(&sample.namespace, &sample.pod, Some(&sample.uid)) else {
            continue;
        };
        let Some(found) = handle.containers.iter().find(|container| container.id == sample.id) else {
            continue;
        };
        sample.logs = crate::log_files::written(&found.log_path);
        if let Some(status) = status(&handle.pod, &sample.container) {
            sample.image.clone_from(&status.image);
            let running = status.state.as_ref().and_then(|state| state.running.as_ref());
            sample.started = running.and_then(|r| Some(r.started_at.as_ref()?.0.as_second()));
        }
        sample.cgroup = names.container(&names.pod(&handle.pod), &sample.id);
        let key = (sample.namespace.clone(), sample.pod.clone(), sample.uid.clone());
        let pod = pods.entry(key).or_insert_with(|| {
            let linux = sandboxes.remove(&sample.uid);
            PodSample {
                namespace: sample.namespace.clone(),
                pod: sample.pod.clone(),
                uid: sample.uid.clone(),
                network: linux.as_ref().map(interfaces).unwrap_or_default(),
                processes: linux.and_then(|l| Some(l.process?.process_count?.value)),
                handle: Some(handle),
                ..PodSample::default()
            }
        });
        pod.containers.push(sample);
    }
    let mut pods: Vec<PodSample> = pods.into_values().collect();
    pods.iter_mut().for_each(|pod| pod.containers.sort_by(|a, b| a.container.cmp(&b.container)));
    Ok(accounted(pods, &server.cgroups, names).await)
}

/// With the accounts of control groups, which are files to be read.
async fn accounted(pods: Vec<PodSample>, cgroups: &Arc<Cgroups>, names: Names) -> Vec<PodSample> {
    let (cgroups, kept) = (cgroups.clone(), pods.clone());
    let read = reading("control groups", move || {
        let mut pods = pods;
        for pod in &mut pods {
            let group = pod.handle.as_ref().map(|handle| names.pod(&handle.pod));
            pod.account = group.and_then(|group| cgroups.read(&group));
            for container in &mut pod.containers {
                container.account = cgroups.read(&container.cgroup);
                fill(container);
            }
            if pod.network.is_empty() {
                pod.network = seen(&cgroups, pod);
            }
        }
        pods
    });
    read.await.unwrap_or(kept)
}

/// The network as a process of the pod sees it, unless that is the machine's. Some runtimes tell nothing of any pod while one
/// of them comes or goes.
fn seen(cgroups: &Cgroups, pod: &PodSample) -> Vec<api::NetworkInterfaceUsage> {
    if pod.handle.as_ref().is_none_or(|handle| handle.host_network) {
        return Vec::new();
    }
    let mut all = pod.containers.iter().map(|container| cgroups.interfaces(&container.cgroup));
    let mut interfaces = all.find(|interfaces| !interfaces.is_empty()).unwrap_or_default();
    // As runtimes call the pod's own.
    interfaces.sort_by_key(|interface| interface.name != "eth0");
    let number = |value| Some(api::UInt64Value { value });
    let usage = |of: Interface| api::NetworkInterfaceUsage {
        name: of.name,
        rx_bytes: number(of.rx_bytes),
        rx_errors: number(of.rx_errors),
        tx_bytes: number(of.tx_bytes),
        tx_errors: number(of.tx_errors),
    };
    interfaces.into_iter().map(usage).collect()
}

/// What the runtime did not say, as its control group does.
fn fill(sample: &mut Sample) {
    let Some(account) = &sample.account else { return };
    sample.cpu_nanos = sample.cpu_nanos.or(Some(account.cpu_nanos));
    sample.working_set = sample.working_set.or(Some(account.working_set));
    sample.usage = sample.usage.or(Some(account.memory_usage));
    sample.rss = sample.rss.or(Some(account.rss));
    sample.page_faults = sample.page_faults.or(Some(account.page_faults));
    sample.major_page_faults = sample.major_page_faults.or(Some(account.major_page_faults));
    sample.swap = sample.swap.or(Some(account.swap));
    if sample.time_nanos == 0 {
        sample.time_nanos = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0);
    }
}

/// Networks and processes by the pod's UID; empty with runtimes that do not tell.
async fn sandboxes(server: &Server) -> BTreeMap<String, api::LinuxPodSandboxStats> {
    let stats = server.pods.pod_sandbox_stats().await.unwrap_or_default();
    let uid = |stats: &api::PodSandboxStats| Some(stats.attributes.as_ref()?.metadata.as_ref()?.uid.clone());
    stats.into_iter().filter_map(|stats| Some((uid(&stats)?, stats.linux?))).collect()
}

/// The sandbox's main interface first.
fn interfaces(linux: &api::LinuxPodSandboxStats) -> Vec<api::NetworkInterfaceUsage> {
    let Some(network) = &linux.network else { return Vec::new() };
    network.default_interface.iter().chain(&network.interfaces).cloned().collect()
}

fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == container)
}

fn sample(stats: &api::ContainerStats) -> Option<Sample> {
    let attributes = stats.attributes.as_ref()?;
    let label = |key: &str| attributes.labels.get(key).cloned();
    let (cpu, memory) = (stats.cpu.as_ref(), stats.memory.as_ref());
    let layer = stats.writable_layer.as_ref();
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
        available: memory
            .and_then(|memory| value(memory.available_bytes.as_ref()))
            .filter(|bytes| *bytes > 0),
        rss: memory.and_then(|memory| value(memory.rss_bytes.as_ref())),
        page_faults: memory.and_then(|memory| value(memory.page_faults.as_ref())),
        major_page_faults: memory.and_then(|memory| value(memory.major_page_faults.as_ref())),
        swap: stats.swap.as_ref().and_then(|swap| value(swap.swap_usage_bytes.as_ref())),
        rootfs_used: layer.and_then(|layer| value(layer.used_bytes.as_ref())),
        rootfs_inodes: layer.and_then(|layer| value(layer.inodes_used.as_ref())),
        ..Sample::default()
    })
}

pub fn value(value: Option<&api::UInt64Value>) -> Option<u64> {
    value.map(|value| value.value)
}
