//! Pods that belong together are spread over zones, nodes, or any other label: hard constraints filter, soft ones
//! score. Mirrors <https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/>.

mod counter;
mod defaults;

use super::{ArgumentErrors, Handle};
use crate::cache::{NodeInfo, PodInfo, Snapshot, Spread, WhenUnsatisfiable};
use crate::framework::{
    Cluster, ClusterEvent, CycleState, MAX_NODE_SCORE, NodeScore, Plugin, Point, Reuse, Status,
};
use counter::Counter;
use defaults::Defaults;
use serde_json::Value;
use std::sync::Arc;

const NAME: &str = "PodTopologySpread";
/// Verdicts.
const NO_LABEL: u8 = 1;
const TOO_MANY: u8 = 2;
const SOFT: &str = "PodTopologySpread.score";
pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

pub struct PodTopologySpread {
    defaults: Defaults,
    cluster: Arc<dyn Cluster>,
}

struct Hard(Vec<Counter>);

struct Soft {
    counters: Vec<Counter>,
    /// Whether a node without one of the labels is left out of the score.
    require_all: bool,
    /// Of each constraint, for the nodes of this cycle.
    weights: Vec<f64>,
}

impl Soft {
    fn ignores(&self, slot: usize) -> bool {
        self.require_all && self.counters.iter().any(|c| c.value(slot).is_none())
    }

    /// Topologies with many values would water down those with few.
    fn weigh(&mut self, nodes: &[usize]) {
        let counted: Vec<usize> = nodes.iter().copied().filter(|slot| !self.ignores(*slot)).collect();
        self.weights = self
            .counters
            .iter()
            .map(|counter| {
                let mut seen = vec![false; counter.values()];
                counted.iter().filter_map(|slot| counter.value(*slot)).for_each(|v| seen[v] = true);
                let size = seen.iter().filter(|s| **s).count();
                (count(size) + 2.0).ln()
            })
            .collect();
    }
}

/// Exact: clusters have fewer than 2^32 nodes.
fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

fn keys(constraints: &[Spread]) -> Vec<&str> {
    constraints.iter().map(|c| c.topology_key.as_str()).collect()
}

impl PodTopologySpread {
    pub fn new(handle: &Handle, arguments: &Value) -> Result<Self, ArgumentErrors> {
        Ok(Self { defaults: Defaults::parse(arguments)?, cluster: handle.cluster.clone() })
    }

    fn constraints(&self, pod: &PodInfo, when: WhenUnsatisfiable) -> Vec<Spread> {
        let own = pod.spread();
        if own.is_empty() {
            return self.defaults.of(pod, self.cluster.as_ref(), when);
        }
        own.into_iter().filter(|c| c.when == when).collect()
    }

    fn soft(&self, pod: &PodInfo, snapshot: &Snapshot) -> Soft {
        let constraints = self.constraints(pod, WhenUnsatisfiable::ScheduleAnyway);
        let require_all = !pod.spread().is_empty() || !self.defaults.system;
        let required = if require_all { keys(&constraints) } else { Vec::new() };
        let count = |c: &Spread| Counter::new(c, &required, pod, snapshot);
        let counters: Vec<Counter> = constraints.iter().map(count).collect();
        Soft { weights: Vec::new(), counters, require_all }
    }
}

fn adjust(state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
    if let Some(Hard(counters)) = state.get_mut::<Hard>(NAME) {
        counters.iter_mut().for_each(|c| c.adjust(pod, other, node, by));
    }
    if let Some(soft) = state.get_mut::<Soft>(SOFT) {
        soft.counters.iter_mut().for_each(|c| c.adjust(pod, other, node, by));
    }
}

