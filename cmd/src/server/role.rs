//! The role of the server's own node, which `kubectl get nodes` shows. Kubelets may not set it themselves, so the server
//! does, as kind and k3s do; without the taint, because the pods of a box have nowhere else to go.

use coracle_api::well_known;
use coracle_client::FollowedObject;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#node-role-kubernetes-io-control-plane>
pub const LABEL: &str = well_known::CONTROL_PLANE;
const MANAGER: &str = "coracle";

/// Labels the node of this name whenever it registers, for ever. A label that somebody takes away from it stays away until
/// the next start.
pub async fn keep(client: kube::Client, node: String) {
    let mut followed = followed(client.clone(), &node);
    let mut seen = None;
    loop {
        let Some(found) = followed.next().await.filter(|found| found.metadata.uid != seen) else { continue };
        match give(&client, &found).await {
            Ok(()) => seen = found.metadata.uid,
            // The next heartbeat leads here again.
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, node, "no role for the node")
            }
        }
    }
}

/// Waits until there is a node of this name, and labels it.
pub async fn once(client: kube::Client, node: &str) -> Result<(), kube::Error> {
    let mut followed = followed(client.clone(), node);
    loop {
        if let Some(found) = followed.next().await {
            return give(&client, &found).await;
        }
    }
}

fn followed(client: kube::Client, node: &str) -> FollowedObject<Node> {
    FollowedObject::new(client, "/api/v1/nodes", node)
}

async fn give(client: &kube::Client, node: &Node) -> Result<(), kube::Error> {
    if node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(LABEL)) {
        return Ok(());
    }
    let (name, uid) = (node.metadata.name.as_deref().unwrap_or_default(), &node.metadata.uid);
    let patch = json!({ "metadata": { "uid": uid, "labels": { LABEL: "" } } });
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(name, &PatchParams::apply(MANAGER), &Patch::Merge(patch)).await.map(drop)
}
