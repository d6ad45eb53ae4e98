//! The scheduling cycle: a pure decision about one pod over a snapshot, with its reasons.
//!
//! What plugins promise to be lasting ([`Reuse`](crate::framework::Reuse)) is kept per class of pods: the second replica of a workload asks
//! only about the nodes that changed since the first.

mod class;

pub use class::{EquivalenceClass, EquivalenceClasses};

use crate::cache::{PodInfo, Snapshot};
use crate::framework::{
    Attempt, Diagnosis, Framework, NodeScore, PostFilter, Reuse, Status, Unhelpful, timed,
};
use rand::Rng;
use std::sync::Arc;

/// Clusters smaller than this are always looked at whole; upstream's `minFeasibleNodesToFind`.
const FEWEST_NODES: usize = 100;
/// Upstream's floor of the adaptive percentage.
const LEAST_PERCENT: usize = 5;

/// Why the pod goes nowhere.
#[derive(Clone, Debug)]
pub enum Failure {
    /// No node fits.
    Unschedulable(Arc<Diagnosis>),
    /// Something broke; the pod is not to blame.
    Error(String),
}

/// Who restricted the nodes, and the reason of those that were left out.
type Absent = (Vec<&'static str>, String);

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

/// One pod's way through the synchronous extension points.
pub struct Cycle<'a> {
    pub framework: &'a Framework,
    pub snapshot: &'a Snapshot,
    pub pod: &'a Arc<PodInfo>,
    pub class: &'a mut EquivalenceClass,
}

