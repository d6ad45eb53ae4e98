//! Pods that take more of the node's disk than they are allowed: `sizeLimit` of an emptyDir, limits of
//! `ephemeral-storage` (<https://kubernetes.io/docs/concepts/storage/ephemeral-storage/>).

use super::rank::Candidate;
use super::usage;
use crate::configuration::eviction::HARD_GRACE;
use crate::kubelet::{Kubelet, PodEntry};
use crate::pod_facts::critical::is_critical;
use crate::pod_facts::qos;
use crate::pod_facts::termination::{Eviction, is_over};
use coracle_api::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between looks; upstream looks as often. Volumes were counted within the last minute, and only pods with such limits
/// cost anything.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks until `stop`.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_some() {
        let slots: Vec<PodEntry> =
            kubelet.register.lock().values().filter(|slot| counts(slot)).cloned().collect();
        if slots.is_empty() {
            continue;
        }
        let apart = kubelet.observer.look().await.imagefs_apart;
        for candidate in usage::measure(&kubelet, slots).await {
            if let Some(message) = exceeded(&candidate, apart) {
                kubelet.recorder.warning(candidate.slot.pod.as_ref(), "Evicted", message.clone());
                let eviction =
                    Eviction { reason: Eviction::EVICTED, message, grace: Some(HARD_GRACE), disrupts: false };
                candidate.slot.inbox.evict(eviction);
            }
        }
    }
}

fn counts(slot: &PodEntry) -> bool {
    let pod = &slot.pod;
    let spec = pod.spec.as_ref();
    let limited = |c: &Container| limit(c) > 0;
    let volumes = spec.is_some_and(|s| s.volumes.iter().flatten().any(|v| size_limit(v).is_some()));
    let containers = spec.is_some_and(|s| s.containers.iter().any(limited));
    (volumes || containers) && !is_over(pod) && !is_critical(pod) && !slot.inbox.is_evicted()
}

fn limit(container: &Container) -> u64 {
    u64::try_from(qos::amount(container, true, "ephemeral-storage").units()).unwrap_or(0)
}

/// Of an emptyDir; its bytes, and as it is written.
fn size_limit(volume: &k8s_openapi::api::core::v1::Volume) -> Option<(u64, &str)> {
    let text = volume.empty_dir.as_ref()?.size_limit.as_ref()?.0.as_str();
    let bytes = u64::try_from(text.parse::<Quantity>().ok()?.units()).ok().filter(|bytes| *bytes > 0)?;
    Some((bytes, text))
}

/// The first limit that the pod is beyond, in upstream's order and words. `apart`: what containers write lies on a file
/// system of its own, and counts against the pod's limit alone.
fn exceeded(candidate: &Candidate, apart: bool) -> Option<String> {
    let pod: &Pod = &candidate.slot.pod;
    let spec = pod.spec.as_ref()?;
    for volume in spec.volumes.iter().flatten() {
        let used = candidate.volumes.iter().find(|v| v.name == volume.name).map_or(0, |v| v.files.bytes);
        if let Some((limit, text)) = size_limit(volume)
            && used > limit
        {
            return Some(format!("Usage of EmptyDir volume {:?} exceeds the limit {text:?}. ", volume.name));
        }
    }
    let whole: u64 = spec.containers.iter().map(limit).sum();
    if whole > 0 && candidate.disk() > whole {
        let whole = super::binary(whole);
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {whole}. "
        ));
    }
    let beyond = spec.containers.iter().find(|c| {
        let usage = candidate.containers.iter().find(|u| u.name == c.name);
        let used = usage.map_or(0, |u| if apart { u.logs.bytes } else { u.disk() });
        limit(c) > 0 && used > limit(c)
    });
    beyond.map(|c| {
        let limit = super::binary(limit(c)).to_string();
        format!("Container {} exceeded its local ephemeral storage limit {limit:?}. ", c.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::rank::Usage;
    use crate::volume_stats::{Files, Share};
    use serde_json::{Value, json};

    fn told(layer: u64, scratch: u64, apart: bool) -> Option<String> {
        let limits = json!({ "limits": { "ephemeral-storage": "1Ki" } });
        let pod = json!({ "metadata": { "name": "p" }, "spec": {
            "containers": [{ "name": "a", "resources": limits }, { "name": "b", "resources": limits }],
            "volumes": [{ "name": "scratch", "emptyDir": { "sizeLimit": "1k" } }] } });
        let slot = PodEntry::new(Arc::new(serde_json::from_value(pod).unwrap()));
        assert!(counts(&slot));
        let containers = vec![Usage {
            name: "a".to_owned(),
            layer: Files { bytes: layer, inodes: 1 },
            ..Usage::default()
        }];
        let files = Files { bytes: scratch, inodes: 1 };
        let volumes = vec![Share { name: "scratch".to_owned(), entry: Value::Null, files, ephemeral: true }];
        exceeded(&Candidate { slot, containers, volumes, processes: 0 }, apart)
    }

    #[test]
    fn the_limit_that_is_exceeded_is_named() {
        assert_eq!(told(1024, 1000, false), None);
        assert_eq!(
            told(0, 1001, false).unwrap(),
            "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1k\". "
        );
        assert_eq!(
            told(1049, 1000, false).unwrap(),
            "Pod ephemeral local storage usage exceeds the total limit of containers 2Ki. "
        );
        assert_eq!(
            told(1025, 0, false).unwrap(),
            "Container a exceeded its local ephemeral storage limit \"1Ki\". "
        );
        assert_eq!(told(1025, 0, true), None, "its layer is on the images' disk");
        assert!(told(2049, 0, true).is_some(), "of the whole pod it counts");
    }
}
