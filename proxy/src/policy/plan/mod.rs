//! From Pods, Namespaces and policies to the chains and sets of one node and one family.
//!
//! NetworkPolicies are additive: a chain is everything that the policies of a pod and a direction let through, then a
//! drop. Before it stands what administrators' policies of the tier Admin say, in their order, and in the place of it,
//! for pods that no NetworkPolicy isolates, what those of the tier Baseline say. Pods on the node's own network are
//! neither isolated nor selected as peers, as upstream leaves open; their traffic is the node's.

mod dns;
mod namespaced;
mod peers;
mod targets;
mod tiers;

pub use dns::{DNS_NAMESPACE, DnsProtocol, Resolver};

use super::model::{AdminPolicy, Tier};
use crate::family::Family;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use namespaced::is_about;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use targets::{Target, targets};
use tiers::{Line, ending, rules_of};

/// What lets a packet through a direction: back to where its chain was jumped to from.
const PASSES: &str = "return";

/// What the API says.
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub node: &'a str,
    pub pods: &'a [Arc<Pod>],
    pub namespaces: &'a [Arc<Namespace>],
    /// Peers of administrators' policies, by labels and addresses.
    pub nodes: &'a [Arc<Node>],
    pub policies: &'a [Arc<NetworkPolicy>],
    /// In the order in which they count: [`AdminPolicy::order`].
    pub admin: &'a [Arc<AdminPolicy>],
    /// Where the cluster's DNS answers without being a Pod.
    pub resolvers: &'a [Resolver],
    /// The addresses that pods of this node are given, in the order of [`Family::ALL`]: one of them that no known pod has is
    /// let nowhere.
    pub ranges: [Option<IpNet>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The map's name, and the beginning of its chains'.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    const fn is_of(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }

    /// Where the pod itself stands in a packet.
    const fn own(self) -> &'static str {
        match self {
            Self::Ingress => "daddr",
            Self::Egress => "saddr",
        }
    }

    /// Where a packet's peer stands.
    const fn peer(self) -> &'static str {
        match self {
            Self::Ingress => "saddr",
            Self::Egress => "daddr",
        }
    }
}

/// Everything that is in force over one family. Equal plans mean equal tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Addresses by set.
    pub peers: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Addresses and ports by set: where a named port is found.
    pub ports: BTreeMap<String, BTreeSet<(IpAddr, u16)>>,
    /// Rules by chain.
    pub chains: BTreeMap<String, Vec<String>>,
    /// The chain that judges what goes to (ingress) or comes from (egress) a pod of this node that any policy selects.
    pub isolated: BTreeMap<(Direction, IpAddr), String>,
    /// The chain that judges what a pod of this node sends to the node itself.
    pub to_node: BTreeMap<IpAddr, String>,
    /// Rules for what no policy has judged yet.
    pub gate: Vec<String>,
    /// The pods of this node that all policies are in force for.
    pub judged: BTreeSet<IpAddr>,
}

/// The plan of one family.
pub fn plan(world: World<'_>, family: Family) -> Plan {
    let targets = targets(world, family);
    let mut planner = PolicyPlanner { world, family, targets: &targets, plan: Plan::default() };
    for direction in Direction::ALL {
        planner.judge(direction);
        planner.close(direction);
    }
    planner.plan
}

struct PolicyPlanner<'a> {
    world: World<'a>,
    family: Family,
    targets: &'a [Target<'a>],
    plan: Plan,
}

impl PolicyPlanner<'_> {
    /// Chains for everything that is said of the pods of this node. A pod's chain is what the administrators' first tier
    /// says, then what NetworkPolicies say where some isolate it, and otherwise what the last tier says.
    fn judge(&mut self, direction: Direction) {
        let isolating = self.isolating(direction);
        let first = self.tier(Tier::Admin, direction);
        let last = self.tier(Tier::Baseline, direction);
        let pods: BTreeSet<usize> =
            isolating.keys().chain(first.keys()).chain(last.keys()).copied().collect();
        for at in pods {
            let behind = match (isolating.get(&at), last.get(&at)) {
                (Some(lines), _) => isolation(lines),
                (None, lines) => ending(lines, PASSES),
            };
            let chain = self.tiers(first.get(&at), behind, direction);
            for ip in &self.targets[at].ips {
                self.plan.isolated.insert((direction, *ip), chain.clone());
            }
            // What pods send to their own node is no business of NetworkPolicies.
            let behind = if isolating.contains_key(&at) { Vec::new() } else { ending(last.get(&at), PASSES) };
            if direction == Direction::Egress && (first.contains_key(&at) || !behind.is_empty()) {
                let chain = self.tiers(first.get(&at), behind, direction);
                for ip in &self.targets[at].ips {
                    self.plan.to_node.insert(*ip, chain.clone());
                }
            }
        }
    }

    /// The chain of a pod; equal ones are one.
    fn tiers(&mut self, first: Option<&Vec<Line>>, behind: Vec<String>, direction: Direction) -> String {
        let Some(first) = first else { return self.chain(behind, direction) };
        let next = (!behind.is_empty()).then(|| format!("goto {}", self.chain(behind, direction)));
        let mut lines = ending(Some(first), next.as_deref().unwrap_or(PASSES));
        lines.extend(next);
        self.chain(lines, direction)
    }

    fn chain(&mut self, lines: Vec<String>, direction: Direction) -> String {
        let name = format!("{}-{}", direction.name(), hashed(&lines.join("\n")));
        self.plan.chains.entry(name.clone()).or_insert(lines);
        name
    }

    /// The places of this node's pods among the targets.
    fn local(&self, is_chosen: impl Fn(&Target<'_>) -> bool) -> Vec<usize> {
        let all = self.targets.iter().enumerate();
        all.filter(|(_, target)| target.local && is_chosen(target)).map(|(at, _)| at).collect()
    }

    /// A pod's first packet may be sent before it is known whose it is: it waits until that is known, as far as there
    /// are policies of the direction at all.
    fn close(&mut self, direction: Direction) {
        let local = self.targets.iter().filter(|target| target.local);
        self.plan.judged = local.flat_map(|target| target.ips.iter().copied()).collect();
        let range =
            self.world.ranges.into_iter().flatten().find(|range| Family::of(range.addr()) == self.family);
        if let Some(range) = range
            && self.is_judged(direction)
        {
            let field = format!("{} {}", self.word(), direction.own());
            self.plan.gate.push(format!("{field} {range} {field} != @judged drop"));
        }
    }

    /// Whether any policy is about a direction.
    fn is_judged(&self, direction: Direction) -> bool {
        self.world.policies.iter().any(|policy| is_about(policy, direction))
            || self.world.admin.iter().any(|policy| !rules_of(policy, direction).is_empty())
    }

    fn word(&self) -> &'static str {
        crate::nftables::family_word(self.family)
    }
}

/// Whatever no policy of a pod lets through is kept from it.
fn isolation(lines: &[String]) -> Vec<String> {
    let mut lines = lines.to_vec();
    lines.sort();
    lines.dedup();
    lines.push("drop".to_owned());
    lines
}

/// Twelve bytes are enough that no two of a cluster's are the same by chance.
fn hashed(text: &str) -> String {
    coracle_api::hex::text(&Sha256::digest(text.as_bytes())[..12])
}
