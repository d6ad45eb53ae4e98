//! Who would have to go from a node, and which node is the best.

use super::budgets::Budgets;
use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{Attempt, Candidate, Rank, Status};
use std::sync::Arc;

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// A candidate with its rank, or why the node is none.
type Answer = Result<(Candidate, Rank), Status>;

/// Answers about nodes for one class of pods, each with the generation it belongs to.
#[derive(Default)]
pub struct Known {
    pub epoch: u64,
    by_slot: Vec<Option<(u64, Answer)>>,
    /// The node that the asking pod is nominated to, with the answer for it alone: a pod is no rival of itself, and
    /// is one of the others of its class.
    own: Option<(usize, Option<Answer>)>,
}

impl Known {
    pub fn of(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// For a pod that is nominated to the node in the slot, if to any; what was said of it for another is forgotten.
    #[must_use]
    pub fn asked_by(mut self, own: Option<usize>) -> Self {
        self.own = own.map(|slot| (slot, None));
        self
    }

    /// What the node in a slot offers, worked out anew where it changed.
    pub fn ask(
        &mut self,
        attempt: &mut Attempt<'_>,
        slot: usize,
        budgets: &Budgets,
    ) -> Option<&(Candidate, Rank)> {
        let snapshot = attempt.snapshot;
        if let Some((own, answer)) = &mut self.own
            && *own == slot
        {
            *answer = Some(judged(attempt, snapshot.node(slot), budgets));
            return self.answer(slot)?.as_ref().ok();
        }
        if self.by_slot.len() < snapshot.slots() {
            self.by_slot.resize_with(snapshot.slots(), || None);
        }
        let known = &mut self.by_slot[slot];
        if known.as_ref().is_none_or(|(generation, _)| *generation != snapshot.mark(slot)) {
            let node = snapshot.node(slot);
            *known = Some((node.generation, judged(attempt, node, budgets)));
        }
        known.as_ref()?.1.as_ref().ok()
    }

    fn answer(&self, slot: usize) -> Option<&Answer> {
        match &self.own {
            Some((own, answer)) if *own == slot => answer.as_ref(),
            _ => self.by_slot.get(slot)?.as_ref().map(|(_, answer)| answer),
        }
    }

    pub fn candidate(&self, slot: usize) -> Option<&Candidate> {
        self.answer(slot)?.as_ref().ok().map(|(candidate, _)| candidate)
    }

    /// Why the node is no candidate.
    pub fn refusal(&self, slot: usize) -> Option<&Status> {
        self.answer(slot)?.as_ref().err()
    }
}

fn judged(attempt: &mut Attempt<'_>, node: &NodeInfo, budgets: &Budgets) -> Answer {
    victims(attempt, node, budgets).map(|candidate| {
        let rank = candidate.rank();
        (candidate, rank)
    })
}

/// The most important first: higher priority, then who has run for longer.
fn by_importance(a: &Arc<PodInfo>, b: &Arc<PodInfo>) -> std::cmp::Ordering {
    b.priority.cmp(&a.priority).then(a.started().cmp(&b.started()))
}

/// Takes everybody of lower priority off, and puts back whoever can stay, the protected and the important first.
fn victims(attempt: &mut Attempt<'_>, node: &NodeInfo, budgets: &Budgets) -> Result<Candidate, Status> {
    let priority = attempt.pod.priority;
    let mut lower: Vec<Arc<PodInfo>> = node.pods.iter().filter(|p| p.priority < priority).cloned().collect();
    if lower.is_empty() {
        return Err(Status::unresolvable(NO_VICTIMS));
    }
    let mut sketch = node.clone_for_simulation();
    lower.iter().for_each(|p| attempt.take_off(&mut sketch, p));
    if let Some(refusal) = attempt.refusal(&sketch) {
        lower.iter().for_each(|p| attempt.put_back(&mut sketch, p));
        return Err(refusal);
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
    if victims.is_empty() {
        let why = format!("expected at least one victim pod on node {:?}", node.name);
        return Err(Status::Error(why));
    }
    Ok(Candidate { node: node.name.clone(), victims, violations })
}
