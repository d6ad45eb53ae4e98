//! What is known of a class of pods: answers about nodes, with the generations they belong to.

use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::Diagnosis;
use crate::framework::{CycleState, Framework, Probe, Refusal, Reuse, Status, timed};
use std::collections::HashMap;
use std::sync::Arc;

/// EquivalenceClasses kept: a busy cluster schedules a few workloads at a time. One is 64 bytes a node or so.
const KEPT: usize = 16;
/// Distinct refusals kept before a class begins anew; a plugin that puts numbers into its reasons makes many.
const MOST_REFUSALS: usize = 4096;

/// What the filters that look at one node alone said of it.
#[derive(Clone, Copy, Default)]
struct Verdict {
    /// Of the node then; 0 for never.
    generation: u64,
    /// 0 fits; else an index into `refusals`, plus one.
    code: u32,
}

#[derive(Default)]
pub struct EquivalenceClass {
    /// Of the plugins; those that are asked every time overwrite theirs.
    pub state: CycleState,
    prepared: bool,
    epoch: u64,
    /// The number of the first change that the state has not followed.
    cursor: u64,
    verdicts: Vec<Verdict>,
    refusals: Vec<Refusal>,
    /// Slots that were refused in the last cycle, and the codes.
    pub(super) refused: Vec<(usize, u32)>,
    /// Filters that look beyond the one node, as indices into the profile's.
    beyond: Vec<usize>,
    /// Codes of what such filters tell as a number: filter, number, code.
    told: Vec<(usize, u8, u32)>,
    /// `columns` of each slot, and the generation they belong to.
    scores: Vec<i64>,
    scored: Vec<u64>,
    columns: usize,
    /// A failure, and the snapshot's generation that it is true of.
    failure: Option<(u64, Arc<Diagnosis>)>,
    used: u64,
}

impl EquivalenceClass {
    /// Measures the next cycle, or not.
    pub(crate) fn measure(&mut self, probe: Option<Probe>) {
        self.state.probe = probe;
    }

