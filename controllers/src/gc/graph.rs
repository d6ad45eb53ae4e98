//! Who owns whom. Only what the garbage collector needs is kept: 32 bytes for an ordinary object, and a node for one
//! that has owners or waits for the collector's finalizers.

use crate::discovery::Served;
use kube::api::ObjectMeta;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Owners that went lately, by which their dependents are told without asking; upstream remembers as many.
const DEAD: usize = 500;

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// The watches write the graph, the workers read it.
pub type Shared = Arc<Mutex<Graph>>;

/// Nothing panics halfway through a change, so a poisoned lock is as good as a sound one.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object's UID as a number: a UUID is one, anything else is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u128);

impl Id {
    pub fn of(uid: &str) -> Self {
        let plain: String = uid.chars().filter(|c| *c != '-').collect();
        if plain.len() == 32
            && let Ok(number) = u128::from_str_radix(&plain, 16)
        {
            return Self(number);
        }
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, uid).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Self(half(0) << 64 | half(1))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub id: Id,
    /// Whether the owner's foreground deletion waits for this dependent.
    pub blocks: bool,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub resource: Arc<Served>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub owners: Box<[Owner]>,
    /// The resourceVersion at which all this was seen.
    pub version: Box<str>,
    pub deleting: bool,
    /// Being deleted in the foreground: its dependents go first.
    pub foreground: bool,
    pub orphaning: bool,
    /// Carries a finalizer of the collector's, being deleted or not.
    pub finalizer: bool,
}

/// What to look at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Delete the object, or finish its foreground deletion, if its owners say so.
    Collect(Id),
    /// Take the owner away from the dependents of an object that is being deleted.
    Orphan(Id),
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Collect(id) => write!(f, "collect {id}"),
            Self::Orphan(id) => write!(f, "orphan the dependents of {id}"),
        }
    }
}

/// Which resource an object is of: its index among those watched.
pub type Resource = u16;

/// Where a live object is: its resource, and a hash of its namespace, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    resource: Resource,
    namespace: u32,
}

fn namespace_hash(namespace: &str) -> u32 {
    let fnv = |h: u32, b: u8| (h ^ u32::from(b)).wrapping_mul(0x0100_0193);
    if namespace.is_empty() { 0 } else { namespace.bytes().fold(0x811c_9dc5, fnv).max(1) }
}

/// Tables with so many times the room that they need give it back, but for what so many objects take.
const ROOM: usize = 4;
const LEAST: usize = 1024;

#[derive(Default)]
pub struct Graph {
    nodes: HashMap<Id, Node>,
    dependents: HashMap<Id, HashSet<Id>>,
    live: HashMap<Id, Place>,
    dead: VecDeque<Id>,
}

impl Graph {
    pub fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Whether a watch has shown this object, in whatever namespace.
    pub fn is_live(&self, id: Id) -> bool {
        self.live.contains_key(&id)
    }

    pub fn dependents(&self, id: Id) -> Vec<Id> {
        self.dependents.get(&id).into_iter().flatten().copied().collect()
    }

    /// The dependents that the foreground deletion of `id` waits for, and whether each is on its way already.
    pub fn blocking(&self, id: Id) -> Vec<(Id, bool)> {
        let nodes = self.dependents(id).into_iter().filter_map(|d| self.nodes.get(&d).map(|n| (d, n)));
        let blocking = nodes.filter(|(_, n)| n.owners.iter().any(|o| o.id == id && o.blocks));
        blocking.map(|(d, n)| (d, n.foreground)).collect()
    }

    fn is_foreground(&self, id: Id) -> bool {
        self.nodes.get(&id).is_some_and(|n| n.foreground)
    }

    /// Whether every owner is known to live on within reach: then there is nothing to ask the API.
    pub fn owners_are_solid(&self, node: &Node) -> bool {
        let home = namespace_hash(&node.namespace);
        let in_reach = |place: &Place| place.namespace == 0 || place.namespace == home;
        node.owners.iter().all(|o| self.live.get(&o.id).is_some_and(in_reach) && !self.is_foreground(o.id))
    }

    /// Whether the object can be deleted without asking for anything: every owner is known to have gone, or (where the
    /// object has no dependents) to be going in the foreground, and no finalizer says how the object itself shall go.
    pub fn is_forsaken(&self, id: Id, node: &Node) -> bool {
        let alone = !self.dependents.contains_key(&id);
        let gone = |owner: &Owner| self.is_dead(owner.id) || alone && self.is_foreground(owner.id);
        let plain = !node.deleting && !node.finalizer && !node.version.is_empty();
        plain && !node.owners.is_empty() && node.owners.iter().all(gone)
    }

