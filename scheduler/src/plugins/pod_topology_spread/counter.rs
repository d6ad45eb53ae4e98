//! Pods counted by topology: once over the cluster, and from then on by what comes and goes.

use crate::cache::{NodeInfo, PodInfo, Snapshot, Spread, Topology};
use crate::plugins::{affinity, taint_toleration};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The matching pods of one constraint by the value of its topology key.
pub struct Counter {
    pub constraint: Spread,
    topology: Arc<Topology>,
    counts: Vec<i64>,
    /// Whether the node in a slot counts.
    eligible: Vec<bool>,
    /// How many values with an eligible node have which count.
    frequencies: BTreeMap<i64, usize>,
    /// Values with an eligible node, and how many they are.
    present: Vec<bool>,
    domains: i64,
    pub self_match: bool,
}

fn matches(constraint: &Spread, labels: Option<&BTreeMap<String, String>>) -> bool {
    constraint.selector.matches_with(|key| labels.and_then(|l| l.get(key)).map(String::as_str))
}

/// Whether the constraint's inclusion policies let the node count for the pod.
fn included(constraint: &Spread, pod: &PodInfo, node: &NodeInfo) -> bool {
    (!constraint.honor_affinity || affinity::allows(pod, node))
        && (!constraint.honor_taints || taint_toleration::untolerated(pod, node).is_none())
}

impl Counter {
    /// `keys` are labels that a node must have to count.
    pub fn new(constraint: &Spread, keys: &[&str], pod: &PodInfo, snapshot: &Snapshot) -> Self {
        let topology = snapshot.topology(&constraint.topology_key);
        let mut counter = Self {
            self_match: matches(constraint, pod.labels()),
            constraint: constraint.clone(),
            counts: vec![0; topology.values()],
            present: vec![false; topology.values()],
            domains: 0,
            eligible: vec![false; snapshot.slots()],
            frequencies: BTreeMap::new(),
            topology,
        };
        for node in snapshot.nodes() {
            if keys.iter().all(|key| node.label(key).is_some()) && included(constraint, pod, node) {
                counter.take_in(pod, node);
            }
        }
        for value in counter.present.iter().zip(&counter.counts).filter(|(present, _)| **present) {
            *counter.frequencies.entry(*value.1).or_insert(0) += 1;
            counter.domains += 1;
        }
        counter
    }

    fn take_in(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.eligible[node.slot] = true;
        let Some(value) = self.topology.value(node.slot) else { return };
        self.present[value] = true;
        let own = node.pods.iter().filter(|p| self.counts_pod(pod, p)).count();
        self.counts[value] += i64::try_from(own).unwrap_or(i64::MAX);
    }

    fn counts_pod(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        other.key.namespace == pod.key.namespace
            && !other.is_terminating()
            && matches(&self.constraint, other.labels())
    }

    /// A pod came to the node (1) or left it (-1).
    pub fn adjust(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        if !self.eligible.get(node.slot).copied().unwrap_or(false) || !self.counts_pod(pod, other) {
            return;
        }
        let Some(value) = self.topology.value(node.slot) else { return };
        let old = self.counts[value];
        self.counts[value] += by;
        if let Some(frequency) = self.frequencies.get_mut(&old) {
            *frequency -= 1;
            if *frequency == 0 {
                self.frequencies.remove(&old);
            }
        }
        *self.frequencies.entry(old + by).or_insert(0) += 1;
    }

    pub fn value(&self, slot: usize) -> Option<usize> {
        self.topology.value(slot)
    }

    pub fn values(&self) -> usize {
        self.counts.len()
    }

    pub fn count(&self, value: usize) -> i64 {
        self.counts[value]
    }

    /// The pods in the emptiest topology; 0 while there are fewer topologies than the constraint wants.
    pub fn fewest(&self) -> i64 {
        if self.domains < self.constraint.min_domains {
            return 0;
        }
        self.frequencies.first_key_value().map_or(0, |(count, _)| *count)
    }
}
