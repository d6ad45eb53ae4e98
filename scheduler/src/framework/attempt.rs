//! A failed attempt in the hands of PostFilter: what was found, and a way to try what would be if.

use super::{CycleState, Diagnosis, Framework, Status};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use jiff::Timestamp;
use std::cmp::Reverse;
use std::sync::Arc;

/// A node on which the pod would fit without some others.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub node: String,
    /// The most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of them a PodDisruptionBudget protects.
    pub violations: usize,
}

/// Upstream's order of candidates, the best first: fewest violated budgets, the least important of their most
/// important victims, the smallest sum of priorities, fewest victims, and the most important victims that began last.
pub type Rank = (usize, i32, i64, usize, Reverse<Timestamp>);

impl Candidate {
    pub fn rank(&self) -> Rank {
        let victims = &self.victims;
        let highest = victims.iter().map(|p| p.priority).max().unwrap_or(i32::MIN);
        // Negative priorities must not make many victims look better than few.
        let sum = victims.iter().map(|p| i64::from(p.priority) + i64::from(i32::MAX) + 1).sum();
        let important = victims.iter().filter(|p| p.priority == highest);
        let earliest = important.map(|p| p.started()).min().unwrap_or(Timestamp::MAX);
        (self.violations, highest, sum, victims.len(), Reverse(earliest))
    }
}

/// What PostFilter found.
#[derive(Clone, Debug)]
pub enum PostFilter {
    /// The pod fits on one of these nodes once its victims are gone. The best comes first; more than one is only
    /// given when [`Attempt::all_candidates`] asks for them.
    Preempt(Vec<Candidate>),
    /// Nothing helps. Goes on with the next plugin.
    Unhelpful(Unhelpful),
    /// It failed.
    Error(String),
}

impl PostFilter {
    /// Nothing that the plugin could do helps; upstream's words for it.
    pub fn nothing(why: impl Into<String>) -> Self {
        Self::Unhelpful(Unhelpful::Nothing(why.into()))
    }
}

/// Why PostFilter does not help, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unhelpful {
    /// Nothing makes room for the pod: a nomination that it has is void.
    Nothing(String),
    /// The pod may not take others away: a nomination that it has stays.
    NotEligible(String),
}

impl Unhelpful {
    pub fn why(&self) -> &str {
        match self {
            Self::Nothing(why) | Self::NotEligible(why) => why,
        }
    }

    /// What several plugins say together.
    pub fn all(said: &[Self]) -> Self {
        let words: Vec<&str> = said.iter().map(Self::why).filter(|why| !why.is_empty()).collect();
        let not_eligible = said.iter().any(|one| matches!(one, Self::NotEligible(_)));
        if not_eligible { Self::NotEligible(words.join(", ")) } else { Self::Nothing(words.join(", ")) }
    }
}

/// One pod that fits nowhere.
pub struct Attempt<'a> {
    pub pod: &'a Arc<PodInfo>,
    pub snapshot: &'a Snapshot,
    pub diagnosis: &'a Diagnosis,
    /// Whether somebody (an extender) chooses among the candidates.
    pub all_candidates: bool,
    /// Any number, different from attempt to attempt, to spread what is looked at first.
    pub seed: usize,
    pub(crate) framework: &'a Framework,
    pub(crate) state: &'a mut CycleState,
}

impl Attempt<'_> {
    /// Whether fitting depends on the pod's class and the node alone, so that an answer about a node can be kept
    /// until the node's generation changes.
    pub fn depends_on_node_alone(&self) -> bool {
        !self.framework.looks_beyond_nodes(self.state)
    }

    /// Whether the pod would fit on the node as it is sketched, with the pods that are nominated there and matter.
    pub fn fits(&mut self, sketch: &NodeInfo) -> bool {
        self.refusal(sketch).is_none()
    }

    /// What the first plugin says that refuses the node as it is sketched.
    pub fn refusal(&mut self, sketch: &NodeInfo) -> Option<Status> {
        fits(self.framework, self.state, self.pod, sketch).err().map(|(_, _, status)| status)
    }

    /// Takes a pod off the sketch, for all plugins. Put it back with [`put_back`](Self::put_back) before the end.
    pub fn take_off(&mut self, sketch: &mut NodeInfo, pod: &Arc<PodInfo>) {
        if sketch.remove(&pod.uid).is_some() {
            self.framework.follow(self.state, self.pod, pod, sketch, false);
        }
    }

    pub fn put_back(&mut self, sketch: &mut NodeInfo, pod: &Arc<PodInfo>) {
        sketch.add(pod.clone());
        self.framework.follow(self.state, self.pod, pod, sketch, true);
    }
}

/// Pods nominated to the node that get their room before `pod` does.
pub(crate) fn nominated_pods<'n>(
    pod: &PodInfo,
    node: &'n NodeInfo,
) -> impl Iterator<Item = &'n Arc<PodInfo>> {
    let (priority, uid) = (pod.priority, pod.uid.clone());
    node.nominated.iter().filter(move |n| n.priority >= priority && n.uid != uid)
}

/// Runs every Filter for one node: with the rivals on it, and, if there are any, without them too, because a pod may
/// need what a rival would only maybe bring (pod affinity).
pub(crate) fn fits(
    framework: &Framework,
    state: &mut CycleState,
    pod: &PodInfo,
    node: &NodeInfo,
) -> Result<(), (usize, &'static str, Status)> {
    let expected: Vec<Arc<PodInfo>> = nominated_pods(pod, node).cloned().collect();
    if !expected.is_empty() {
        let mut crowded = node.clone_for_simulation();
        for rival in &expected {
            crowded.add(rival.clone());
            framework.follow(state, pod, rival, &crowded, true);
        }
        let verdict = framework.filter(state, pod, &crowded, |_, _| true);
        expected.iter().for_each(|rival| framework.follow(state, pod, rival, &crowded, false));
        verdict?;
    }
    framework.filter(state, pod, node, |_, _| true)
}