    pub fn is_dead(&self, id: Id) -> bool {
        self.dead.contains(&id)
    }

    /// A watch has told that the object is gone: there will never be another with its UID.
    pub fn bury(&mut self, id: Id) -> Vec<Work> {
        if self.dependents.contains_key(&id) {
            if self.dead.len() == DEAD {
                self.dead.pop_front();
            }
            self.dead.push_back(id);
        }
        self.remove(id)
    }

    /// Takes over an object as it is now, and says what that makes necessary.
    pub fn observe(&mut self, index: Resource, resource: &Arc<Served>, meta: &ObjectMeta) -> Vec<Work> {
        let id = Id::of(meta.uid.as_deref().unwrap_or_default());
        let new = node(resource, meta);
        self.live.insert(id, Place { resource: index, namespace: namespace_hash(&new.namespace) });
        let old = self.nodes.remove(&id);
        let mut work = self.relink(id, old.as_ref(), &new);
        let was = |test: fn(&Node) -> bool| old.as_ref().is_some_and(test);
        if new.foreground && !was(|n| n.foreground) {
            work.extend(self.dependents(id).into_iter().map(Work::Collect));
            work.push(Work::Collect(id));
        }
        if new.orphaning && !was(|n| n.orphaning) {
            work.push(Work::Orphan(id));
        }
        if !new.owners.is_empty() || new.foreground || new.orphaning {
            self.nodes.insert(id, new);
        }
        work
    }

    fn relink(&mut self, id: Id, old: Option<&Node>, new: &Node) -> Vec<Work> {
        let before = old.map(|n| n.owners.clone()).unwrap_or_default();
        if before == new.owners {
            return Vec::new();
        }
        for owner in &before {
            self.unlink(owner.id, id);
        }
        for owner in &new.owners {
            self.dependents.entry(owner.id).or_default().insert(id);
        }
        // An owner's foreground deletion may have waited for exactly this reference.
        let waiting = before.iter().filter(|o| self.is_foreground(o.id)).map(|o| Work::Collect(o.id));
        let mut work: Vec<Work> = waiting.collect();
        if !new.owners.is_empty() {
            work.push(Work::Collect(id));
        }
        work
    }

    fn unlink(&mut self, owner: Id, dependent: Id) {
        if let Some(dependents) = self.dependents.get_mut(&owner) {
            dependents.remove(&dependent);
            if dependents.is_empty() {
                self.dependents.remove(&owner);
            }
        }
    }

    /// Takes over that an object is gone, or is out of sight.
    pub fn remove(&mut self, id: Id) -> Vec<Work> {
        self.live.remove(&id);
        let mut work: Vec<Work> = self.dependents(id).into_iter().map(Work::Collect).collect();
        if let Some(node) = self.nodes.remove(&id) {
            for owner in &node.owners {
                self.unlink(owner.id, id);
                if self.is_foreground(owner.id) {
                    work.push(Work::Collect(owner.id));
                }
            }
        }
        self.give_back();
        work
    }

    /// After a storm the tables have room for what is gone.
    fn give_back(&mut self) {
        if self.nodes.capacity() > ROOM * self.nodes.len().max(LEAST) {
            self.nodes.shrink_to_fit();
            self.dependents.shrink_to_fit();
            self.live.shrink_to_fit();
        }
    }

    /// After a list of one resource: those that it no longer shows.
    pub fn missing(&self, index: Resource, listed: &HashSet<Id>) -> Vec<Id> {
        let of_resource = self.live.iter().filter(|(_, place)| place.resource == index);
        of_resource.map(|(id, _)| *id).filter(|id| !listed.contains(id)).collect()
    }
}

