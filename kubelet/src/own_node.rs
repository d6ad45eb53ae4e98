//! The node of this kubelet as the API server shows it: others label it, taint it and give it resources.

use coracle_client::FollowedObject;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;
use tokio::sync::watch;

/// The newest copy; `None` before the node is registered.
pub type OwnNode = watch::Receiver<Option<Arc<Node>>>;
/// Publishes a newer copy; see [`note`].
pub type OwnNodeSender = watch::Sender<Option<Arc<Node>>>;

/// Versions are numbers here, as the store makes them; one that is no number is older than all.
fn version(node: &Node) -> u64 {
    node.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Notes a copy unless a newer one is known: answers to writes and the watch overtake each other.
pub fn note(note: &OwnNodeSender, node: Node) {
    note.send_if_modified(|known| {
        let newer =
            known.as_ref().is_none_or(|k| k.metadata.uid != node.metadata.uid || version(k) < version(&node));
        if newer {
            *known = Some(Arc::new(node));
        }
        newer
    });
}

/// Follows the node for ever. One that is deleted stays known until another of its name comes.
pub async fn follow(client: kube::Client, name: &str, own: &OwnNodeSender) {
    let mut followed = FollowedObject::new(client, "/api/v1/nodes", name);
    loop {
        if let Some(node) = followed.next().await {
            note(own, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn old_copies_do_not_replace_new_ones() {
        let node = |uid: &str, version: &str| -> Node {
            serde_json::from_value(
                json!({ "metadata": { "name": "n", "uid": uid, "resourceVersion": version } }),
            )
            .unwrap()
        };
        let (sender, own): (OwnNodeSender, OwnNode) = watch::channel(None);
        let known = || own.borrow().as_ref().and_then(|n| n.metadata.resource_version.clone()).unwrap();
        for (uid, version, expected) in
            [("a", "9", "9"), ("a", "10", "10"), ("a", "9", "10"), ("b", "3", "3")]
        {
            note(&sender, node(uid, version));
            assert_eq!(known(), expected);
        }
    }
}
