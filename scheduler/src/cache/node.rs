//! A node with what is taken on it.

use super::{PodInfo, Resources};
use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    pub name: String,
    /// `None` while only pods are known to be on it (the node itself is gone or not seen yet).
    pub node: Option<Arc<Node>>,
    pub pods: Vec<Arc<PodInfo>>,
    pub requested: Resources,
    /// Like `requested`, with a minimum for containers that ask for nothing.
    pub counted: Resources,
    pub allocatable: Resources,
    pub allowed_pods: i64,
    /// Bytes by image name, of the images the node has.
    pub images: BTreeMap<String, i64>,
}

impl NodeInfo {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        let mut allocatable = Resources::of(status.and_then(|s| s.allocatable.as_ref()));
        self.allowed_pods = allocatable.scalar.remove("pods").unwrap_or(0);
        self.allocatable = allocatable;
        let images = status.into_iter().flat_map(|s| s.images.iter().flatten());
        self.images = images
            .flat_map(|i| {
                let size = i.size_bytes.unwrap_or(0);
                i.names.iter().flatten().map(move |name| (name.clone(), size))
            })
            .collect();
        self.node = Some(node);
    }

    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.counted.add(&pod.counted);
        self.pods.push(pod);
    }

    /// Takes the pod off, and returns it if it was there.
    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|p| p.uid == uid)?;
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.requests);
        self.counted.subtract(&pod.counted);
        Some(pod)
    }

    pub fn spec(&self) -> Option<&NodeSpec> {
        self.node.as_ref()?.spec.as_ref()
    }

    pub fn taints(&self) -> &[Taint] {
        self.spec().and_then(|s| s.taints.as_deref()).unwrap_or_default()
    }

    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.node.as_ref()?.metadata.labels.as_ref()
    }
}
