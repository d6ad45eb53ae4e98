//! What pods use, measured once when somebody has to go.

use super::rank::{Candidate, Usage, VolumeUsage};
use crate::container::resources::cgroup_parent;
use crate::cri::api;
use crate::kubelet::{Kubelet, Slot};
use crate::pod::observed::State;
use crate::pod::qos;
use crate::server::volume_bytes;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Nobody, if the runtime does not say what its containers use: who goes would be a guess.
pub async fn measure(kubelet: &Arc<Kubelet>, slots: Vec<Slot>) -> Vec<Candidate> {
    let stats = match kubelet.runtime.list_container_stats().await {
        Ok(stats) => stats,
        Err(error) => {
            tracing::warn!(%error, "nothing is known of what pods use");
            return Vec::new();
        }
    };
    let by_id: HashMap<String, api::ContainerStats> =
        stats.into_iter().filter_map(|s| Some((s.attributes.as_ref()?.id.clone(), s))).collect();
    let pods_dir = kubelet.config.pods_dir();
    let count = move || slots.into_iter().map(|slot| candidate(slot, &by_id, &pods_dir)).collect();
    tokio::task::spawn_blocking(count).await.unwrap_or_default()
}

/// Reads disks.
fn candidate(slot: Slot, stats: &HashMap<String, api::ContainerStats>, pods_dir: &Path) -> Candidate {
    let pod = slot.pod.clone();
    let running = slot.observed.containers.iter().filter(|c| c.state == State::Running);
    let containers = running.map(|seen| {
        let spec =
            pod.spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
        let spec = spec.into_iter().find(|c| c.name == seen.name);
        let asked = |resource| {
            let amount = spec.map_or(0, |c| qos::amount(c, false, resource).ceil_div(1));
            u64::try_from(amount).unwrap_or(0)
        };
        let used = stats.get(&seen.id);
        let memory = used.and_then(|s| s.memory.as_ref()?.working_set_bytes.as_ref());
        let layer = used.and_then(|s| s.writable_layer.as_ref()?.used_bytes.as_ref());
        Usage {
            name: seen.name.clone(),
            memory: memory.map_or(0, |v| v.value),
            memory_request: asked("memory"),
            disk: layer.map_or(0, |v| v.value) + files(seen.log_path.parent()),
            disk_request: asked("ephemeral-storage"),
        }
    });
    let containers = containers.collect();
    let volumes = volume_bytes(pods_dir, &pod)
        .into_iter()
        .map(|(name, bytes, ephemeral)| VolumeUsage { name, bytes, ephemeral })
        .collect();
    let processes = processes(&pod);
    Candidate { slot, containers, volumes, processes }
}

/// Bytes of the files in a folder.
fn files(folder: Option<&Path>) -> u64 {
    let entries = folder.and_then(|f| std::fs::read_dir(f).ok()).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Of the pod's cgroup, whichever version the kernel has.
fn processes(pod: &Pod) -> u64 {
    let group = cgroup_parent(pod);
    let found = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"]
        .iter()
        .find_map(|root| std::fs::read_to_string(format!("{root}{group}/pids.current")).ok());
    found.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
