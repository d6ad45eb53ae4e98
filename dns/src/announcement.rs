//! How a joined machine says that it answers names: by an annotation on its own Node, which it may write and no other
//! node may.

use coracle_api::node_addresses::{CHECKED_ADDRESSES, checked};
use coracle_client::Informer;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Address and port, UDP and TCP.
const ANNOTATION: &str = "coracle.io/dns";
/// Until a write that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long the end waits for the annotation to go: the server may be away.
const LEAVE_PERIOD: Duration = Duration::from_secs(1);

/// Where a node answers names, and whether it is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    pub at: SocketAddr,
    pub ready: bool,
}

/// What this node announces. Nothing where the API server has not met the node at that address: it could claim any.
pub fn announced(node: &Node) -> Option<Announced> {
    let annotations = node.metadata.annotations.as_ref()?;
    let at: SocketAddr = annotations.get(ANNOTATION)?.parse().ok()?;
    let met = checked(annotations.get(CHECKED_ADDRESSES).map(String::as_str));
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
    met.contains(&at.ip().to_canonical()).then_some(Announced { at, ready })
}

/// Announces `at` on the Node for as long as it is not dropped by its end; writes it anew where the Node was.
pub struct Announcement {
    api: Api<Node>,
    name: String,
    at: String,
}

impl Announcement {
    /// `client` acts as the node.
    pub fn new(client: kube::Client, node_name: &str, at: SocketAddr) -> Self {
        Self { api: Api::all(client), name: node_name.to_owned(), at: at.to_string() }
    }

    /// Keeps it said; never ends.
    pub async fn keep(&self, nodes: &Informer<Node>) {
        let changed = Arc::new(Notify::new());
        let (wake, own, said) = (Arc::downgrade(&changed), self.name.clone(), self.at.clone());
        nodes.on_change_while(move |delta| {
            let of_own = |node: &Arc<Node>| node.metadata.name.as_deref() == Some(&own);
            let wake = wake.upgrade();
            if let Some(wake) =
                wake.as_ref().filter(|_| delta.new.as_ref().is_some_and(|n| of_own(n) && !says(n, &said)))
            {
                wake.notify_one();
            }
            wake.is_some()
        });
        loop {
            changed.notified().await;
            while let Err(error) = self.write(Some(&self.at)).await {
                tracing::warn!(%error, "this node's DNS is not announced, trying again");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Takes it back, so that pods of other nodes ask elsewhere.
    pub async fn end(&self) {
        match tokio::time::timeout(LEAVE_PERIOD, self.write(None)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the announcement of this node's DNS stays"),
            Err(_) => tracing::warn!("the announcement of this node's DNS stays: the server does not answer"),
        }
    }

    async fn write(&self, at: Option<&str>) -> Result<(), kube::Error> {
        let patch = json!({ "metadata": { "annotations": { ANNOTATION: at } } });
        match self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            // It is announced when it comes.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => written.map(drop),
        }
    }
}

fn says(node: &Node, at: &str) -> bool {
    node.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION)).is_some_and(|said| said == at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(announced: &str, ready: &str) -> Node {
        let annotations = json!({ ANNOTATION: announced, CHECKED_ADDRESSES: "192.0.2.2,2001:db8::2" });
        let ready = json!([{ "type": "Ready", "status": ready }]);
        let node = json!({ "metadata": { "name": "two", "annotations": annotations }, "status": { "conditions": ready } });
        serde_json::from_value(node).expect("a node")
    }

    #[test]
    fn a_node_announces_only_where_it_was_met() {
        let found = |text: &str, ready| announced(&node(text, ready)).map(|a| (a.at.to_string(), a.ready));
        assert_eq!(found("192.0.2.2:10053", "True"), Some(("192.0.2.2:10053".to_owned(), true)));
        assert_eq!(found("[2001:db8::2]:53", "Unknown"), Some(("[2001:db8::2]:53".to_owned(), false)));
        for wrong in ["192.0.2.3:10053", "127.0.0.1:53", "192.0.2.2", "two:53", ""] {
            assert_eq!(found(wrong, "True"), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_said_already_is_not_written_again() {
        let node = node("192.0.2.2:10053", "True");
        assert!(says(&node, "192.0.2.2:10053") && !says(&node, "192.0.2.2:53"));
        assert!(!says(&Node::default(), "192.0.2.2:53"));
    }
}
