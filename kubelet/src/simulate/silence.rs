//! Nodes that are told to fall silent: as lost as a machine without power, until they are told to come back. And those that
//! are told to leave their pods alone.

use super::{PODS_ANNOTATION, SILENT_ANNOTATION, SimulateConfig};
use coracle_client::informer::api_for;
use coracle_client::{Informer, ObjectKey, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Nodes that one look at all pods serves.
const BATCH: usize = 1000;

/// Whether the kubelet of this node does nothing.
pub fn is_silent(node: &Node) -> bool {
    node.annotations().get(SILENT_ANNOTATION).is_some_and(|value| value == "true")
}

/// Whether the kubelet of this node looks after its pods.
pub fn runs_pods(node: &Node) -> bool {
    !is_silent(node) && node.annotations().get(PODS_ANNOTATION).is_none_or(|value| value != "ignored")
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Names of our nodes that begin to speak: those that are there or come, and those that were silent. A node whose
/// silence was noticed counts from when it is ready again: until then its pods are taken for not ready once more.
pub fn speaking(nodes: &Informer<Node>, config: Arc<SimulateConfig>) -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    nodes.on_change_while(move |delta| {
        let speaks = |node: &Node| runs_pods(node) && is_ready(node);
        let begins = delta.old.as_ref().is_none_or(|old| !speaks(old));
        match &delta.new {
            Some(new) if begins && speaks(new) && config.index_of(&new.name_any()).is_some() => {
                sender.send(new.name_any()).is_ok()
            }
            _ => !sender.is_closed(),
        }
    });
    receiver
}

/// Hands the pods of nodes that begin to speak to the workers, and says of those that run that they are ready. A task of
/// its own, because an informer's handler may not ask another informer.
pub async fn follow(
    mut speaking: mpsc::UnboundedReceiver<String>,
    client: kube::Client,
    pods: Informer<Pod>,
    queue: WorkQueue<ObjectKey>,
) {
    let mut names = Vec::new();
    while speaking.recv_many(&mut names, BATCH).await > 0 {
        let nodes: HashSet<String> = names.drain(..).collect();
        let on_them = |pod: &&Arc<Pod>| super::pods::node_of(pod).is_some_and(|node| nodes.contains(node));
        for pod in pods.list().iter().filter(on_them) {
            queue.add(ObjectKey::of(pod.as_ref()));
            if let Err(error) = restore(&client, pod).await {
                tracing::warn!(pod = pod.name_any(), %error, "readiness of a simulated pod not restored");
            }
        }
    }
}

async fn restore(client: &kube::Client, pod: &Pod) -> Result<(), kube::Error> {
    let Some(conditions) = super::status::restored(pod, Timestamp::now()) else { return Ok(()) };
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": conditions } });
    let api = api_for::<Pod>(client, &ObjectKey::of(pod));
    match api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        // Gone, or another of its name by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_is_silence() {
        let node = |value: &str| -> Node {
            serde_json::from_value(json!({ "metadata": { "annotations": { SILENT_ANNOTATION: value } } }))
                .unwrap()
        };
        assert!(is_silent(&node("true")));
        assert!(!is_silent(&node("false")) && !is_silent(&Node::default()));
    }

    #[test]
    fn a_node_that_ignores_its_pods_lives() {
        let node = |value: &str| -> Node {
            serde_json::from_value(json!({ "metadata": { "annotations": { PODS_ANNOTATION: value } } }))
                .unwrap()
        };
        assert!(!runs_pods(&node("ignored")) && !is_silent(&node("ignored")));
        assert!(runs_pods(&node("run")) && runs_pods(&Node::default()));
    }
}
