//! Gives every node a range of pod addresses of its own: `spec.podCIDR`.

use super::ACCOUNT;
use crate::clients::Clients;
use coracle_client::{
    Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, WorkQueue,
};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Prefix lengths of a node's range in both families: 254 pods, and more than anybody has; upstream's
/// --node-cidr-mask-size-ipv4 and -ipv6.
const NODE_PREFIX: [u32; 2] = [24, 64];
/// A range of IPv6 holds at most two to this many nodes' ranges, each of which is counted; upstream's limit.
const MOST_NODE_BITS: u32 = 16;

/// The addresses of all pods: a network of one family, or of each with a comma between. The first is a node's `podCIDR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterCidr(Vec<Pool>);

/// Those of one family, which nodes' ranges are cut from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    net: IpNet,
}

impl std::str::FromStr for ClusterCidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pools: Vec<Pool> = text.split(',').map(Pool::parse).collect::<Result<_, _>>()?;
        let six = pools.iter().filter(|pool| pool.is_six()).count();
        if six > 1 || pools.len() - six > 1 {
            return Err(format!("{text:?} has more than one network of a family"));
        }
        Ok(Self(pools))
    }
}

impl Pool {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "{text:?} is no network of IPv4 with a prefix of 8 to {} bits, or of IPv6 with one of {} to {}",
                NODE_PREFIX[0],
                NODE_PREFIX[1] - MOST_NODE_BITS,
                NODE_PREFIX[1],
            )
        };
        let net: IpNet = text.trim().parse().map_err(|_| invalid())?;
        let pool = Self { net: net.trunc() };
        let shortest = if pool.is_six() { NODE_PREFIX[1] - MOST_NODE_BITS } else { 8 };
        let fits = (shortest..=pool.node_prefix()).contains(&u32::from(net.prefix_len()));
        if fits { Ok(pool) } else { Err(invalid()) }
    }

    fn is_six(self) -> bool {
        self.net.addr().is_ipv6()
    }

    fn node_prefix(self) -> u32 {
        NODE_PREFIX[usize::from(self.is_six())]
    }

    /// How many bits of an address are behind a node's prefix.
    fn shift(self) -> u32 {
        if self.is_six() { 128 - NODE_PREFIX[1] } else { 32 - NODE_PREFIX[0] }
    }

    /// How many ranges there are.
    fn ranges(self) -> usize {
        1 << (self.node_prefix() - u32::from(self.net.prefix_len()))
    }

    fn name(self, index: usize) -> String {
        // There are at most 2^16 ranges.
        let number = number(self.net.network()) + (u128::try_from(index).unwrap_or(0) << self.shift());
        let address: IpAddr = if self.is_six() {
            Ipv6Addr::from(number).into()
        } else {
            Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into()
        };
        format!("{address}/{}", self.node_prefix())
    }

    /// Which of the ranges this is; `None` for one of another network.
    fn index(self, range: &str) -> Option<usize> {
        let address: IpAddr = range.split_once('/')?.0.parse().ok()?;
        if address.is_ipv6() != self.is_six() {
            return None;
        }
        let offset = number(address).checked_sub(number(self.net.network()))? >> self.shift();
        usize::try_from(offset).ok().filter(|index| *index < self.ranges())
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Who has which range, and who waits for one.
struct Ranges {
    pool: Pool,
    /// How many nodes have each range: somebody may have given one twice.
    users: Vec<u16>,
    /// No range below it is free.
    lowest: usize,
    by_node: HashMap<String, usize>,
    waiting: BTreeSet<String>,
}

impl Ranges {
    fn new(pool: Pool) -> Self {
        let users = vec![0; pool.ranges()];
        Self { pool, users, lowest: 0, by_node: HashMap::new(), waiting: BTreeSet::new() }
    }

    /// Marks a range as allocated to a node, in the place of one that the node had before.
    fn note(&mut self, node: &str, range: &str) {
        self.waiting.remove(node);
        let index = self.pool.index(range);
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
            return Some(self.pool.name(*index));
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
        Some(self.pool.name(index))
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

/// The ranges of each family.
struct Families(Vec<Ranges>);

impl Families {
    fn new(cidr: &ClusterCidr) -> Self {
        Self(cidr.0.iter().map(|pool| Ranges::new(*pool)).collect())
    }

    fn note(&mut self, node: &str, given: &[String]) {
        for ranges in &mut self.0 {
            // One of another network is of no family here; the node waits for none.
            let own = given.iter().find(|range| ranges.pool.index(range).is_some());
            ranges.note(node, own.map_or("", String::as_str));
        }
    }

    /// One of each family, or none at all: what a node is given stays as it is.
    fn give(&mut self, node: &str) -> Option<Vec<String>> {
        let given: Vec<Option<String>> = self.0.iter_mut().map(|ranges| ranges.give(node)).collect();
        let whole: Option<Vec<String>> = given.into_iter().collect();
        if whole.is_none() {
            self.0.iter_mut().for_each(|ranges| ranges.forget(node));
        }
        whole
    }

    /// Who may have what the node had.
    fn release(&mut self, node: &str) -> BTreeSet<String> {
        self.0.iter_mut().filter_map(|ranges| ranges.release(node)).collect()
    }
}

struct Ipam {
    client: kube::Client,
    nodes: Informer<Node>,
    recorder: Recorder,
    queue: WorkQueue<ObjectKey>,
    ranges: Mutex<Option<Families>>,
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

/// What the node was given; empty: nothing yet.
fn ranges(node: &Node) -> Vec<String> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
    all.filter(|range| !range.is_empty()).cloned().collect()
}

impl Reconciler for Ipam {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "node-ipam-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(node) = self.nodes.get_key(key) else {
            let next = self.with(|ranges| ranges.release(&key.name));
            next.into_iter().for_each(|node| self.queue.add(ObjectKey::new("", node)));
            return Ok(Action::AwaitChange);
        };
        let given = ranges(&node);
        if !given.is_empty() {
            self.with(|ranges| ranges.note(&key.name, &given));
            return Ok(Action::AwaitChange);
        }
        let Some(free) = self.with(|ranges| ranges.give(&key.name)) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder.normal(node.as_ref(), "CIDRNotAvailable", message);
            return Ok(Action::AwaitChange);
        };
        let patch = json!({ "spec": { "podCIDR": free[0], "podCIDRs": free } });
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Action::AwaitChange)
    }
}