    /// Makes the state current: by what changed, or from the beginning.
    pub(super) fn refresh(
        &mut self,
        framework: &Framework,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Result<(), (&'static str, Status)> {
        let current = self.prepared && self.epoch == snapshot.epoch() && self.refusals.len() < MOST_REFUSALS;
        if current && self.follow(framework, pod, snapshot) {
            return Ok(());
        }
        let (used, probe) = (self.used, self.state.probe.take());
        *self = Self { used, epoch: snapshot.epoch(), columns: framework.columns(), ..Self::default() };
        self.state.probe = probe;
        self.cursor = snapshot.changes().next();
        self.verdicts = vec![Verdict::default(); snapshot.slots()];
        framework.pre_filter(&mut self.state, pod, snapshot, |reuse| reuse != Reuse::Never)?;
        self.prepared = true;
        Ok(())
    }

    /// Follows the pods that came and went; false when too many did.
    fn follow(&mut self, framework: &Framework, pod: &PodInfo, snapshot: &Snapshot) -> bool {
        let Some(changes) = snapshot.changes().since(self.cursor) else { return false };
        for change in changes {
            let node = snapshot.node(change.slot);
            framework.follow(&mut self.state, pod, &change.pod, node, change.added);
        }
        self.cursor = snapshot.changes().next();
        !self.state.has_expired()
    }

    /// Why this class went nowhere, if nothing changed since.
    pub(super) fn known_failure(&self, framework: &Framework, snapshot: &Snapshot) -> Option<Arc<Diagnosis>> {
        let (generation, diagnosis) = self.failure.as_ref()?;
        let lasting = framework.filter.iter().chain(&framework.pre_filter);
        let lasting = lasting.into_iter().all(|e| e.reuse != Reuse::Never || !self.state.filters(e.name));
        (*generation == snapshot.generation() && lasting).then(|| diagnosis.clone())
    }

    /// Remembers a failure, PostFilter's words included.
    pub(crate) fn failed(&mut self, snapshot: &Snapshot, diagnosis: Arc<Diagnosis>) {
        self.failure = Some((snapshot.generation(), diagnosis));
    }

    fn intern(&mut self, refusal: Refusal) -> u32 {
        let at = self.refusals.iter().position(|known| *known == refusal);
        let at = at.unwrap_or_else(|| {
            self.refusals.push(refusal);
            self.refusals.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }

    /// 0 when the node passes the filters that look at it alone, rivals included.
    fn judge(&mut self, framework: &Framework, snapshot: &Snapshot, pod: &PodInfo, slot: usize) -> u32 {
        let node = snapshot.node(slot);
        if self.verdicts[slot].generation == node.generation {
            return self.verdicts[slot].code;
        }
        let alone = |_: usize, reuse: Reuse| reuse == Reuse::Node;
        let mut verdict = framework.filter(&self.state, pod, node, alone);
        if verdict.is_ok() && !node.nominated.is_empty() {
            let mut crowded = node.clone_for_simulation();
            crate::framework::nominated_pods(pod, node).for_each(|rival| crowded.add(rival.clone()));
            verdict = framework.filter(&self.state, pod, &crowded, alone);
        }
        let code = verdict.err().map_or(0, |refusal| self.intern(refusal));
        self.verdicts[slot] = Verdict { generation: node.generation, code };
        code
    }

    /// Takes down which filters look beyond the one node; after PreFilter.
    pub(super) fn look_beyond(&mut self, framework: &Framework) {
        self.beyond.clear();
        self.beyond.extend(framework.beyond(&self.state));
    }

    /// 0 when the node passes every filter; else the code of the first refusal. An error is the text of what failed.
    /// `own` says that the pod is nominated there, which others of its class are not.
    pub(super) fn judge_all(
        &mut self,
        framework: &Framework,
        snapshot: &Snapshot,
        pod: &PodInfo,
        slot: usize,
        own: bool,
    ) -> Result<u32, String> {
        let known = self.verdicts[slot];
        if !own && self.beyond.is_empty() && known.generation == snapshot.mark(slot) {
            return self.checked(known.code);
        }
        let node = snapshot.node(slot);
        let rivals = !node.nominated.is_empty();
        if own || (rivals && !self.beyond.is_empty()) {
            let refusal = crate::framework::fits(framework, &mut self.state, pod, node).err();
            let code = refusal.map_or(0, |refusal| self.intern(refusal));
            return self.checked(code);
        }
        let mut code = self.judge(framework, snapshot, pod, slot);
        if !self.beyond.is_empty() {
            let before = match code {
                0 => usize::MAX,
                refused => self.refusals[refused as usize - 1].0,
            };
            code = self.judge_beyond(framework, pod, node, before).unwrap_or(code);
        }
        self.checked(code)
    }

    /// The code of the first refusal by a filter that looks beyond the node and stands before `before`.
    fn judge_beyond(
        &mut self,
        framework: &Framework,
        pod: &PodInfo,
        node: &NodeInfo,
        before: usize,
    ) -> Option<u32> {
        for at in 0..self.beyond.len() {
            let index = self.beyond[at];
            if index >= before {
                break;
            }
            let entry = &framework.filter[index];
            let measured = self.state.probe.as_ref().is_some_and(|probe| !probe.is_spent());
            let told = if measured { None } else { entry.plugin.filter_code(&self.state, pod, node) };
            let known = |kind: u8| self.told.iter().find(|t| t.0 == index && t.1 == kind).map(|t| t.2);
            match told {
                Some(0) => continue,
                Some(kind) if known(kind).is_some() => return known(kind),
                _ => {}
            }
            let run = || entry.plugin.filter(&self.state, pod, node);
            let status = timed(self.state.probe.as_ref(), entry.name, "Filter", run);
            if !status.is_success() {
                let code = self.intern((index, entry.name, status));
                self.told.extend(told.map(|kind| (index, kind, code)));
                return Some(code);
            }
        }
        None
    }

    fn checked(&self, code: u32) -> Result<u32, String> {
        if code == 0 {
            return Ok(0);
        }
        match self.refusals.get(code as usize - 1) {
            Some((_, plugin, Status::Error(why))) => Err(format!("running {plugin:?} filter plugin: {why}")),
            _ => Ok(code),
        }
    }

    /// Puts the refusals of the last cycle together.
    pub(super) fn diagnose(&self, nodes: usize) -> Diagnosis {
        let mut diagnosis = Diagnosis::new(nodes);
        let mut counts = vec![0; self.refusals.len()];
        for (slot, code) in &self.refused {
            let at = *code as usize - 1;
            counts[at] += 1;
            if matches!(self.refusals[at].2, Status::Unschedulable(_)) {
                diagnosis.resolvable.push(*slot);
            }
        }
        for ((_, plugin, status), count) in self.refusals.iter().zip(counts).filter(|(_, n)| *n > 0) {
            diagnosis.refuse(plugin, status, count);
        }
        diagnosis
    }

    /// Brings the kept scores of these nodes up to date.
    pub(super) fn score_nodes(
        &mut self,
        framework: &Framework,
        snapshot: &Snapshot,
        pod: &PodInfo,
        nodes: &[usize],
    ) {
        if self.scored.is_empty() {
            self.scored = vec![0; snapshot.slots()];
            self.scores = vec![0; snapshot.slots() * self.columns];
        }
        for slot in nodes {
            if self.scored[*slot] == snapshot.mark(*slot) {
                continue;
            }
            let node = snapshot.node(*slot);
            self.scored[*slot] = node.generation;
            for entry in framework.score.iter().filter(|e| self.state.scores(e.name)) {
                if let Some(column) = entry.column {
                    self.scores[slot * self.columns + column] = entry.plugin.score(&self.state, pod, node);
                }
            }
        }
    }

    pub(super) fn kept_score(&self, slot: usize, column: usize) -> i64 {
        self.scores[slot * self.columns + column]
    }
}

/// The classes of pods that were scheduled lately.
#[derive(Default)]
pub struct EquivalenceClasses {
    by_key: HashMap<Arc<[u8]>, Box<EquivalenceClass>>,
    clock: u64,
}

impl EquivalenceClasses {
    /// Takes a class out for one cycle; a new one when it is not known.
    pub fn take(&mut self, pod: &PodInfo) -> Box<EquivalenceClass> {
        self.by_key.remove(pod.class()).unwrap_or_default()
    }

    /// Puts it back, and forgets the one that was not used for longest when there are too many.
    pub fn put(&mut self, pod: &PodInfo, mut class: Box<EquivalenceClass>) {
        self.clock += 1;
        class.used = self.clock;
        self.by_key.insert(pod.class().clone(), class);
        if self.by_key.len() > KEPT
            && let Some(oldest) = self.by_key.iter().min_by_key(|(_, c)| c.used).map(|(k, _)| k.clone())
        {
            self.by_key.remove(&oldest);
        }
    }

    pub fn clear(&mut self) {
        self.by_key = HashMap::new();
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}
