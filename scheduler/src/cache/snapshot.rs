//! All nodes and the pods on them. One task owns it and changes it between cycles, so a cycle reads it in place:
//! there is nothing to copy.

use super::{NodeInfo, PodInfo};
use k8s_openapi::api::core::v1::Node;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Snapshot {
    nodes: Vec<NodeInfo>,
    by_name: HashMap<String, usize>,
    /// Where each bound or assumed pod is, by UID.
    placed: HashMap<String, Placement>,
}

struct Placement {
    node: String,
    /// Chosen by us and not yet seen as bound.
    assumed: bool,
}

impl Snapshot {
    /// Nodes that exist, with their index.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &NodeInfo)> {
        self.nodes.iter().enumerate().filter(|(_, info)| info.node.is_some())
    }

    pub fn node(&self, index: usize) -> &NodeInfo {
        &self.nodes[index]
    }

    pub fn node_named(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|i| &self.nodes[*i])
    }

    /// Slots, some of which may be without a node; indices run below it.
    pub fn slots(&self) -> usize {
        self.nodes.len()
    }

    pub fn node_count(&self) -> usize {
        self.nodes().count()
    }

    fn slot(&mut self, name: &str) -> &mut NodeInfo {
        let index = match self.by_name.get(name) {
            Some(index) => *index,
            None => {
                self.nodes.push(NodeInfo::named(name));
                self.by_name.insert(name.to_owned(), self.nodes.len() - 1);
                self.nodes.len() - 1
            }
        };
        &mut self.nodes[index]
    }

    /// Adds or updates a node and returns what it was, if it was there.
    pub fn set_node(&mut self, node: Arc<Node>) -> Option<NodeInfo> {
        let slot = self.slot(node.metadata.name.as_deref().unwrap_or_default());
        let old = slot.node.is_some().then(|| slot.clone());
        slot.set_node(node);
        old
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(index) = self.by_name.get(name).copied() else { return };
        self.nodes[index].node = None;
        self.drop_if_empty(index);
    }

    fn drop_if_empty(&mut self, index: usize) {
        if self.nodes[index].node.is_some() || !self.nodes[index].pods.is_empty() {
            return;
        }
        let gone = self.nodes.swap_remove(index);
        self.by_name.remove(&gone.name);
        if let Some(moved) = self.nodes.get(index) {
            self.by_name.insert(moved.name.clone(), index);
        }
    }

    /// Takes in a bound pod as the API shows it; it takes the place of an assumed one.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        self.remove_pod(&pod.uid);
        let Some(node) = pod.node_name().map(str::to_owned) else { return };
        self.place(pod, node, false);
    }

    /// Counts the pod on `node` before the API shows it there.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove_pod(&pod.uid);
        self.place(pod, node.to_owned(), true);
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: String, assumed: bool) {
        let uid = pod.uid.clone();
        self.slot(&node).add(pod);
        self.placed.insert(uid, Placement { node, assumed });
    }

    /// Takes back an assumption; a pod that was seen as bound meanwhile stays.
    pub fn forget(&mut self, uid: &str) {
        if self.placed.get(uid).is_some_and(|p| p.assumed) {
            self.remove_pod(uid);
        }
    }

    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let placement = self.placed.remove(uid)?;
        let index = *self.by_name.get(&placement.node)?;
        let pod = self.nodes[index].remove(uid);
        self.drop_if_empty(index);
        pod
    }

    pub fn is_assumed(&self, uid: &str) -> bool {
        self.placed.get(uid).is_some_and(|p| p.assumed)
    }
}