fn node(resource: &Arc<Served>, meta: &ObjectMeta) -> Node {
    let deleting = meta.deletion_timestamp.is_some();
    let has = |finalizer| meta.finalizers.iter().flatten().any(|f| f == finalizer);
    let owners = meta.owner_references.iter().flatten();
    Node {
        resource: resource.clone(),
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
        owners: owners
            .map(|o| Owner { id: Id::of(&o.uid), blocks: o.block_owner_deletion == Some(true) })
            .collect(),
        version: meta.resource_version.as_deref().unwrap_or_default().into(),
        deleting,
        foreground: deleting && has(FOREGROUND),
        orphaning: deleting && has(ORPHAN),
        finalizer: has(FOREGROUND) || has(ORPHAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn resource() -> Arc<Served> {
        Arc::new(Served::for_tests("", "v1", "ConfigMap", "configmaps"))
    }

    fn meta(uid: &str, owners: &[(&str, bool)], extra: Value) -> ObjectMeta {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(uid, blocks)| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid, "blockOwnerDeletion": blocks }))
            .collect();
        let mut value = json!({ "name": uid, "namespace": "x", "uid": uid, "resourceVersion": "1",
            "ownerReferences": owners });
        value.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    fn deleted_with(finalizer: &str) -> Value {
        json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer] })
    }

    #[test]
    fn an_owner_that_goes_wakes_its_dependents() {
        let (mut graph, resource) = (Graph::default(), resource());
        assert_eq!(graph.observe(0, &resource, &meta("owner", &[], json!({}))), []);
        assert!(graph.node(Id::of("owner")).is_none(), "an ordinary object needs no node");
        let child = Id::of("child");
        let work = graph.observe(0, &resource, &meta("child", &[("owner", true)], json!({})));
        assert_eq!(work, [Work::Collect(child)]);
        assert!(graph.owners_are_solid(graph.node(child).unwrap()));
        assert_eq!(graph.observe(0, &resource, &meta("child", &[("owner", true)], json!({}))), []);
        assert_eq!(graph.remove(Id::of("owner")), [Work::Collect(child)]);
        assert!(!graph.owners_are_solid(graph.node(child).unwrap()));
    }

    #[test]
    fn who_lost_all_owners_before_our_eyes_is_forsaken() {
        let (mut graph, resource) = (Graph::default(), resource());
        let forsaken = |graph: &Graph, uid: &str| {
            let id = Id::of(uid);
            graph.is_forsaken(id, graph.node(id).unwrap())
        };
        graph.observe(0, &resource, &meta("child", &[("one", true), ("two", true)], json!({})));
        graph.observe(0, &resource, &meta("kept", &[("one", true)], json!({ "finalizers": ["orphan"] })));
        graph.bury(Id::of("one"));
        assert!(!forsaken(&graph, "child"), "the other owner may live");
        graph.remove(Id::of("two"));
        assert!(!forsaken(&graph, "child"), "out of sight is not gone");
        graph.bury(Id::of("two"));
        assert!(forsaken(&graph, "child"));
        assert!(!forsaken(&graph, "kept"), "a finalizer says how it goes");
        graph.observe(0, &resource, &meta("leaf", &[("front", true)], json!({})));
        graph.observe(0, &resource, &meta("front", &[], deleted_with(FOREGROUND)));
        assert!(forsaken(&graph, "leaf"));
        graph.observe(0, &resource, &meta("below", &[("leaf", true)], json!({})));
        assert!(!forsaken(&graph, "leaf"), "it has dependents, which go first");
        (0..DEAD).for_each(|n| drop(graph.bury(Id::of(&format!("plain-{n}")))));
        assert!(forsaken(&graph, "child"), "only owners are remembered");
        for n in 0..DEAD {
            let (owner, child) = (format!("owner-{n}"), format!("child-{n}"));
            graph.observe(0, &resource, &meta(&child, &[(&owner, true)], json!({})));
            graph.bury(Id::of(&owner));
        }
        assert!(!forsaken(&graph, "child"), "what is forgotten is asked for");
    }

    #[test]
    fn a_foreground_deletion_waits_for_blocking_dependents() {
        let (mut graph, resource) = (Graph::default(), resource());
        graph.observe(0, &resource, &meta("a", &[("owner", true)], json!({})));
        graph.observe(0, &resource, &meta("b", &[("owner", false)], json!({})));
        let (owner, a) = (Id::of("owner"), Id::of("a"));
        let work = graph.observe(0, &resource, &meta("owner", &[], deleted_with(FOREGROUND)));
        assert_eq!(work.len(), 3);
        assert_eq!(graph.blocking(owner), [(a, false)]);
        assert!(!graph.owners_are_solid(graph.node(a).unwrap()));
        assert_eq!(graph.remove(a), [Work::Collect(owner)]);
        assert_eq!(graph.blocking(owner), []);
    }

    #[test]
    fn an_orphan_finalizer_and_a_dropped_reference_are_noticed() {
        let (mut graph, resource) = (Graph::default(), resource());
        graph.observe(0, &resource, &meta("a", &[("owner", true)], json!({})));
        let owner = Id::of("owner");
        let work = graph.observe(0, &resource, &meta("owner", &[], deleted_with(ORPHAN)));
        assert_eq!(work, [Work::Orphan(owner)]);
        graph.observe(0, &resource, &meta("a", &[], json!({})));
        assert!(graph.dependents(owner).is_empty());
        assert_eq!(graph.missing(0, &HashSet::from([owner])), [Id::of("a")]);
    }
}