impl Ipam {
    /// The ranges that nodes have already are read before the first is given away.
    fn with<T>(&self, use_them: impl FnOnce(&mut Families) -> T) -> T {
        let mut known = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        use_them(known.get_or_insert_with(|| {
            let mut families = Families::new(&self.cidr);
            for node in self.nodes.list() {
                let given = ranges(&node);
                if !given.is_empty() {
                    families.note(&node.name_any(), &given);
                }
            }
            families
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_given_from_the_lowest_until_none_is_left() {
        let mut ranges = Ranges::new(Pool::parse("10.42.1.0/16").unwrap());
        ranges.note("old", "10.42.1.0/24");
        ranges.note("foreign", "10.99.0.0/24");
        let given: Vec<_> = ["a", "b", "a"].iter().map(|node| ranges.give(node)).collect();
        let expected = ["10.42.0.0/24", "10.42.2.0/24", "10.42.0.0/24"].map(|r| Some(r.to_owned()));
        assert_eq!(given, expected);
        assert_eq!(ranges.release("old"), None);
        assert_eq!(ranges.give("c").as_deref(), Some("10.42.1.0/24"));
        for bad in [
            "",
            "10.42.0.0",
            "10.42.0.0/25",
            "fd00::/65",
            "fd00::/47",
            "10.42.0.0/x",
            "10.42.0.0/16,10.43.0.0/16",
        ] {
            assert!(bad.parse::<ClusterCidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn whoever_gets_none_waits_for_one_that_comes_free() {
        let mut ranges = Ranges::new(Pool::parse("10.42.0.0/24").unwrap());
        assert_eq!(ranges.give("a").as_deref(), Some("10.42.0.0/24"));
        assert_eq!((ranges.give("b"), ranges.give("c")), (None, None));
        // Somebody gave one range twice: it comes free with the last of them.
        ranges.note("twin", "10.42.0.0/24");
        assert_eq!(ranges.release("twin"), None);
        assert_eq!(ranges.release("a").as_deref(), Some("b"));
        assert_eq!(ranges.give("b").as_deref(), Some("10.42.0.0/24"));
        assert_eq!(ranges.release("b").as_deref(), Some("c"));
    }

    #[test]
    fn a_node_gets_a_range_of_each_family_or_none() {
        let mut families = Families::new(&"fd42::/63,10.42.0.0/16".parse().unwrap());
        let words = |all: &[&str]| Some(all.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>());
        assert_eq!(families.give("a"), words(&["fd42::/64", "10.42.0.0/24"]));
        families.note("old", &["10.42.1.0/24".to_owned()]);
        assert_eq!(families.give("b"), words(&["fd42:0:0:1::/64", "10.42.2.0/24"]));
        assert_eq!(families.give("c"), None);
        assert_eq!(families.0[1].give("d").as_deref(), Some("10.42.3.0/24"), "what c was not given is free");
        assert_eq!(families.release("a"), BTreeSet::from(["c".to_owned()]));
        assert_eq!(families.give("c"), words(&["fd42::/64", "10.42.0.0/24"]));
    }
}