impl Plugin for PodTopologySpread {
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
        let constraints = self.constraints(pod, WhenUnsatisfiable::DoNotSchedule);
        if constraints.is_empty() {
            return Status::Skip;
        }
        let keys = keys(&constraints);
        let counters = constraints.iter().map(|c| Counter::new(c, &keys, pod, snapshot)).collect();
        state.put(NAME, Hard(counters));
        Status::Success
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) {
        adjust(state, pod, added, node, 1);
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo) {
        adjust(state, pod, removed, node, -1);
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        match self.filter_code(state, pod, node) {
            None | Some(0) => Status::Success,
            Some(NO_LABEL) => Status::unresolvable(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ),
            Some(_) => Status::unschedulable("node(s) didn't match pod topology spread constraints"),
        }
    }

    fn filter_code(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<u8> {
        let Some(Hard(counters)) = state.get::<Hard>(NAME) else { return Some(0) };
        for counter in counters {
            let Some(value) = counter.value(node.slot) else { return Some(NO_LABEL) };
            let skew = counter.count(value) + i64::from(counter.self_match) - counter.fewest();
            if skew > counter.constraint.max_skew {
                return Some(TOO_MANY);
            }
        }
        Some(0)
    }

    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        nodes: &[usize],
    ) -> Status {
        if state.get::<Soft>(SOFT).is_none() {
            state.put(SOFT, self.soft(pod, snapshot));
        }
        match state.get_mut::<Soft>(SOFT) {
            Some(soft) if !soft.counters.is_empty() => {
                soft.weigh(nodes);
                Status::Success
            }
            _ => Status::Skip,
        }
    }

    /// The weighted number of matching pods: fewer is better, which normalization turns around.
    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(soft) = state.get::<Soft>(SOFT).filter(|s| !s.ignores(node.slot)) else { return 0 };
        let mut score = 0.0;
        for (counter, weight) in soft.counters.iter().zip(&soft.weights) {
            if let Some(value) = counter.value(node.slot) {
                let pods = usize::try_from(counter.count(value)).unwrap_or(0);
                let skew = usize::try_from(counter.constraint.max_skew - 1).unwrap_or(0);
                score += count(pods) * weight + count(skew);
            }
        }
        rounded(score)
    }

    fn normalize(&self, state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        let Some(soft) = state.get::<Soft>(SOFT) else { return };
        let counted = || scores.iter().filter(|s| !soft.ignores(s.node)).map(|s| s.score);
        let (lowest, highest) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0));
        for score in scores.iter_mut() {
            score.score = match (soft.ignores(score.node), highest) {
                (true, _) => 0,
                (false, 0) => MAX_NODE_SCORE,
                (false, _) => MAX_NODE_SCORE * (highest + lowest - score.score) / highest,
            };
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        let concerns = |other: &PodInfo| {
            let matches = |c: &Spread| {
                c.selector.matches_with(|k| other.labels().and_then(|l| l.get(k)).map(String::as_str))
            };
            other.key.namespace == pod.key.namespace && {
                let own = self.constraints(pod, WhenUnsatisfiable::DoNotSchedule);
                own.iter().any(matches)
            }
        };
        match event {
            ClusterEvent::PodAssigned(other)
            | ClusterEvent::PodChanged { pod: other, .. }
            | ClusterEvent::PodGone { pod: other, .. } => concerns(other),
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::NodeUpdated { changed, .. } => changed.is_structural(),
            // A topology that is gone is not the emptiest any more.
            ClusterEvent::NodeGone(node) => {
                let has = |key: &str| node.metadata.labels.as_ref().is_some_and(|l| l.contains_key(key));
                let own = self.constraints(pod, WhenUnsatisfiable::DoNotSchedule);
                own.iter().all(|c| has(&c.topology_key))
            }
            ClusterEvent::Object { .. } => false,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let constraints = self.constraints(pod, WhenUnsatisfiable::DoNotSchedule);
        let missing = constraints.iter().map(|c| &c.topology_key).find(|key| node.label(key).is_none());
        Some(match missing {
            Some(key) => format!("give node {} the label {key}", node.name),
            None => format!("raise maxSkew, use ScheduleAnyway, or add nodes beside {}", node.name),
        })
    }
}

/// Scores are small and not negative.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 32 bits")]
fn rounded(score: f64) -> i64 {
    score.round().clamp(0.0, f64::from(u32::MAX)) as i64
}

#[cfg(test)]
mod tests;
