//! Who would have to go from a node, and which node is the best.

use super::budgets::Budgets;
use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{Attempt, Candidate};
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Upstream's order of candidates, the best first: fewest violated budgets, the least important of their most
/// important victims, the smallest sum of priorities, fewest victims, and the most important victims that began last.
pub type Rank = (usize, i32, i64, usize, Reverse<Timestamp>);

/// Answers about nodes for one class of pods, each with the generation it belongs to.
#[derive(Default)]
pub struct Known {
    pub epoch: u64,
    by_slot: HashMap<usize, (u64, Option<(Candidate, Rank)>)>,
}

impl Known {
    pub fn of(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// The candidate that a node is, if it is one.
    pub fn candidate(
        &mut self,
        attempt: &mut Attempt<'_>,
        node: &NodeInfo,
        budgets: &Budgets,
    ) -> Option<&Candidate> {
        let stale = self.by_slot.get(&node.slot).is_none_or(|(generation, _)| *generation != node.generation);
        if stale {
            let found = victims(attempt, node, budgets).map(|candidate| {
                let rank = rank(&candidate);
                (candidate, rank)
            });
            self.by_slot.insert(node.slot, (node.generation, found));
        }
        self.by_slot.get(&node.slot).and_then(|(_, found)| found.as_ref()).map(|(candidate, _)| candidate)
    }

    pub fn rank(&self, slot: usize) -> Option<Rank> {
        self.by_slot.get(&slot)?.1.as_ref().map(|(_, rank)| *rank)
    }

    pub fn take(&self, slot: usize) -> Option<Candidate> {
        self.by_slot.get(&slot)?.1.as_ref().map(|(candidate, _)| candidate.clone())
    }
}

fn rank(candidate: &Candidate) -> Rank {
    let victims = &candidate.victims;
    let highest = victims.iter().map(|p| p.priority).max().unwrap_or(i32::MIN);
    let sum = victims.iter().map(|p| i64::from(p.priority) + i64::from(i32::MAX) + 1).sum();
    let important = victims.iter().filter(|p| p.priority == highest);
    let earliest = important.map(|p| p.started()).min().unwrap_or(Timestamp::MAX);
    (candidate.violations, highest, sum, victims.len(), Reverse(earliest))
}

/// The most important first: higher priority, then who has run for longer.
fn by_importance(a: &Arc<PodInfo>, b: &Arc<PodInfo>) -> std::cmp::Ordering {
    b.priority.cmp(&a.priority).then(a.started().cmp(&b.started()))
}

/// Takes everybody of lower priority off, and puts back whoever can stay, the protected and the important first.
fn victims(attempt: &mut Attempt<'_>, node: &NodeInfo, budgets: &Budgets) -> Option<Candidate> {
    let priority = attempt.pod.priority;
    let mut lower: Vec<Arc<PodInfo>> = node.pods.iter().filter(|p| p.priority < priority).cloned().collect();
    if lower.is_empty() {
        return None;
    }
    let mut sketch = node.sketch();
    lower.iter().for_each(|p| attempt.take_off(&mut sketch, p));
    if !attempt.fits(&sketch) {
        lower.iter().for_each(|p| attempt.put_back(&mut sketch, p));
        return None;
    }
    lower.sort_by(by_importance);
    let (protected, others) = budgets.split(&lower);
    let mut victims = Vec::new();
    let mut violations = 0;
    for (pod, is_protected) in protected.iter().map(|p| (p, true)).chain(others.iter().map(|p| (p, false))) {
        attempt.put_back(&mut sketch, pod);
        if attempt.fits(&sketch) {
            continue;
        }
        attempt.take_off(&mut sketch, pod);
        violations += usize::from(is_protected);
        victims.push(pod.clone());
    }
    victims.iter().for_each(|p| attempt.put_back(&mut sketch, p));
    victims.sort_by(by_importance);
    (!victims.is_empty()).then(|| Candidate { node: node.name.clone(), victims, violations })
}
