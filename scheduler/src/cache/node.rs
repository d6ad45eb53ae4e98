//! A node with what is taken on it.

use super::{PodInfo, Resources};
use coracle_client::placement::Place;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// What of a node changed, as far as scheduling is concerned. Upstream's event types for nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    pub allocatable: bool,
    pub labels: bool,
    pub taints: bool,
    pub unschedulable: bool,
    pub annotations: bool,
    pub images: bool,
    /// What the node's kubelet declares that it can do.
    pub features: bool,
}

impl NodeChange {
    pub fn between(old: &Node, new: &Node) -> Self {
        let spec = |n: &Node, f: fn(&NodeSpec) -> bool| n.spec.as_ref().is_some_and(f);
        let taints = |n: &Node| n.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
        let (a, b) = (old.status.as_ref(), new.status.as_ref());
        Self {
            allocatable: a.and_then(|s| s.allocatable.as_ref()) != b.and_then(|s| s.allocatable.as_ref()),
            labels: old.metadata.labels != new.metadata.labels,
            taints: taints(old) != taints(new),
            unschedulable: spec(old, |s| s.unschedulable == Some(true))
                != spec(new, |s| s.unschedulable == Some(true)),
            annotations: old.metadata.annotations != new.metadata.annotations,
            images: a.and_then(|s| s.images.as_ref()) != b.and_then(|s| s.images.as_ref()),
            features: a.and_then(|s| s.declared_features.as_ref())
                != b.and_then(|s| s.declared_features.as_ref()),
        }
    }

    /// Whether nothing that a plugin reads is different: a heartbeat.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Whether what is counted over several nodes must be counted anew.
    pub fn is_structural(self) -> bool {
        self.labels || self.taints || self.unschedulable
    }
}

/// Of a node what plugins read and [`NodeChange`] compares: a third of what it takes decoded, of which most is who manages
/// which field.
pub fn read_of(node: &Node) -> Node {
    let metadata = ObjectMeta {
        name: node.metadata.name.clone(),
        labels: node.metadata.labels.clone(),
        annotations: node.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    let status = node.status.as_ref().map(|status| NodeStatus {
        allocatable: status.allocatable.clone(),
        images: status.images.clone(),
        declared_features: status.declared_features.clone(),
        ..NodeStatus::default()
    });
    Node { metadata, spec: node.spec.clone(), status }
}

/// An image on a node.
#[derive(Clone, Debug)]
pub struct Image {
    pub bytes: i64,
    /// How many nodes have it.
    pub nodes: Arc<AtomicUsize>,
}

#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    pub name: String,
    /// Its index in the snapshot.
    pub slot: usize,
    /// Changes whenever anything here does; never the same for two states of any node.
    pub generation: u64,
    /// What [`read_of`] keeps, or all of it where the snapshot [keeps nodes whole](super::Snapshot::keep_nodes_whole).
    /// `None` while only pods are known to be on it (the node itself is gone or not seen yet).
    pub node: Option<Arc<Node>>,
    pub pods: Vec<Arc<PodInfo>>,
    /// Pods that preemption made room for here and that are not here yet.
    pub nominated: Vec<Arc<PodInfo>>,
    pub requested: Resources,
    /// Like `requested`, with a minimum for containers that ask for nothing.
    pub counted: Resources,
    pub allocatable: Resources,
    pub allowed_pods: i64,
    /// By name.
    pub images: HashMap<String, Image>,
    /// How many of `pods` have terms of pod affinity or anti-affinity.
    pub with_affinity: usize,
    /// How many of `pods` take ports of the node.
    pub with_ports: usize,
}

impl NodeInfo {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// `image` gives the shared counter of an image's nodes.
    pub fn set_node(&mut self, node: Arc<Node>, mut image: impl FnMut(&str) -> Arc<AtomicUsize>) {
        let status = node.status.as_ref();
        let mut allocatable = Resources::of(status.and_then(|s| s.allocatable.as_ref()));
        self.allowed_pods = allocatable.scalar.remove("pods").unwrap_or(0);
        self.allocatable = allocatable;
        self.images.clear();
        for entry in status.into_iter().flat_map(|s| s.images.iter().flatten()) {
            let bytes = entry.size_bytes.unwrap_or(0);
            for name in entry.names.iter().flatten() {
                self.images.insert(name.clone(), Image { bytes, nodes: image(name) });
            }
        }
        self.node = Some(node);
    }

    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.counted.add(&pod.counted);
        self.with_affinity += usize::from(pod.affinities.is_some());
        self.with_ports += usize::from(!pod.host_ports.is_empty());
        self.pods.push(pod);
    }

    /// Takes the pod off, and returns it if it was there.
    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|p| p.uid == uid)?;
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.requests);
        self.counted.subtract(&pod.counted);
        self.with_affinity -= usize::from(pod.affinities.is_some());
        self.with_ports -= usize::from(!pod.host_ports.is_empty());
        Some(pod)
    }

    /// A copy to try things on: without images, which no filter reads.
    #[must_use]
    pub fn clone_for_simulation(&self) -> Self {
        Self {
            name: self.name.clone(),
            slot: self.slot,
            generation: 0,
            node: self.node.clone(),
            pods: self.pods.clone(),
            nominated: self.nominated.clone(),
            requested: self.requested.clone(),
            counted: self.counted.clone(),
            allocatable: self.allocatable.clone(),
            allowed_pods: self.allowed_pods,
            images: HashMap::new(),
            with_affinity: self.with_affinity,
            with_ports: self.with_ports,
        }
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

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels()?.get(key).map(String::as_str)
    }
}

impl Place for NodeInfo {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.label(key)
    }
}
