//! A node with what is taken on it.

use super::{PodInfo, Resources};
use coracle_client::placement::Place;
use k8s_openapi::api::core::v1::{Node, Taint};
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
    /// What `new` changes of what is known of the node. Of heartbeats nothing is copied.
    pub fn between(old: &NodeInfo, new: &Node) -> Self {
        let known = |is: &dyn Fn(&NodeFacts) -> bool| old.facts.as_deref().is_some_and(is);
        let (allocatable, allowed_pods) = offered(new);
        Self {
            allocatable: (&allocatable, allowed_pods) != (&old.allocatable, old.allowed_pods),
            labels: !known(&|facts| facts.labels.are(new.metadata.labels.as_ref())),
            taints: old.taints() != taints_of(new),
            unschedulable: old.is_unschedulable() != is_unschedulable(new),
            annotations: !known(&|facts| facts.annotations.are(new.metadata.annotations.as_ref())),
            images: !old.has_images_of(new),
            features: old.declared_features() != features_of(new),
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

/// Pairs of strings in the order of their keys. Nodes by the thousand have a few labels each, and a map of two takes half a
/// kilobyte.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pairs(Box<[(Box<str>, Box<str>)]>);

impl Pairs {
    fn of(map: Option<&BTreeMap<String, String>>) -> Self {
        Self(
            map.into_iter()
                .flatten()
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
        )
    }

    fn are(&self, map: Option<&BTreeMap<String, String>>) -> bool {
        let own = self.0.iter().map(|(key, value)| (&**key, &**value));
        own.eq(map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }
}

/// Of a node what plugins read and [`NodeChange`] compares, beside amounts and images: decoded whole it takes eight
/// kilobytes.
#[derive(Debug, Default)]
struct NodeFacts {
    labels: Pairs,
    annotations: Pairs,
    taints: Box<[Taint]>,
    unschedulable: bool,
    declared_features: Box<[String]>,
}

impl NodeFacts {
    fn of(node: &Node) -> Self {
        Self {
            labels: Pairs::of(node.metadata.labels.as_ref()),
            annotations: Pairs::of(node.metadata.annotations.as_ref()),
            taints: taints_of(node).into(),
            unschedulable: is_unschedulable(node),
            declared_features: features_of(node).into(),
        }
    }
}

fn taints_of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn features_of(node: &Node) -> &[String] {
    node.status.as_ref().and_then(|status| status.declared_features.as_deref()).unwrap_or_default()
}

/// What a node has for pods, and for how many.
fn offered(node: &Node) -> (Resources, i64) {
    let mut amounts = Resources::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
    let pods = amounts.scalar.remove("pods").unwrap_or(0);
    if amounts.scalar.is_empty() {
        // An emptied map keeps its memory.
        amounts.scalar = BTreeMap::new();
    }
    (amounts, pods)
}

/// Names and sizes in bytes of the images that a node has.
fn images_of(node: &Node) -> impl Iterator<Item = (&str, i64)> {
    let images = node.status.iter().flat_map(|status| status.images.iter().flatten());
    images.flat_map(|image| {
        let bytes = image.size_bytes.unwrap_or(0);
        image.names.iter().flatten().map(move |name| (name.as_str(), bytes))
    })
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
    /// `None` while only pods are known to be on it (the node itself is gone or not seen yet).
    facts: Option<Arc<NodeFacts>>,
    /// All of it, where the snapshot [keeps nodes whole](super::Snapshot::keep_nodes_whole).
    pub whole: Option<Arc<Node>>,
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
    pub fn set_node(&mut self, node: &Node, mut image: impl FnMut(&str) -> Arc<AtomicUsize>) {
        (self.allocatable, self.allowed_pods) = offered(node);
        self.images = images_of(node)
            .map(|(name, bytes)| (name.to_owned(), Image { bytes, nodes: image(name) }))
            .collect();
        self.facts = Some(Arc::new(NodeFacts::of(node)));
    }

    /// The node itself is gone; pods may be left.
    pub fn unset_node(&mut self) {
        self.images.clear();
        (self.facts, self.whole) = (None, None);
    }

    /// Whether the node itself is known, and not only pods on it.
    pub fn exists(&self) -> bool {
        self.facts.is_some()
    }

    fn has_images_of(&self, node: &Node) -> bool {
        let same = |(name, bytes)| self.images.get(name).is_some_and(|known: &Image| known.bytes == bytes);
        // Some name two images alike; the last one counts.
        let named: HashMap<&str, i64> = images_of(node).collect();
        named.len() == self.images.len() && named.into_iter().all(same)
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
            facts: self.facts.clone(),
            whole: self.whole.clone(),
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

    pub fn taints(&self) -> &[Taint] {
        self.facts.as_ref().map_or(&[], |facts| &facts.taints)
    }

    /// `spec.unschedulable`: `kubectl cordon` was here.
    pub fn is_unschedulable(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.unschedulable)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.facts.as_ref()?.labels.get(key)
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.facts.as_ref()?.annotations.get(key)
    }

    /// What its kubelet says that it can do.
    pub fn declared_features(&self) -> &[String] {
        self.facts.as_ref().map_or(&[], |facts| &facts.declared_features)
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
