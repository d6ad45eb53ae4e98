//! Pods and nodes for table tests, from the JSON that matters to the case.

use crate::cache::{NodeInfo, PodInfo};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;
use std::sync::Arc;
use tokio::time::Instant;

pub fn pod(value: Value) -> PodInfo {
    let pod: Pod = serde_json::from_value(value).expect("a pod");
    PodInfo::new(Arc::new(pod), Instant::now())
}

pub fn node(value: Value) -> NodeInfo {
    let node: Node = serde_json::from_value(value).expect("a node");
    let mut info = NodeInfo::named(node.metadata.name.as_deref().unwrap_or_default());
    info.set_node(Arc::new(node));
    info
}
