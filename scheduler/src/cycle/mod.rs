//! The scheduling cycle: a pure decision about one pod over a snapshot, with its reasons.

mod diagnosis;

pub use diagnosis::Diagnosis;

use crate::cache::{PodInfo, Snapshot};
use crate::framework::{CycleState, Framework, Status};
use rand::Rng;

/// Clusters smaller than this are always looked at whole; upstream's `minFeasibleNodesToFind`.
const FEWEST_NODES: usize = 100;
/// Upstream's floor of the adaptive percentage.
const LEAST_PERCENT: usize = 5;

/// Where the pod shall go.
pub struct Placement {
    pub node: String,
    /// What plugins remembered, for Reserve and Permit.
    pub state: CycleState,
}

/// Why the pod goes nowhere.
pub enum Failure {
    /// No node fits.
    Unschedulable(Diagnosis),
    /// Something broke; the pod is not to blame.
    Error(String),
}

/// How many feasible nodes are enough: all of a small cluster, an adaptive share of a large one, as upstream's
/// `numFeasibleNodesToFind`. `percentage` 0 adapts.
pub fn enough_nodes(nodes: usize, percentage: usize) -> usize {
    if nodes < FEWEST_NODES || percentage >= 100 {
        return nodes;
    }
    let percent = match percentage {
        0 => 50usize.saturating_sub(nodes / 125).max(LEAST_PERCENT),
        given => given,
    };
    (nodes * percent / 100).max(FEWEST_NODES)
}

/// Decides for one pod. `start` is the slot where filtering begins and is moved on, so that all nodes of a large
/// cluster get their turn.
pub fn decide(
    framework: &Framework,
    snapshot: &Snapshot,
    pod: &PodInfo,
    percentage: usize,
    start: &mut usize,
    random: &mut impl Rng,
) -> Result<Placement, Failure> {
    let mut state = CycleState::default();
    let mut diagnosis = Diagnosis::new(snapshot.node_count());
    if diagnosis.nodes == 0 {
        return Err(Failure::Unschedulable(diagnosis));
    }
    if let Err((plugin, status)) = framework.pre_filter(&mut state, pod, snapshot) {
        if let Status::Error(why) = status {
            return Err(Failure::Error(format!("{plugin}: {why}")));
        }
        diagnosis.refuse_all(plugin, &status);
        diagnosis.preemption = framework.post_filter(&state, pod, snapshot);
        return Err(Failure::Unschedulable(diagnosis));
    }
    let feasible = filter(framework, snapshot, pod, &state, &mut diagnosis, percentage, start)?;
    if feasible.is_empty() {
        diagnosis.preemption = framework.post_filter(&state, pod, snapshot);
        return Err(Failure::Unschedulable(diagnosis));
    }
    let chosen = match feasible.as_slice() {
        [only] => *only,
        several => best(framework, snapshot, pod, &mut state, several, random)?,
    };
    Ok(Placement { node: snapshot.node(chosen).name.clone(), state })
}

fn filter(
    framework: &Framework,
    snapshot: &Snapshot,
    pod: &PodInfo,
    state: &CycleState,
    diagnosis: &mut Diagnosis,
    percentage: usize,
    start: &mut usize,
) -> Result<Vec<usize>, Failure> {
    let slots = snapshot.slots();
    let enough = enough_nodes(diagnosis.nodes, percentage);
    let mut feasible = Vec::with_capacity(enough.min(slots));
    let first = *start % slots.max(1);
    for offset in 0..slots {
        let index = (first + offset) % slots;
        let node = snapshot.node(index);
        if node.node.is_none() {
            continue;
        }
        *start = index + 1;
        match framework.filter(state, pod, node) {
            Ok(()) => feasible.push(index),
            Err((plugin, Status::Error(why))) => return Err(Failure::Error(format!("{plugin}: {why}"))),
            Err((plugin, status)) => diagnosis.refuse(plugin, &status),
        }
        if feasible.len() >= enough {
            break;
        }
    }
    Ok(feasible)
}

/// The node with the highest total; among equals any, so that equal nodes fill evenly.
fn best(
    framework: &Framework,
    snapshot: &Snapshot,
    pod: &PodInfo,
    state: &mut CycleState,
    feasible: &[usize],
    random: &mut impl Rng,
) -> Result<usize, Failure> {
    let totals = framework
        .score(state, pod, snapshot, feasible)
        .map_err(|status| Failure::Error(format!("scoring: {status:?}")))?;
    let highest = totals.iter().max().copied().unwrap_or(0);
    let tied: Vec<usize> =
        feasible.iter().zip(&totals).filter(|(_, total)| **total == highest).map(|(node, _)| *node).collect();
    Ok(tied[random.random_range(0..tied.len())])
}

#[cfg(test)]
mod tests;
