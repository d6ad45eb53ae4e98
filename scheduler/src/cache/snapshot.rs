//! All nodes and the pods on them. One task owns it and changes it between cycles, so a cycle reads it in place:
//! there is nothing to copy. Generations say which nodes are as they were, so that answers about them can be kept.

use super::{Change, Changes, NodeChange, NodeInfo, PodInfo, Topology};
use coracle_api::well_known;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Default)]
pub struct Snapshot {
    nodes: Vec<NodeInfo>,
    /// By slot, see [`mark`](Self::mark).
    marks: Vec<u64>,
    by_name: HashMap<String, usize>,
    /// Where each bound or assumed pod is, by UID.
    placed: HashMap<String, Placement>,
    /// Where each pod is nominated to, by UID.
    nominated: HashMap<String, String>,
    /// See [`keep_nodes_whole`](Self::keep_nodes_whole).
    whole_nodes: bool,
    images: HashMap<String, Arc<AtomicUsize>>,
    /// Slots of nodes that exist, zone by zone in turn.
    order: OnceLock<Vec<usize>>,
    topologies: Mutex<HashMap<String, Arc<Topology>>>,
    changes: Changes,
    generations: u64,
    epoch: u64,
}

struct Placement {
    node: String,
    /// Chosen by us and not yet seen as bound.
    assumed: bool,
}

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Nowhere,
    Assumed,
    Bound,
}

impl Snapshot {
    /// From now on nodes are kept as the API shows them, for extenders that are sent them.
    pub fn keep_nodes_whole(&mut self) {
        self.whole_nodes = true;
    }

