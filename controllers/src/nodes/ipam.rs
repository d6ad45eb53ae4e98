//! Gives every node a range of pod addresses of its own: `spec.podCIDR`.

use super::ACCOUNT;
use crate::clients::Clients;
use coracle_client::{
    Controller, Informer, Next, ObjectKey, ReconcileError, Reconciler, Recorder, WorkQueue,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Prefix length of a node's range: 254 pods; upstream's --node-cidr-mask-size.
const NODE_PREFIX: u32 = 24;

/// The addresses of all pods: an IPv4 network of at most 24 bits of prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterCidr {
    base: u32,
    prefix: u32,
}

impl std::str::FromStr for ClusterCidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is no IPv4 network with a prefix of 8 to {NODE_PREFIX} bits");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let prefix: u32 =
            prefix.parse().ok().filter(|p| (8..=NODE_PREFIX).contains(p)).ok_or_else(invalid)?;
        Ok(Self { base: u32::from(address) & (u32::MAX << (32 - prefix)), prefix })
    }
}

impl ClusterCidr {
    /// How many ranges there are.
    fn ranges(self) -> usize {
        1 << (NODE_PREFIX - self.prefix)
    }

    fn name(self, index: usize) -> String {
        // There are at most 2^16 ranges.
        let offset = u32::try_from(index).unwrap_or(0) << (32 - NODE_PREFIX);
        format!("{}/{NODE_PREFIX}", Ipv4Addr::from(self.base + offset))
    }

    /// Which of the ranges this is; `None` for one of another network.
    fn index(self, range: &str) -> Option<usize> {
        let address: Ipv4Addr = range.split_once('/')?.0.parse().ok()?;
        let offset = u32::from(address).checked_sub(self.base)? >> (32 - NODE_PREFIX);
        usize::try_from(offset).ok().filter(|index| *index < self.ranges())
    }
}

/// Who has which range, and who waits for one.
struct Ranges {
    cidr: ClusterCidr,
    /// How many nodes have each range: somebody may have given one twice.
    users: Vec<u16>,
    /// No range below it is free.
    lowest: usize,
    by_node: HashMap<String, usize>,
    waiting: BTreeSet<String>,
}

impl Ranges {
    fn new(cidr: ClusterCidr) -> Self {
        let users = vec![0; cidr.ranges()];
        Self { cidr, users, lowest: 0, by_node: HashMap::new(), waiting: BTreeSet::new() }
    }

    /// The node has this range.
    fn note(&mut self, node: &str, range: &str) {
        self.waiting.remove(node);
        let index = self.cidr.index(range);
        if index.is_some() && index == self.by_node.get(node).copied() {
            return;
        }
        self.forget(node);
        if let Some(index) = index {
            self.users[index] += 1;
            self.by_node.insert(node.to_owned(), index);
        }
    }

    /// The lowest range that is free, or the one that the node was given already. A node that gets none waits.
    fn give(&mut self, node: &str) -> Option<String> {
        if let Some(index) = self.by_node.get(node) {
            return Some(self.cidr.name(*index));
        }
        let free = self.users[self.lowest..].iter().position(|users| *users == 0);
        let Some(index) = free.map(|at| self.lowest + at) else {
            self.lowest = self.users.len();
            self.waiting.insert(node.to_owned());
            return None;
        };
        self.lowest = index + 1;
        self.users[index] += 1;
        self.by_node.insert(node.to_owned(), index);
        Some(self.cidr.name(index))
    }

    fn forget(&mut self, node: &str) {
        let Some(index) = self.by_node.remove(node) else { return };
        self.users[index] -= 1;
        if self.users[index] == 0 {
            self.lowest = self.lowest.min(index);
        }
    }

    /// The node is gone; whoever waits may have its range.
    fn release(&mut self, node: &str) -> Option<String> {
        self.waiting.remove(node);
        self.forget(node);
        if self.lowest < self.users.len() { self.waiting.pop_first() } else { None }
    }
}

struct Ipam {
    client: kube::Client,
    nodes: Informer<Node>,
    recorder: Recorder,
    queue: WorkQueue<ObjectKey>,
    ranges: Mutex<Option<Ranges>>,
    cidr: ClusterCidr,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, cidr: ClusterCidr, stop: CancellationToken) {
    let client = clients.client(ACCOUNT);
    let nodes = clients.informers.of::<Node>();
    let queue = WorkQueue::new();
    let reconciler = Ipam {
        recorder: Recorder::new(client.clone(), "cidrAllocator", ""),
        client,
        nodes: nodes.clone(),
        queue: queue.clone(),
        ranges: Mutex::default(),
        cidr,
    };
    // One worker: two could give the same range away.
    Controller::with_queue(reconciler, queue).objects(&nodes).run(stop).await;
}

fn range(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.pod_cidr.as_deref().filter(|c| !c.is_empty())
}

impl Reconciler for Ipam {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "node-ipam-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(node) = self.nodes.get_key(key) else {
            let next = self.with(|ranges| ranges.release(&key.name));
            next.into_iter().for_each(|node| self.queue.add(ObjectKey::new("", node)));
            return Ok(Next::Done);
        };
        if let Some(range) = range(&node) {
            self.with(|ranges| ranges.note(&key.name, range));
            return Ok(Next::Done);
        }
        let Some(free) = self.with(|ranges| ranges.give(&key.name)) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder.normal(node.as_ref(), "CIDRNotAvailable", message);
            return Ok(Next::Done);
        };
        let patch = json!({ "spec": { "podCIDR": free, "podCIDRs": [free] } });
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Next::Done)
    }
}

impl Ipam {
    /// The ranges that nodes have already are read before the first is given away.
    fn with<T>(&self, use_them: impl FnOnce(&mut Ranges) -> T) -> T {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        use_them(ranges.get_or_insert_with(|| {
            let mut ranges = Ranges::new(self.cidr);
            for node in self.nodes.list() {
                if let Some(range) = range(&node) {
                    ranges.note(&node.name_any(), range);
                }
            }
            ranges
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_given_from_the_lowest_until_none_is_left() {
        let cidr: ClusterCidr = "10.42.1.0/16".parse().unwrap();
        let mut ranges = Ranges::new(cidr);
        ranges.note("old", "10.42.1.0/24");
        ranges.note("foreign", "10.99.0.0/24");
        let given: Vec<_> = ["a", "b", "a"].iter().map(|node| ranges.give(node)).collect();
        let expected = ["10.42.0.0/24", "10.42.2.0/24", "10.42.0.0/24"].map(|r| Some(r.to_owned()));
        assert_eq!(given, expected);
        assert_eq!(ranges.release("old"), None);
        assert_eq!(ranges.give("c").as_deref(), Some("10.42.1.0/24"));
        for bad in ["", "10.42.0.0", "10.42.0.0/25", "::/64", "10.42.0.0/x"] {
            assert!(bad.parse::<ClusterCidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn whoever_gets_none_waits_for_one_that_comes_free() {
        let mut ranges = Ranges::new("10.42.0.0/24".parse().unwrap());
        assert_eq!(ranges.give("a").as_deref(), Some("10.42.0.0/24"));
        assert_eq!((ranges.give("b"), ranges.give("c")), (None, None));
        // Somebody gave one range twice: it comes free with the last of them.
        ranges.note("twin", "10.42.0.0/24");
        assert_eq!(ranges.release("twin"), None);
        assert_eq!(ranges.release("a").as_deref(), Some("b"));
        assert_eq!(ranges.give("b").as_deref(), Some("10.42.0.0/24"));
        assert_eq!(ranges.release("b").as_deref(), Some("c"));
    }
}
