//! Makes room for a pod by taking away pods of lower priority: as few and as unimportant ones as possible. Mirrors
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/>.
//!
//! It only decides; whoever owns the scheduler tells the victims.

mod budgets;
mod dry_run;

use super::{ArgumentErrors, Arguments, Handle};
use crate::cache::PodInfo;
use crate::framework::Diagnosis;
use crate::framework::{
    Attempt, Candidate, Cluster, Plugin, Point, PostFilter, Rank, Reuse, Status, Unhelpful,
};
use budgets::Budgets;
use dry_run::Known;
use parking_lot::Mutex;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

const NAME: &str = "DefaultPreemption";
pub const POINTS: &[Point] = &[Point::PostFilter];
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
/// EquivalenceClasses whose answers about nodes are kept.
const KEPT: usize = 4;

pub struct DefaultPreemption {
    cluster: Arc<dyn Cluster>,
    /// How many candidates are looked for: a percentage of the nodes, and at least so many.
    percentage: usize,
    at_least: usize,
    known: Mutex<HashMap<Arc<[u8]>, Known>>,
}

/// Whether the pod may take others away at all; upstream's words when not.
fn eligible(attempt: &Attempt<'_>) -> Result<(), &'static str> {
    let pod = attempt.pod;
    if pod.spec().and_then(|s| s.preemption_policy.as_deref()) == Some("Never") {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = attempt.snapshot.nomination(&pod.uid).or_else(|| pod.nominated_node());
    let Some(node) = nominated.and_then(|name| attempt.snapshot.node_named(name)) else { return Ok(()) };
    // Nothing that is taken away there would make it fit any more.
    if !attempt.diagnosis.resolvable.contains(&node.slot) {
        return Ok(());
    }
    let leaving = |p: &Arc<PodInfo>| p.priority < pod.priority && p.is_terminating() && p.is_preempted();
    if node.pods.iter().any(leaving) {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

impl DefaultPreemption {
    pub fn new(handle: &Handle, arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let percentage = arguments.integer("minCandidateNodesPercentage", 0..=100).unwrap_or(10);
        let at_least = arguments.integer("minCandidateNodesAbsolute", 0..=i64::from(i32::MAX)).unwrap_or(100);
        if percentage == 0 && at_least == 0 {
            let why = "cannot be zero at the same time as minCandidateNodesAbsolute";
            arguments.mistake("minCandidateNodesPercentage", &0.into(), why);
            let why = "cannot be zero at the same time as minCandidateNodesPercentage";
            arguments.mistake("minCandidateNodesAbsolute", &0.into(), why);
        }
        arguments.finish().map(|()| Self {
            cluster: handle.cluster.clone(),
            percentage: usize::try_from(percentage).unwrap_or(10),
            at_least: usize::try_from(at_least).unwrap_or(100),
            known: Mutex::default(),
        })
    }

    fn wanted(&self, nodes: usize) -> usize {
        (nodes * self.percentage / 100).max(self.at_least).min(nodes)
    }

    /// Candidates, the best first; only the best unless all are asked for. Without any, upstream's words for it.
    fn candidates(&self, attempt: &mut Attempt<'_>) -> Result<Vec<Candidate>, String> {
        let budgets = Budgets::of(self.cluster.as_ref());
        let diagnosis = attempt.diagnosis;
        let slots = &diagnosis.resolvable;
        let wanted = self.wanted(slots.len());
        let own = attempt.snapshot.nomination(&attempt.pod.uid);
        let own = own.and_then(|name| attempt.snapshot.node_named(name)).map(|node| node.slot);
        let mut known = self.known_of(attempt).asked_by(own);
        let mut found: Vec<(Rank, usize)> = Vec::new();
        let mut without_violations = false;
        let first = attempt.seed % slots.len().max(1);
        for slot in slots[first..].iter().chain(&slots[..first]) {
            if let Some((candidate, rank)) = known.ask(attempt, *slot, &budgets) {
                without_violations |= candidate.violations == 0;
                found.push((*rank, *slot));
            }
            // Upstream stops when it has enough and one of them violates nothing.
            if found.len() >= wanted && without_violations {
                break;
            }
        }
        if let Some(best) = (0..found.len()).min_by_key(|at| found[*at].0) {
            found.swap(0, best);
        }
        found.truncate(if attempt.all_candidates { usize::MAX } else { 1 });
        let chosen: Vec<Candidate> =
            found.iter().filter_map(|(_, slot)| known.candidate(*slot)).cloned().collect();
        let answer = if chosen.is_empty() { Err(nothing_found(diagnosis, &known)) } else { Ok(chosen) };
        self.keep(attempt, known);
        answer
    }

    /// What is known of the nodes for pods of this class; nothing when it depends on more than the node.
    fn known_of(&self, attempt: &Attempt<'_>) -> Known {
        if !attempt.depends_on_node_alone() {
            return Known::default();
        }
        let kept = self.known.lock().remove(attempt.pod.class());
        let current = kept.filter(|k| k.epoch == attempt.snapshot.epoch());
        current.unwrap_or_else(|| Known::of(attempt.snapshot.epoch()))
    }

    fn keep(&self, attempt: &Attempt<'_>, known: Known) {
        if !attempt.depends_on_node_alone() {
            return;
        }
        let mut all = self.known.lock();
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(attempt.pod.class().clone(), known);
    }
}

/// Upstream's words when there is no candidate: what keeps the pod off each node that was tried, however many went.
fn nothing_found(diagnosis: &Diagnosis, known: &Known) -> String {
    let mut counted: HashMap<&[Cow<'static, str>], usize> = HashMap::new();
    let refusals = diagnosis.resolvable.iter().filter_map(|slot| known.refusal(*slot));
    refusals.for_each(|status| *counted.entry(status.reasons()).or_insert(0) += 1);
    let mut failed = Diagnosis::new(diagnosis.nodes);
    for (reasons, nodes) in counted {
        failed.refuse(NAME, &Status::Unschedulable(reasons.to_vec()), nodes);
    }
    let others = diagnosis.nodes - diagnosis.resolvable.len();
    failed.refuse(NAME, &Status::unresolvable(NOT_HELPFUL), others);
    format!("preemption: {}", failed.message())
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn post_filter(&self, attempt: &mut Attempt<'_>) -> PostFilter {
        if let Err(why) = eligible(attempt) {
            return PostFilter::Unhelpful(Unhelpful::NotEligible(format!("preemption: {why}")));
        }
        match self.candidates(attempt) {
            Ok(candidates) => PostFilter::Preempt(candidates),
            Err(why) => PostFilter::nothing(why),
        }
    }
}

#[cfg(test)]
mod tests;