    /// Nodes that exist, in the order in which they are tried.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.order().iter().map(|slot| &self.nodes[*slot])
    }

    /// Slots of the nodes that exist, in the order in which they are tried.
    pub fn order(&self) -> &[usize] {
        self.order.get_or_init(|| interleave(&self.nodes))
    }

    pub fn node(&self, slot: usize) -> &NodeInfo {
        &self.nodes[slot]
    }

    /// The generation of a node. A look at it spares a look at the node, which most cycles do not need: thousands of
    /// these fit where one node does.
    pub fn mark(&self, slot: usize) -> u64 {
        self.marks[slot]
    }

    pub fn node_named(&self, name: &str) -> Option<&NodeInfo> {
        let node = self.by_name.get(name).map(|i| &self.nodes[*i])?;
        node.exists().then_some(node)
    }

    /// Slots, some of which may be without a node; indices run below it.
    pub fn slots(&self) -> usize {
        self.nodes.len()
    }

    pub fn node_count(&self) -> usize {
        self.order().len()
    }

    pub fn pod_count(&self) -> usize {
        self.placed.len()
    }

    pub fn assumed_count(&self) -> usize {
        self.placed.values().filter(|p| p.assumed).count()
    }

    /// Grows with every change of anything.
    pub fn generation(&self) -> u64 {
        self.generations
    }

    /// Grows when slots, labels or taints change: whatever was counted over several nodes is void then.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The values of a node label. Made at first use and kept until the epoch changes.
    pub fn topology(&self, key: &str) -> Arc<Topology> {
        let mut topologies = self.topologies.lock();
        if let Some(topology) = topologies.get(key) {
            return topology.clone();
        }
        let labels = self.nodes.iter().map(|n| n.label(key));
        let topology = Arc::new(Topology::new(key, labels));
        topologies.insert(key.to_owned(), topology.clone());
        topology
    }

    /// Something outside of nodes and pods changed that plugins count by (a namespace's labels, a Service).
    pub fn touch(&mut self) {
        self.restructured();
    }

    /// Forgets what only keeps answers current; they are given anew when somebody asks.
    pub fn rest(&mut self) {
        self.changes.clear();
        self.placed.shrink_to_fit();
    }

    fn restructured(&mut self) {
        self.epoch += 1;
        self.generations += 1;
        self.topologies.get_mut().clear();
        self.order = OnceLock::new();
    }

    fn changed(&mut self, slot: usize) {
        self.generations += 1;
        self.nodes[slot].generation = self.generations;
        self.marks[slot] = self.generations;
    }

    fn slot(&mut self, name: &str) -> usize {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.nodes.len();
        let mut info = NodeInfo::named(name);
        info.slot = slot;
        self.nodes.push(info);
        self.marks.push(0);
        self.by_name.insert(name.to_owned(), slot);
        self.restructured();
        self.changed(slot);
        slot
    }

    /// Adds or updates a node. `None` says that it was not there.
    pub fn set_node(&mut self, node: Arc<Node>) -> Option<NodeChange> {
        let slot = self.slot(node.metadata.name.as_deref().unwrap_or_default());
        let known = &mut self.nodes[slot];
        let change = known.exists().then(|| NodeChange::between(known, &node));
        known.whole = self.whole_nodes.then(|| node.clone());
        if change.is_some_and(NodeChange::is_nothing) {
            return change;
        }
        self.count_images(slot, false);
        let images = &mut self.images;
        self.nodes[slot].set_node(&node, |name| {
            let counter = images.entry(name.to_owned()).or_default();
            counter.clone()
        });
        self.count_images(slot, true);
        if change.is_none_or(NodeChange::is_structural) {
            self.restructured();
        }
        self.changed(slot);
        change
    }

    fn count_images(&mut self, slot: usize, present: bool) {
        for (name, image) in &self.nodes[slot].images {
            if present {
                image.nodes.fetch_add(1, Ordering::Relaxed);
            } else if image.nodes.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.images.remove(name);
            }
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.get(name).copied() else { return };
        self.count_images(slot, false);
        self.nodes[slot].unset_node();
        self.drop_if_empty(slot);
        self.restructured();
    }

    fn drop_if_empty(&mut self, slot: usize) {
        let info = &self.nodes[slot];
        if info.exists() || !info.pods.is_empty() || !info.nominated.is_empty() {
            return;
        }
        let gone = self.nodes.swap_remove(slot);
        self.marks.swap_remove(slot);
        self.by_name.remove(&gone.name);
        if let Some(moved) = self.nodes.get_mut(slot) {
            moved.slot = slot;
            self.by_name.insert(moved.name.clone(), slot);
        }
        self.restructured();
    }

    /// Takes in a bound pod as the API shows it; it takes the place of an assumed one.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        let Some(node) = pod.node_name().map(str::to_owned) else { return };
        if let Some(placed) = self.placed.get_mut(&pod.uid).filter(|p| p.node == node) {
            placed.assumed = false;
            let slot = self.by_name[&node];
            if self.confirm(slot, &pod) {
                return;
            }
        }
        self.remove_pod(&pod.uid);
        self.place(pod, &node, false);
    }

    /// Puts the newer form of a pod in place of one that plugins cannot tell from it; false when they can.
    fn confirm(&mut self, slot: usize, pod: &Arc<PodInfo>) -> bool {
        let Some(known) = self.nodes[slot].pods.iter_mut().find(|p| p.uid == pod.uid) else { return false };
        let same = known.labels() == pod.labels()
            && known.is_terminating() == pod.is_terminating()
            && known.requests == pod.requests;
        if same {
            *known = pod.clone();
        }
        same
    }

    /// Counts the pod on `node` before the API shows it there.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove_pod(&pod.uid);
        self.place(pod, node, true);
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) {
        let slot = self.slot(node);
        self.placed.insert(pod.uid.clone(), Placement { node: node.to_owned(), assumed });
        self.nodes[slot].add(pod.clone());
        self.changes.push(Change { pod, slot, added: true });
        self.changed(slot);
    }

    /// Takes back an assumption; a pod that was seen as bound meanwhile stays.
    pub fn forget(&mut self, uid: &str) {
        if self.whereabouts(uid) == Place::Assumed {
            self.remove_pod(uid);
        }
    }

    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let placement = self.placed.remove(uid)?;
        let slot = *self.by_name.get(&placement.node)?;
        let pod = self.nodes[slot].remove(uid)?;
        self.changes.push(Change { pod: pod.clone(), slot, added: false });
        self.changed(slot);
        self.drop_if_empty(slot);
        Some(pod)
    }

    pub fn whereabouts(&self, uid: &str) -> Place {
        match self.placed.get(uid) {
            None => Place::Nowhere,
            Some(placement) if placement.assumed => Place::Assumed,
            Some(_) => Place::Bound,
        }
    }

    /// The node on which a pod is bound or assumed.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.placed.get(uid).map(|p| p.node.as_str())
    }

    /// A bound or assumed pod.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        let slot = self.by_name.get(self.node_of(uid)?)?;
        self.nodes[*slot].pods.iter().find(|p| p.uid == uid)
    }

    /// Keeps room for a pod on a node; others of lower priority do not get it.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        if self.nominated.get(&pod.uid).is_some_and(|n| n == node) {
            return;
        }
        self.withdraw(&pod.uid);
        let slot = self.slot(node);
        self.nominated.insert(pod.uid.clone(), node.to_owned());
        self.nodes[slot].nominated.push(pod);
        self.changed(slot);
    }

    /// Takes a nomination back.
    pub fn withdraw(&mut self, uid: &str) {
        let Some(node) = self.nominated.remove(uid) else { return };
        let Some(slot) = self.by_name.get(&node).copied() else { return };
        self.nodes[slot].nominated.retain(|p| p.uid != uid);
        self.changed(slot);
        self.drop_if_empty(slot);
    }

    pub fn nomination(&self, uid: &str) -> Option<&str> {
        self.nominated.get(uid).map(String::as_str)
    }
}

