//! Says of a pod that it has come to the limit of its processes: inside it, programs only see that a fork fails.

use crate::blocking::reading;
use crate::cgroup::processes::PidsLimit;
use crate::cgroup_names::Names;
use crate::kubelet::Kubelet;
use coracle_client::events::reference;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between looks; as often as eviction looks.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks until `stop`, where there is a limit.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let Some(limit) = kubelet.pids.clone() else { return };
    // What was refused before this process started is told once more, which says when it was noticed.
    let mut known = HashMap::new();
    while stop.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_some() {
        let pods: Vec<_> = kubelet.register.lock().values().map(|slot| slot.pod.clone()).collect();
        let (of, names) = (limit.clone(), kubelet.cgroups.names());
        let seen = reading("refused processes", move || count(&of, names, pods)).await.unwrap_or_default();
        for (pod, refused) in &seen {
            let before = pod.metadata.uid.as_ref().and_then(|uid| known.get(uid)).copied().unwrap_or(0);
            if *refused > before {
                let text = format!(
                    "The pod has {} processes and threads, which is its limit (podPidsLimit): {} more were refused",
                    limit.limit(),
                    refused - before
                );
                kubelet.recorder.event(reference(pod.as_ref()), "Warning", "PodPidsLimitReached", text);
            }
        }
        known = seen
            .into_iter()
            .filter_map(|(pod, refused)| Some((pod.metadata.uid.clone()?, refused)))
            .collect();
    }
}

fn count(limit: &PidsLimit, names: Names, pods: Vec<Arc<Pod>>) -> Vec<(Arc<Pod>, u64)> {
    let counted = pods.into_iter().map(|pod| {
        let refused = limit.refused(&names.pod(&pod));
        (pod, refused)
    });
    counted.collect()
}
