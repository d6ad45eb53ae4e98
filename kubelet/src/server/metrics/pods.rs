//! How many pods this kubelet has, in which states, and what they have: counted when somebody asks.

use crate::blocking::reading;
use crate::log_files;
use crate::pod_facts::labels::is_static;
use crate::pod_facts::termination::is_over;
use crate::server::Server;
use coracle_metrics::Text;
use coracle_storage::volumes::Count;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

const BOTH: [(bool, &str); 2] = [(false, ""), (true, "true")];

/// Upstream's families for whom dashboards look. `orphans` are the UIDs of pods that are gone from their source.
pub(super) fn write(page: &mut Text, pods: &[Arc<Pod>], orphans: &HashSet<String>) {
    let is_orphan = |pod: &Pod| pod.metadata.uid.as_ref().is_some_and(|uid| orphans.contains(uid));
    let wanted: Vec<&Pod> = pods.iter().map(Arc::as_ref).filter(|pod| !is_orphan(pod)).collect();
    by_origin(page, "kubelet_desired_pods", "Number of pods that this kubelet is to run", &wanted);
    let active: Vec<&Pod> = wanted.iter().copied().filter(|pod| !is_over(pod)).collect();
    by_origin(page, "kubelet_active_pods", "Number of pods that count when others are admitted", &active);
    let mirrored = pods.iter().filter(|pod| is_static(pod)).count();
    page.single("kubelet_mirror_pods", "Number of pods that are shown to the API server", "gauge", mirrored);
    let orphaned: Vec<&Pod> = pods.iter().map(Arc::as_ref).filter(|pod| is_orphan(pod)).collect();
    working(page, &wanted, &orphaned);
    let ephemeral = |pod: &Arc<Pod>| pod.spec.as_ref()?.ephemeral_containers.as_ref().map(Vec::len);
    let ephemeral: usize = pods.iter().filter_map(ephemeral).sum();
    let help = "Number of ephemeral containers of this kubelet's pods";
    page.single("kubelet_managed_ephemeral_containers", help, "gauge", ephemeral);
}

fn by_origin(page: &mut Text, name: &str, help: &str, pods: &[&Pod]) {
    page.head(name, help, "gauge");
    for (fixed, label) in BOTH {
        let count = pods.iter().filter(|pod| is_static(pod) == fixed).count();
        page.sample(name, &[("static", label)], count);
    }
}

/// In upstream's words: `sync`, `terminating`, `terminated`.
fn lifecycle(pod: &Pod, orphan: bool) -> &'static str {
    match pod.metadata.deletion_timestamp {
        _ if is_over(pod) => "terminated",
        None if !orphan => "sync",
        _ => "terminating",
    }
}

fn working(page: &mut Text, wanted: &[&Pod], orphaned: &[&Pod]) {
    let name = "kubelet_working_pods";
    page.head(name, "Number of pods by where they are in their lives", "gauge");
    for state in ["sync", "terminating", "terminated"] {
        for (config, pods) in [("desired", wanted), ("orphan", orphaned)] {
            for (fixed, label) in BOTH {
                let counts =
                    |pod: &&&Pod| is_static(pod) == fixed && lifecycle(pod, config == "orphan") == state;
                let count = pods.iter().filter(counts).count();
                page.sample(name, &[("config", config), ("lifecycle", state), ("static", label)], count);
            }
        }
        // What the runtime has and nobody knows is removed at once.
        page.sample(name, &[("config", "runtime_only"), ("lifecycle", state), ("static", "unknown")], 0);
    }
}

/// What the log files of every container take.
pub(super) async fn logs(page: &mut Text, server: &Server, pods: &[Arc<Pod>]) {
    let name = "kubelet_container_log_filesystem_used_bytes";
    page.head(name, "Bytes that the log files of a container take", "gauge");
    let places: Vec<([String; 4], PathBuf)> = pods.iter().flat_map(|pod| places(server, pod)).collect();
    let measure = move || -> Vec<_> {
        places.into_iter().map(|(labels, path)| (labels, log_files::written(&path).0)).collect()
    };
    for ([uid, namespace, pod, container], bytes) in reading("logs", measure).await.unwrap_or_default() {
        let labels = [("uid", &*uid), ("namespace", &namespace), ("pod", &pod), ("container", &container)];
        page.sample(name, &labels, bytes);
    }
}

/// Labels and a log of each container.
fn places(server: &Server, pod: &Pod) -> Vec<([String; 4], PathBuf)> {
    let meta = &pod.metadata;
    let (Some(namespace), Some(name)) = (&meta.namespace, &meta.name) else { return Vec::new() };
    let Some(handle) = server.pods.find(namespace, name, meta.uid.as_deref()) else { return Vec::new() };
    let labels = |container| [handle.uid.clone(), namespace.clone(), name.clone(), container];
    handle.containers.iter().map(|c| (labels(c.name.clone()), c.log_path.clone())).collect()
}

/// Volumes that pods want, and those that stand.
pub(super) fn volumes(page: &mut Text, counts: &BTreeMap<String, Count>) {
    let name = "volume_manager_total_volumes";
    page.head(name, "Number of volumes of this kubelet's pods", "gauge");
    for (plugin, count) in counts {
        for (state, count) in
            [("actual_state_of_world", count.actual), ("desired_state_of_world", count.desired)]
        {
            page.sample(name, &[("plugin_name", plugin), ("state", state)], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(metadata: serde_json::Value, phase: &str) -> Arc<Pod> {
        let pod = json!({ "metadata": metadata, "status": { "phase": phase },
            "spec": { "containers": [], "ephemeralContainers": [{ "name": "e" }] } });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn pods_count_by_their_state_and_their_origin() {
        let fixed = json!({ "annotations": { "kubernetes.io/config.source": "file" } });
        let gone = json!({ "uid": "u", "annotations": { "kubernetes.io/config.source": "file" } });
        let leaving = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let pods = [
            pod(json!({}), "Running"),
            pod(fixed, "Running"),
            pod(leaving, "Running"),
            pod(json!({}), "Failed"),
            pod(gone, "Running"),
        ];
        let mut text = Text::default();
        write(&mut text, &pods, &HashSet::from(["u".to_owned()]));
        volumes(&mut text, &BTreeMap::from([("p".to_owned(), Count { desired: 2, actual: 1 })]));
        let page = text.finish();
        for line in [
            "kubelet_desired_pods{static=\"\"} 3",
            "kubelet_desired_pods{static=\"true\"} 1",
            "kubelet_active_pods{static=\"\"} 2",
            "kubelet_mirror_pods 2",
            "kubelet_working_pods{config=\"orphan\",lifecycle=\"terminating\",static=\"true\"} 1",
            "kubelet_working_pods{config=\"runtime_only\",lifecycle=\"sync\",static=\"unknown\"} 0",
            "kubelet_managed_ephemeral_containers 5",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"\"} 1",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"terminating\",static=\"\"} 1",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"terminated\",static=\"\"} 1",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"true\"} 1",
            "volume_manager_total_volumes{plugin_name=\"p\",state=\"actual_state_of_world\"} 1",
            "volume_manager_total_volumes{plugin_name=\"p\",state=\"desired_state_of_world\"} 2",
        ] {
            assert!(page.lines().any(|written| written == line), "{line} in {page}");
        }
    }
}
