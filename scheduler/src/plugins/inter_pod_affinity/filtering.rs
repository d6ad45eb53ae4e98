//! Required terms: what the pod demands of others, and what others demand of it.

use super::tally::{Tallies, Tally};
use super::terms::{Own, matches};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::Status;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is wrong with a node, in upstream's words.
const REFUSALS: [&str; 3] = [
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
];

pub struct Filtering {
    /// Pods whose required anti-affinity keeps this one away, by topology.
    existing_anti: Tallies,
    /// Pods that match all of the pod's required affinity, for each of its terms.
    affinity: Vec<Tally>,
    /// Pods that match a term of the pod's required anti-affinity, for each of them.
    anti: Vec<Tally>,
    own: Own,
    namespace_labels: Option<Arc<BTreeMap<String, String>>>,
    /// Whether the pod matches its own affinity: the first of its kind may go anywhere.
    matches_itself: bool,
}

impl Filtering {
    pub fn new(
        own: Own,
        namespace_labels: Option<Arc<BTreeMap<String, String>>>,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Self {
        let tally = |key: &str| Tally::new(snapshot.topology(key));
        let mut state = Self {
            existing_anti: Tallies::new(),
            affinity: own.required.iter().map(|t| tally(&t.topology_key)).collect(),
            anti: own.required_anti.iter().map(|t| tally(&t.topology_key)).collect(),
            matches_itself: own.required.iter().all(|t| matches(t, pod, None)),
            own,
            namespace_labels,
        };
        let all = !state.affinity.is_empty() || !state.anti.is_empty();
        for node in snapshot.nodes() {
            for rival in node.nominated.iter() {
                state.learn(rival, snapshot);
            }
            if !all && node.with_affinity == 0 {
                continue;
            }
            for other in &node.pods {
                state.learn(other, snapshot);
                // Every key was learnt just now.
                let _known = state.adjust(pod, other, node.slot, 1);
            }
        }
        state
    }

    fn learn(&mut self, other: &PodInfo, snapshot: &Snapshot) {
        for term in other.affinities.iter().flat_map(|a| &a.required_anti) {
            self.existing_anti.learn(&term.topology_key, snapshot);
        }
    }

    /// `other` came to the node (1) or left it (-1). False when it counts by a label that was not known before.
    pub fn adjust(&mut self, pod: &PodInfo, other: &PodInfo, slot: usize, by: i64) -> bool {
        let mut known = true;
        let labels = self.namespace_labels.as_deref();
        for term in other.affinities.iter().flat_map(|a| &a.required_anti) {
            if term.matches(&pod.key.namespace, pod.labels(), || labels) {
                known &= self.existing_anti.add(&term.topology_key, slot, by);
            }
        }
        if !self.affinity.is_empty() && self.own.required.iter().all(|t| matches(t, other, None)) {
            self.affinity.iter_mut().for_each(|tally| tally.add(slot, by));
        }
        for (term, tally) in self.own.required_anti.iter().zip(&mut self.anti) {
            if matches(term, other, None) {
                tally.add(slot, by);
            }
        }
        known
    }

    /// Whether no node can be refused.
    pub fn is_idle(&self) -> bool {
        self.affinity.is_empty()
            && self.anti.is_empty()
            && self.existing_anti.list.iter().all(|t| t.total == 0)
    }

    /// 0 for success, else an index into [`REFUSALS`] plus one.
    pub fn filter_code(&self, node: &NodeInfo) -> u8 {
        if !self.affinity.is_empty() && !self.near_friends(node) {
            return 1;
        }
        if self.anti.iter().any(|tally| tally.at(node.slot).is_some_and(|sum| sum > 0)) {
            return 2;
        }
        if self.existing_anti.any_at(node.slot) { 3 } else { 0 }
    }

    pub fn check(&self, node: &NodeInfo) -> Status {
        match self.filter_code(node) {
            0 => Status::Success,
            1 => Status::unresolvable(REFUSALS[0]),
            other => Status::unschedulable(REFUSALS[usize::from(other) - 1]),
        }
    }

    fn near_friends(&self, node: &NodeInfo) -> bool {
        let sums = || self.affinity.iter().map(|tally| tally.at(node.slot));
        if sums().any(|sum| sum.is_none()) {
            return false;
        }
        if sums().all(|sum| sum.is_some_and(|n| n > 0)) {
            return true;
        }
        self.matches_itself && self.affinity.iter().all(|tally| tally.total == 0)
    }
}