/// Slots zone by zone in turn, as upstream's node tree lists nodes, so that the first of them are spread.
fn interleave(nodes: &[NodeInfo]) -> Vec<usize> {
    let mut zones: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    for info in nodes.iter().filter(|n| n.exists()) {
        let label = |key: &str| info.label(key).unwrap_or_default();
        let zone = (label(well_known::REGION), label(well_known::ZONE));
        let index = *known.entry(zone).or_insert_with(|| {
            zones.push(Vec::new());
            zones.len() - 1
        });
        zones[index].push(info.slot);
    }
    if let [only] = zones.as_slice() {
        return only.clone();
    }
    let longest = zones.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|i| zones.iter().filter_map(move |z| z.get(i).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(heartbeat: &str, taint: bool) -> Arc<Node> {
        let taints = if taint { json!([{"key": "k", "effect": "NoSchedule"}]) } else { json!([]) };
        let value = json!({"metadata": {"name": "a", "labels": {"l": "1"}, "annotations": {"n": "2"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]},
            "spec": {"taints": taints, "podCIDR": "10.0.0.0/24"},
            "status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}, "declaredFeatures": ["F"],
                "images": [{"names": ["i"], "sizeBytes": 7}],
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]}});
        Arc::new(serde_json::from_value(value).expect("a node"))
    }

    #[test]
    fn of_nodes_only_what_plugins_read_is_kept() {
        let mut snapshot = Snapshot::default();
        let (first, later) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z");
        assert_eq!(snapshot.set_node(node(first, false)), None);
        assert!(snapshot.set_node(node(later, false)).is_some_and(NodeChange::is_nothing), "a heartbeat");
        let changed = NodeChange { taints: true, ..NodeChange::default() };
        assert_eq!(snapshot.set_node(node(later, true)), Some(changed));
        let info = snapshot.node_named("a").expect("the node");
        assert_eq!((info.taints().len(), info.label("l"), info.images.len()), (1, Some("1"), 1));
        assert_eq!((info.annotation("n"), info.declared_features()), (Some("2"), &["F".to_owned()][..]));
        assert!(info.whole.is_none());
    }

    #[test]
    fn a_change_is_what_it_says() {
        type Change = fn(&mut NodeChange);
        let cases: [(&str, serde_json::Value, Change); 8] = [
            ("/metadata/labels", json!({"l": "2"}), |c| c.labels = true),
            ("/metadata/labels", json!({}), |c| c.labels = true),
            ("/metadata/annotations", json!({"n": "2", "more": ""}), |c| c.annotations = true),
            ("/spec/taints", json!([{"key": "k", "effect": "NoExecute"}]), |c| c.taints = true),
            ("/spec/unschedulable", json!(true), |c| c.unschedulable = true),
            ("/status/allocatable", json!({"cpu": "2", "pods": "3"}), |c| c.allocatable = true),
            ("/status/images", json!([{"names": ["i"], "sizeBytes": 8}]), |c| c.images = true),
            ("/status/declaredFeatures", json!(["F", "G"]), |c| c.features = true),
        ];
        let before = node("2026-01-01T00:00:00Z", false);
        for (pointer, value, change) in cases {
            let mut snapshot = Snapshot::default();
            snapshot.set_node(before.clone());
            let mut after = serde_json::to_value(&*before).expect("JSON");
            let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
            after.pointer_mut(parent).expect("there")[field] = value;
            let after: Arc<Node> = Arc::new(serde_json::from_value(after).expect("a node"));
            let mut expected = NodeChange::default();
            change(&mut expected);
            assert_eq!(snapshot.set_node(after.clone()), Some(expected), "{pointer}");
            assert!(snapshot.set_node(after).is_some_and(NodeChange::is_nothing), "{pointer}");
        }
    }

    #[test]
    fn nodes_are_kept_whole_for_who_sends_them_on() {
        let mut snapshot = Snapshot::default();
        snapshot.keep_nodes_whole();
        for heartbeat in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"] {
            let node = node(heartbeat, false);
            snapshot.set_node(node.clone());
            assert!(
                snapshot
                    .node_named("a")
                    .and_then(|a| a.whole.clone())
                    .is_some_and(|a| Arc::ptr_eq(&a, &node))
            );
        }
    }
}
