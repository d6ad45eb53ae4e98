//! Preferred terms: how much the pod likes to be beside others, and they beside it.

use super::tally::Tallies;
use super::terms::{Own, matches};
use crate::cache::{PodInfo, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Scoring {
    pub tallies: Tallies,
    own: Own,
    namespace_labels: Option<Arc<BTreeMap<String, String>>>,
    /// What a required term of another pod that means this one is worth.
    hard_weight: i64,
    ignore_others: bool,
}

impl Scoring {
    pub fn new(
        own: Own,
        namespace_labels: Option<Arc<BTreeMap<String, String>>>,
        (hard_weight, ignore_others): (i64, bool),
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Self {
        let mut tallies = Tallies::new();
        for term in own.preferred.iter().chain(&own.preferred_anti) {
            tallies.learn(&term.topology_key, snapshot);
        }
        let all = !own.preferred.is_empty() || !own.preferred_anti.is_empty();
        let mut state = Self { tallies, own, namespace_labels, hard_weight, ignore_others };
        for node in snapshot.nodes().filter(|n| all || n.with_affinity > 0) {
            for other in &node.pods {
                state.learn(other, snapshot);
                // Every key was learnt just now.
                let _known = state.adjust(pod, other, node.slot, 1);
            }
        }
        state
    }

    fn learn(&mut self, other: &PodInfo, snapshot: &Snapshot) {
        let terms = other.affinities.iter();
        for term in terms.flat_map(|a| a.required.iter().chain(&a.preferred).chain(&a.preferred_anti)) {
            self.tallies.learn(&term.topology_key, snapshot);
        }
    }

    /// As for filtering.
    pub fn adjust(&mut self, pod: &PodInfo, other: &PodInfo, slot: usize, by: i64) -> bool {
        let mut known = true;
        for (terms, sign) in [(&self.own.preferred, 1), (&self.own.preferred_anti, -1)] {
            for term in terms.iter().filter(|t| matches(t, other, None)) {
                known &= self.tallies.add(&term.topology_key, slot, by * sign * term.weight);
            }
        }
        let Some(theirs) = &other.affinities else { return known };
        let labels = self.namespace_labels.as_deref();
        let mut count = |terms: &[crate::cache::AffinityTerm], weight: &dyn Fn(i64) -> i64| {
            for term in terms {
                let weight = weight(term.weight);
                if weight != 0 && term.matches(&pod.key.namespace, pod.labels(), || labels) {
                    known &= self.tallies.add(&term.topology_key, slot, by * weight);
                }
            }
        };
        count(&theirs.required, &|_| self.hard_weight);
        if !self.ignore_others {
            count(&theirs.preferred, &|weight| weight);
            count(&theirs.preferred_anti, &|weight| -weight);
        }
        known
    }
}
