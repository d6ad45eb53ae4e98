//! Pods that want to be beside, or away from, others. Mirrors
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity>.
//!
//! Everything is counted by topology once for a class of pods, and corrected by each pod that comes or goes; a node is
//! then judged by looking up a few numbers.

mod filtering;
mod scoring;
mod tally;
mod terms;

use super::{ArgumentErrors, Arguments, Handle};
use crate::cache::{AffinityTerm, NodeInfo, PodInfo, Snapshot};
use crate::framework::{
    Cluster, ClusterEvent, CycleState, MAX_NODE_SCORE, NodeScore, ObjectKind, Plugin, Point, Reuse, Status,
};
use filtering::Filtering;
use scoring::Scoring;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use terms::Own;

const NAME: &str = "InterPodAffinity";
const SCORE: &str = "InterPodAffinity.score";
pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

pub struct InterPodAffinity {
    cluster: Arc<dyn Cluster>,
    hard_weight: i64,
    ignore_others: bool,
}

impl InterPodAffinity {
    pub fn new(handle: &Handle, arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let plugin = Self {
            cluster: handle.cluster.clone(),
            hard_weight: arguments.integer("hardPodAffinityWeight", 0..=100).unwrap_or(1),
            ignore_others: arguments.read("ignorePreferredTermsOfExistingPods").unwrap_or(false),
        };
        arguments.finish().map(|()| plugin)
    }

    fn labels_of(&self, namespace: &str) -> Option<Arc<BTreeMap<String, String>>> {
        self.cluster.namespace_labels(namespace)
    }

    fn any_matches(&self, terms: &[AffinityTerm], of: &PodInfo) -> bool {
        terms.iter().any(|term| {
            let labels = self.labels_of(&of.key.namespace);
            term.matches(&of.key.namespace, of.labels(), || labels.as_deref())
        })
    }
}

fn adjust(state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
    let mut known = true;
    let mut awake = false;
    if let Some(filtering) = state.get_mut::<Filtering>(NAME) {
        known &= filtering.adjust(pod, other, node.slot, by);
        awake = !filtering.is_idle();
    }
    if let Some(scoring) = state.get_mut::<Scoring>(SCORE) {
        known &= scoring.adjust(pod, other, node.slot, by);
    }
    if awake {
        state.resume_filter(NAME);
    }
    if !known {
        state.expire();
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::State
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        let own = Own::of(pod, self.cluster.as_ref());
        let filtering = Filtering::new(own, self.labels_of(&pod.key.namespace), pod, snapshot);
        let idle = filtering.is_idle();
        // Kept though it is idle: the next pod may have terms that mean this one.
        state.put(NAME, filtering);
        if idle { Status::Skip } else { Status::Success }
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) {
        adjust(state, pod, added, node, 1);
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo) {
        adjust(state, pod, removed, node, -1);
    }

    fn filter(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Status {
        state.get::<Filtering>(NAME).map_or(Status::Success, |filtering| filtering.check(node))
    }

    fn filter_code(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<u8> {
        Some(state.get::<Filtering>(NAME).map_or(0, |filtering| filtering.filter_code(node)))
    }

    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        _nodes: &[usize],
    ) -> Status {
        if state.get::<Scoring>(SCORE).is_none() {
            let own = Own::of(pod, self.cluster.as_ref());
            let weights = (self.hard_weight, self.ignore_others);
            let labels = self.labels_of(&pod.key.namespace);
            state.put(SCORE, Scoring::new(own, labels, weights, pod, snapshot));
        }
        let scoring = state.get::<Scoring>(SCORE);
        if scoring.is_none_or(|s| s.tallies.list.is_empty()) { Status::Skip } else { Status::Success }
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> i64 {
        state.get::<Scoring>(SCORE).map_or(0, |scoring| scoring.tallies.sum_at(node.slot))
    }

    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        let lowest = scores.iter().map(|s| s.score).min().unwrap_or(0);
        let range = scores.iter().map(|s| s.score).max().unwrap_or(0) - lowest;
        for score in scores {
            score.score = if range > 0 { MAX_NODE_SCORE * (score.score - lowest) / range } else { 0 };
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        let own = pod.affinities.as_deref();
        let (wanted, shunned) = (
            own.map(|a| a.required.as_slice()).unwrap_or_default(),
            own.map(|a| a.required_anti.as_slice()).unwrap_or_default(),
        );
        let shuns = |other: &PodInfo| {
            other.affinities.as_ref().is_some_and(|theirs| self.any_matches(&theirs.required_anti, pod))
        };
        match event {
            ClusterEvent::PodAssigned(other) => self.any_matches(wanted, other),
            ClusterEvent::PodGone { pod: other, .. } => self.any_matches(shunned, other) || shuns(other),
            ClusterEvent::PodChanged { pod: other, .. } => {
                self.any_matches(wanted, other) || !shunned.is_empty() || shuns(other)
            }
            ClusterEvent::NodeUpdated { changed, .. } => changed.labels,
            ClusterEvent::Object { kind, .. } => *kind == ObjectKind::Namespace,
            ClusterEvent::NodeGone(_) => false,
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let terms = pod.affinities.as_deref();
        let missing = terms.into_iter().flat_map(|t| t.required.iter().chain(&t.required_anti));
        let missing = missing.map(|t| &t.topology_key).find(|key| node.label(key).is_none());
        Some(match missing {
            Some(key) => format!("give node {} the label {key}", node.name),
            None => {
                "relax the required pod affinity or anti-affinity, of this pod or of those there".to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests;