impl Cycle<'_> {
    /// The slots of nodes that fit. `start` is where looking begins in the order of nodes and is moved on, so that
    /// all nodes of a large cluster get their turn.
    pub fn find(&mut self, percentage: usize, start: &mut usize) -> Result<Vec<usize>, Failure> {
        let nodes = self.snapshot.node_count();
        if nodes == 0 {
            return Err(Failure::Unschedulable(Arc::new(Diagnosis::new(0))));
        }
        let nominated = self.snapshot.nomination(&self.pod.uid).is_some();
        let known = self.class.known_failure(self.framework, self.snapshot);
        if let Some(known) = known.filter(|_| !nominated) {
            return Err(Failure::Unschedulable(known));
        }
        if let Err((plugin, status)) = self.pre_filter() {
            return Err(refused_by_pre_filter(self.snapshot, plugin, status));
        }
        if let Some(fitting) = self.nominated()? {
            return Ok(vec![fitting]);
        }
        self.find_anywhere(percentage, start)
    }

    /// Like [`find`](Self::find), after it: wherever the pod is nominated to.
    pub fn find_anywhere(&mut self, percentage: usize, start: &mut usize) -> Result<Vec<usize>, Failure> {
        let nodes = self.snapshot.node_count();
        let (slots, absent) = self.candidates();
        if let Some((plugins, text)) = absent.as_ref().filter(|_| self.class.state.leaves_no_node()) {
            let mut diagnosis = Diagnosis::new(nodes);
            let text = match plugins.as_slice() {
                [only] => format!("node(s) didn't satisfy plugin {only}"),
                _ => format!("{text} simultaneously"),
            };
            diagnosis.refuse_all(plugins.clone(), text);
            return Err(Failure::Unschedulable(Arc::new(diagnosis)));
        }
        self.filter(&slots, absent, percentage, start)
    }

    /// What filters said of the nodes that they refused, in the find before; others may have been found.
    pub fn diagnosis(&self) -> Diagnosis {
        let mut diagnosis = self.class.diagnose(self.snapshot.node_count());
        let (slots, absent) = self.candidates();
        if let Some((plugins, text)) = absent {
            diagnosis.refuse_absent(plugins, text, self.snapshot.node_count() - slots.len());
        }
        diagnosis
    }

    fn pre_filter(&mut self) -> Result<(), (&'static str, Status)> {
        let (framework, snapshot, pod) = (self.framework, self.snapshot, self.pod);
        let lasting = self.class.refresh(framework, pod, snapshot);
        if lasting.as_ref().is_err_and(|(_, status)| !matches!(status, Status::Unschedulable(_))) {
            return lasting;
        }
        let asked = framework.pre_filter(&mut self.class.state, pod, snapshot, |reuse| reuse == Reuse::Never);
        self.class.look_beyond(framework);
        asked.and(lasting)
    }

    /// The node that preemption made room on, if it fits by now; then no other is looked at.
    fn nominated(&mut self) -> Result<Option<usize>, Failure> {
        let Some(slot) = self.own_slot() else { return Ok(None) };
        self.class.refused.clear();
        match self.class.judge_all(self.framework, self.snapshot, self.pod, slot, true) {
            Ok(0) => Ok(Some(slot)),
            Ok(_) => Ok(None),
            Err(why) => Err(Failure::Error(why)),
        }
    }

    /// Of the node that the pod is nominated to.
    fn own_slot(&self) -> Option<usize> {
        let name = self.snapshot.nomination(&self.pod.uid)?;
        self.snapshot.node_named(name).map(|node| node.slot)
    }

    /// The slots to look at, and when PreFilter restricted them, who did, with the reason for the others.
    fn candidates(&self) -> (Vec<usize>, Option<Absent>) {
        let Some((names, plugins)) = self.class.state.remaining_nodes() else {
            return (Vec::new(), None);
        };
        let slots = names.iter().filter_map(|name| self.snapshot.node_named(name)).map(|n| n.slot).collect();
        let text = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
        (slots, Some((plugins, text)))
    }

    fn filter(
        &mut self,
        only: &[usize],
        absent: Option<Absent>,
        percentage: usize,
        start: &mut usize,
    ) -> Result<Vec<usize>, Failure> {
        let (snapshot, own) = (self.snapshot, self.own_slot());
        let order = if absent.is_some() { only } else { snapshot.order() };
        let enough = enough_nodes(order.len(), self.framework.percentage.unwrap_or(percentage));
        let first = if absent.is_some() { 0 } else { *start % order.len().max(1) };
        let mut feasible = Vec::with_capacity(enough.min(order.len()));
        self.class.refused.clear();
        let mut seen = 0;
        for slot in order[first..].iter().chain(&order[..first]) {
            seen += 1;
            match self.class.judge_all(self.framework, snapshot, self.pod, *slot, own == Some(*slot)) {
                Ok(0) => feasible.push(*slot),
                Ok(code) => self.class.refused.push((*slot, code)),
                Err(why) => return Err(Failure::Error(why)),
            }
            if feasible.len() >= enough {
                break;
            }
        }
        *start = (first + seen) % order.len().max(1);
        if !feasible.is_empty() {
            return Ok(feasible);
        }
        Err(Failure::Unschedulable(Arc::new(self.diagnosis())))
    }

    /// The weighted total of every node, in the order of `nodes`, or what failed.
    pub fn score(&mut self, nodes: &[usize]) -> Result<Vec<NodeScore>, Failure> {
        let mut totals: Vec<NodeScore> =
            nodes.iter().map(|slot| NodeScore { node: *slot, score: 0 }).collect();
        if nodes.len() < 2 {
            return Ok(totals);
        }
        self.pre_score(nodes)?;
        self.class.score_nodes(self.framework, self.snapshot, self.pod, nodes);
        let mut scores = totals.clone();
        for entry in &self.framework.score {
            if !self.class.state.scores(entry.name) {
                continue;
            }
            let (class, pod, snapshot) = (&*self.class, self.pod, self.snapshot);
            let run = || {
                for score in &mut scores {
                    score.score = match entry.column {
                        Some(column) => class.kept_score(score.node, column),
                        None => entry.plugin.score(&class.state, pod, snapshot.node(score.node)),
                    };
                }
                entry.plugin.normalize(&class.state, pod, &mut scores);
                Status::Success
            };
            // All nodes together: most of their scores are kept from an earlier pod.
            let _always_success = timed(class.state.probe.as_ref(), entry.name, "Score", run);
            for (total, score) in totals.iter_mut().zip(&scores) {
                total.score += score.score * entry.weight;
            }
        }
        Ok(totals)
    }

    fn pre_score(&mut self, nodes: &[usize]) -> Result<(), Failure> {
        self.class.state.clear_skipped_scores();
        for plugin in &self.framework.pre_score {
            let state = &mut self.class.state;
            let probe = state.probe.take();
            let run = || plugin.pre_score(state, self.pod, self.snapshot, nodes);
            let status = timed(probe.as_ref(), plugin.name(), "PreScore", run);
            self.class.state.probe = probe;
            match status {
                Status::Success => {}
                Status::Skip => self.class.state.skip_score(plugin.name()),
                failed => {
                    let why = failed.message();
                    return Err(Failure::Error(format!(
                        "running PreScore plugin {:?}: {why}",
                        plugin.name()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Runs PostFilter until a plugin finds candidates; or what all of them said.
    pub fn post_filter(
        &mut self,
        diagnosis: &Diagnosis,
        all_candidates: bool,
        seed: usize,
    ) -> Result<PostFilter, Failure> {
        let mut said = Vec::new();
        for plugin in &self.framework.post_filter {
            let mut attempt = Attempt {
                pod: self.pod,
                snapshot: self.snapshot,
                diagnosis,
                all_candidates,
                seed,
                framework: self.framework,
                state: &mut self.class.state,
            };
            match plugin.post_filter(&mut attempt) {
                PostFilter::Unhelpful(why) => said.push(why),
                PostFilter::Error(why) => {
                    return Err(Failure::Error(format!(
                        "running PostFilter plugin {:?}: {why}",
                        plugin.name()
                    )));
                }
                found @ PostFilter::Preempt(_) => return Ok(found),
            }
        }
        Ok(PostFilter::Unhelpful(Unhelpful::all(&said)))
    }
}

fn refused_by_pre_filter(snapshot: &Snapshot, plugin: &'static str, status: Status) -> Failure {
    if let Status::Error(why) = status {
        return Failure::Error(format!("running PreFilter plugin {plugin:?}: {why}"));
    }
    let mut diagnosis = Diagnosis::new(snapshot.node_count());
    diagnosis.pending = matches!(status, Status::Pending(_));
    if matches!(status, Status::Unschedulable(_)) {
        diagnosis.resolvable = snapshot.order().to_vec();
    }
    diagnosis.refuse_all(vec![plugin], status.message());
    Failure::Unschedulable(Arc::new(diagnosis))
}

/// A node with the highest total; among equals any, so that equal nodes fill evenly. `None` of nothing.
pub fn best(totals: &[NodeScore], random: &mut impl Rng) -> Option<usize> {
    let highest = totals.iter().map(|t| t.score).max()?;
    let mut chosen = None;
    for (others, total) in totals.iter().filter(|t| t.score == highest).enumerate() {
        if random.random_range(0..=others) == 0 {
            chosen = Some(total.node);
        }
    }
    chosen
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
