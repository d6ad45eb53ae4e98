//! What pods use, measured once when somebody has to go.

use super::rank::{Candidate, Usage};
use crate::blocking::reading;
use crate::cri::api;
use crate::kubelet::{Kubelet, PodEntry};
use crate::pod_facts::observed::State;
use crate::pod_facts::qos;
use crate::server::Cgroups;
use crate::volume_stats::{Files, VolumeStats};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Nobody, if the runtime does not say what its containers use: who goes would be a guess.
pub async fn measure(kubelet: &Arc<Kubelet>, slots: Vec<PodEntry>) -> Vec<Candidate> {
    let stats = match kubelet.runtime.list_container_stats().await {
        Ok(stats) => stats,
        Err(error) => {
            tracing::warn!(%error, "nothing is known of what pods use");
            return Vec::new();
        }
    };
    let by_id: HashMap<String, api::ContainerStats> =
        stats.into_iter().filter_map(|s| Some((s.attributes.as_ref()?.id.clone(), s))).collect();
    let (pods_dir, volumes) = (kubelet.config.pods_dir(), kubelet.volume_stats.clone());
    volumes.retain(|uid| kubelet.register.lock().contains_key(uid));
    let names = kubelet.cgroups.names();
    let count = move || {
        let (cgroups, volumes) = (Cgroups::here(), volumes.as_ref());
        let count = |slot: PodEntry| {
            let processes = cgroups.processes(&names.pod(&slot.pod));
            candidate(slot, &by_id, &pods_dir, volumes, processes)
        };
        slots.into_iter().map(count).collect()
    };
    reading("what pods use", count).await.unwrap_or_default()
}

/// Reads disks.
fn candidate(
    slot: PodEntry,
    stats: &HashMap<String, api::ContainerStats>,
    pods_dir: &Path,
    volumes: &VolumeStats,
    processes: u64,
) -> Candidate {
    let pod = slot.pod.clone();
    let running = slot.observed.containers.iter().filter(|c| c.state == State::Running);
    let containers = running.map(|seen| {
        let spec =
            pod.spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
        let spec = spec.into_iter().find(|c| c.name == seen.name);
        let asked = |resource| {
            let amount = spec.map_or(0, |c| qos::amount(c, false, resource).units());
            u64::try_from(amount).unwrap_or(0)
        };
        let used = stats.get(&seen.id);
        let value = |value: Option<&api::UInt64Value>| value.map_or(0, |v| v.value);
        let layer = used.and_then(|s| s.writable_layer.as_ref());
        Usage {
            name: seen.name.clone(),
            memory: value(used.and_then(|s| s.memory.as_ref()?.working_set_bytes.as_ref())),
            memory_request: asked("memory"),
            layer: Files {
                bytes: value(layer.and_then(|l| l.used_bytes.as_ref())),
                inodes: value(layer.and_then(|l| l.inodes_used.as_ref())),
            },
            logs: files(&seen.log_path),
            disk_request: asked("ephemeral-storage"),
        }
    });
    let containers = containers.collect();
    let volumes = volumes.of(pods_dir, &pod, &jiff::Timestamp::now().to_string());
    Candidate { slot, containers, volumes, processes }
}

/// The log and the rotated ones.
fn files(log: &Path) -> Files {
    let (bytes, inodes) = crate::log_files::written(log);
    Files { bytes, inodes }
}
