//! Pods and nodes for table tests, from the JSON that matters to the case. Public for the tests of plugins outside.

use crate::cache::{NodeInfo, PodInfo, Snapshot};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;
use std::sync::Arc;

/// # Panics
/// When the value is no pod: a test that is wrong.
pub fn pod(value: Value) -> PodInfo {
    let pod: Pod = serde_json::from_value(value).expect("a pod");
    PodInfo::new(Arc::new(pod))
}

/// # Panics
/// When the value is no node.
pub fn node(value: Value) -> NodeInfo {
    let node: Node = serde_json::from_value(value).expect("a node");
    let mut info = NodeInfo::named(node.metadata.name.as_deref().unwrap_or_default());
    info.set_node(&node, |_| Arc::default());
    info
}

/// A snapshot of these nodes, with these pods on the nodes that their `spec.nodeName` says.
///
/// # Panics
/// When a value is no node or no pod.
pub fn snapshot(nodes: &[Value], pods: &[Value]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for node in nodes {
        snapshot.set_node(Arc::new(serde_json::from_value(node.clone()).expect("a node")));
    }
    for value in pods {
        snapshot.set_pod(Arc::new(pod(value.clone())));
    }
    snapshot
}
