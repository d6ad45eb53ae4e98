//! The scheduler without I/O: takes in what happened, decides about one pod after the other. Whoever owns it carries
//! out what it decides, and tells it what came of it.

use crate::cache::{NodeChange, Place, PodInfo, SharedLabels, Snapshot};
use crate::cycle::{self, Cycle, EquivalenceClass, EquivalenceClasses, Failure};
use crate::framework::{
    ClusterEvent, Diagnosis, Framework, Meter, NodeScore, ObjectKind, PostFilter, Status, timed,
};
use crate::metrics::Metrics;
use crate::queue::{Popped, Queue};
use coracle_api::pod::is_terminal;
use coracle_api::well_known;
use k8s_openapi::api::core::v1::{Node, Pod, PodResourceClaimStatus};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a scheduler of some profiles knows.
pub struct SchedulerState {
    frameworks: HashMap<String, Arc<Framework>>,
    pub snapshot: Snapshot,
    labels: SharedLabels,
    pub queue: Queue,
    classes: EquivalenceClasses,
    percentage: usize,
    next_start: usize,
    random: SmallRng,
    meter: Option<Meter>,
}

/// A pod in its cycle, between the steps.
pub struct Found {
    pub class: Box<EquivalenceClass>,
    /// Slots of nodes that fit.
    pub feasible: Result<Vec<usize>, Failure>,
}

/// Whether nothing of a waiting pod changed that could matter to a plugin.
fn is_alike(old: &Pod, new: &Pod) -> bool {
    old.spec == new.spec && old.metadata.labels == new.metadata.labels && claims(old) == claims(new)
}

fn claims(pod: &Pod) -> Option<&Vec<PodResourceClaimStatus>> {
    pod.status.as_ref()?.resource_claim_statuses.as_ref()
}

impl SchedulerState {
    /// `backoff` is the first and the longest pause of a pod that could not be scheduled.
    pub fn new(
        frameworks: impl IntoIterator<Item = Arc<Framework>>,
        percentage: usize,
        backoff: (Duration, Duration),
    ) -> Self {
        Self {
            frameworks: frameworks.into_iter().map(|f| (f.scheduler_name.clone(), f)).collect(),
            snapshot: Snapshot::default(),
            labels: SharedLabels::default(),
            queue: Queue::new(backoff),
            classes: EquivalenceClasses::default(),
            percentage,
            next_start: 0,
            random: SmallRng::from_os_rng(),
            meter: None,
        }
    }

    /// Measures plugins.
    #[must_use]
    pub fn measured(mut self, metrics: Arc<Metrics>) -> Self {
        self.meter = Some(Meter::new(metrics));
        self
    }

    /// Makes every choice among equals the same from run to run, for tests.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.random = SmallRng::seed_from_u64(seed);
        self
    }

    pub fn frameworks(&self) -> impl Iterator<Item = &Arc<Framework>> {
        self.frameworks.values()
    }

    pub fn set_node(&mut self, node: Arc<Node>, now: Instant) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let change = self.snapshot.set_node(node);
        if change.is_some_and(NodeChange::is_nothing) {
            return;
        }
        let Some(info) = self.snapshot.node_named(&name) else { return };
        match change {
            Some(changed) => self.queue.on_event(&ClusterEvent::NodeUpdated { node: info, changed }, now),
            None => self.queue.on_event(&ClusterEvent::NodeAdded(info), now),
        }
    }

    pub fn remove_node(&mut self, node: &Node, now: Instant) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let promised = self.snapshot.node_named(name).map(|info| info.nominated.clone()).unwrap_or_default();
        self.snapshot.remove_node(name);
        // There will be no room there.
        promised.iter().for_each(|pod| self.queue.unnominated(&pod.uid));
        self.queue.on_event(&ClusterEvent::NodeGone(node), now);
    }

    /// Takes in a pod as the API shows it, bound or not.
    pub fn set_pod(&mut self, pod: &Arc<Pod>, old: Option<&Arc<Pod>>, now: Instant) {
        if is_terminal(pod.as_ref()) {
            return self.remove_pod(pod, now);
        }
        if shows_a_component(pod) {
            return;
        }
        if pod.spec.as_ref().is_some_and(|s| s.node_name.as_ref().is_some_and(|n| !n.is_empty())) {
            let info = Arc::new(PodInfo::bound(pod, &mut self.labels));
            return self.set_bound(info, now);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return self.remove_pod(pod, now);
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let Some(framework) = self.framework_of(pod) else { return };
        if self.snapshot.whereabouts(uid) == Place::Nowhere {
            let changed = !old.is_some_and(|old| is_alike(old, pod));
            let info = Arc::new(PodInfo::new(pod.clone()));
            self.queue.set(info.clone(), &framework, changed, now);
            self.follow_nomination(&info, old, now);
        }
    }

    /// Somebody else may nominate a pod, or withdraw it; what this scheduler decided and the API does not show yet
    /// stays.
    fn follow_nomination(&mut self, pod: &Arc<PodInfo>, old: Option<&Arc<Pod>>, now: Instant) {
        let before = old.and_then(|old| old.status.as_ref()?.nominated_node_name.as_deref());
        let before = before.filter(|node| !node.is_empty());
        match pod.nominated_node() {
            Some(node) if before != Some(node) || self.snapshot.nomination(&pod.uid).is_none() => {
                if self.snapshot.nomination(&pod.uid).is_some_and(|known| known != node) {
                    self.withdraw(&pod.uid);
                }
                self.snapshot.nominate(pod.clone(), node);
            }
            None if before.is_some() => self.withdraw(&pod.uid),
            _ => {}
        }
        // The room that was kept for it there is free.
        if let Some(node) = before.filter(|node| pod.nominated_node() != Some(node)) {
            self.queue.on_withdrawal(pod, node, now);
        }
    }

    /// Takes the nomination of a waiting pod back.
    pub fn withdraw(&mut self, uid: &str) {
        self.snapshot.withdraw(uid);
        self.queue.unnominated(uid);
    }

    fn set_bound(&mut self, info: Arc<PodInfo>, now: Instant) {
        let uid = info.uid.clone();
        self.queue.remove(&uid);
        self.snapshot.withdraw(&uid);
        let news = self.snapshot.whereabouts(&uid) != Place::Bound;
        let known = self.snapshot.pod(&uid);
        let relabelled = known.is_some_and(|known| known.labels() != info.labels());
        let shrank = known.is_some_and(|known| known.requests.exceed(&info.requests));
        self.snapshot.set_pod(info.clone());
        if news {
            self.queue.on_event(&ClusterEvent::PodAssigned(&info), now);
        } else if relabelled || shrank {
            self.queue.on_event(&ClusterEvent::PodChanged { pod: &info, shrank }, now);
        }
    }

    /// The pod was deleted, or uses nothing any more. The room that it had, or that was kept for it, is free.
    pub fn remove_pod(&mut self, pod: &Arc<Pod>, now: Instant) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.queue.remove(uid);
        let node = self.snapshot.node_of(uid).map(str::to_owned);
        let kept = self.snapshot.nomination(uid).map(str::to_owned);
        self.snapshot.withdraw(uid);
        let gone = self.snapshot.remove_pod(uid);
        if node.is_none() && kept.is_none() {
            return;
        }
        let gone = gone.unwrap_or_else(|| Arc::new(PodInfo::new(pod.clone())));
        if let Some(node) = node {
            self.queue.on_event(&ClusterEvent::PodGone { pod: &gone, node: &node }, now);
        }
        if let Some(kept) = kept {
            self.queue.on_withdrawal(&gone, &kept, now);
        }
    }

    pub fn object_changed(&mut self, kind: ObjectKind, namespace: &str, name: &str, now: Instant) {
        // Kept states count by them.
        let counts = matches!(
            kind,
            ObjectKind::Namespace
                | ObjectKind::Workload
                | ObjectKind::PodDisruptionBudget
                | ObjectKind::DeviceClass
        );
        if counts {
            self.snapshot.touch();
        }
        self.queue.on_event(&ClusterEvent::Object { kind, namespace, name }, now);
    }

    pub fn framework_of(&self, pod: &Pod) -> Option<Arc<Framework>> {
        let name = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or("default-scheduler");
        self.frameworks.get(name).cloned()
    }

    /// PreFilter and Filter.
    pub fn find(&mut self, popped: &Popped) -> Found {
        let mut class = self.classes.take(&popped.pod);
        class.measure(self.meter.as_mut().and_then(Meter::next));
        let mut cycle = Cycle {
            framework: &popped.framework,
            snapshot: &self.snapshot,
            pod: &popped.pod,
            class: &mut class,
        };
        let feasible = cycle.find(self.percentage, &mut self.next_start);
        Found { class, feasible }
    }

    /// Filter once more, after [`find`](Self::find) gave the node that the pod is nominated to and an extender refused
    /// it.
    pub fn find_anywhere(
        &mut self,
        popped: &Popped,
        class: &mut EquivalenceClass,
    ) -> Result<Vec<usize>, Failure> {
        let (framework, snapshot) = (&popped.framework, &self.snapshot);
        let mut cycle = Cycle { framework, snapshot, pod: &popped.pod, class };
        cycle.find_anywhere(self.percentage, &mut self.next_start)
    }

    /// What filters said of the nodes that they refused in the pod's last find.
    pub fn diagnosis(&self, popped: &Popped, class: &mut EquivalenceClass) -> Diagnosis {
        let (framework, snapshot) = (&popped.framework, &self.snapshot);
        Cycle { framework, snapshot, pod: &popped.pod, class }.diagnosis()
    }

    /// PreScore, Score, NormalizeScore.
    pub fn score(
        &mut self,
        popped: &Popped,
        class: &mut EquivalenceClass,
        nodes: &[usize],
    ) -> Result<Vec<NodeScore>, Failure> {
        let (framework, snapshot) = (&popped.framework, &self.snapshot);
        Cycle { framework, snapshot, pod: &popped.pod, class }.score(nodes)
    }

    /// A node with the highest total.
    pub fn choose(&mut self, totals: &[NodeScore]) -> Option<usize> {
        cycle::best(totals, &mut self.random)
    }

    /// PostFilter. A pod for which nothing helps makes the same answer known for its class.
    pub fn post_filter(
        &mut self,
        popped: &Popped,
        class: &mut EquivalenceClass,
        diagnosis: &Arc<Diagnosis>,
        all_candidates: bool,
    ) -> Result<PostFilter, Failure> {
        if diagnosis.nodes == 0 {
            return Ok(PostFilter::nothing(""));
        }
        if let Some(known) = &diagnosis.preemption {
            return Ok(PostFilter::Unhelpful(known.clone()));
        }
        let seed = self.random.random_range(0..=usize::MAX / 2);
        let (framework, snapshot) = (&popped.framework, &self.snapshot);
        let mut cycle = Cycle { framework, snapshot, pod: &popped.pod, class };
        let answer = cycle.post_filter(diagnosis, all_candidates, seed)?;
        if let PostFilter::Unhelpful(why) = &answer
            && snapshot.nomination(&popped.pod.uid).is_none()
            && diagnosis.for_all.is_none()
        {
            let mut known = diagnosis.as_ref().clone();
            known.preemption = Some(why.clone());
            class.failed(snapshot, Arc::new(known));
        }
        Ok(answer)
    }

    /// Counts the pod on the node and runs Reserve; a refusal leaves nothing behind. Room that was kept for the pod on
    /// another node is free.
    pub fn reserve(
        &mut self,
        popped: &Popped,
        class: &mut EquivalenceClass,
        slot: usize,
        now: Instant,
    ) -> Result<String, (&'static str, Status)> {
        let node = self.snapshot.node(slot).name.clone();
        for plugin in &popped.framework.reserve {
            let probe = class.state.probe.take();
            let run = || plugin.reserve(&mut class.state, &popped.pod, self.snapshot.node(slot));
            let status = timed(probe.as_ref(), plugin.name(), "Reserve", run);
            class.state.probe = probe;
            if !status.is_success() {
                popped.framework.unreserve(&popped.pod, &node);
                return Err((plugin.name(), status));
            }
        }
        let kept = self.snapshot.nomination(&popped.pod.uid).filter(|kept| *kept != node);
        let kept = kept.map(str::to_owned);
        self.snapshot.withdraw(&popped.pod.uid);
        self.snapshot.assume(popped.pod.clone(), &node);
        if let Some(kept) = kept {
            self.queue.on_withdrawal(&popped.pod, &kept, now);
        }
        Ok(node)
    }

    /// Ends the pod's cycle.
    pub fn done(&mut self, popped: &Popped, class: Box<EquivalenceClass>) {
        self.classes.put(&popped.pod, class);
    }

    /// Takes an assumption back, and lets others have the room on that node.
    pub fn forget(&mut self, pod: &PodInfo, node: &str, now: Instant) {
        self.snapshot.forget(&pod.uid);
        self.queue.on_event(&ClusterEvent::PodGone { pod, node }, now);
    }

    /// Nobody waits: memory that only makes the next pods quicker is given back.
    pub fn rest(&mut self) {
        self.classes.clear();
        self.queue.rest();
        self.snapshot.rest();
    }

    /// Whether [`rest`](Self::rest) would give anything back.
    pub fn is_rested(&self) -> bool {
        self.classes.is_empty()
    }
}

/// Whether the pod only shows a part of a node's own process. It takes nothing, not even its place among the node's pods.
fn shows_a_component(pod: &Pod) -> bool {
    let annotation = |key: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(key));
    annotation(well_known::CONFIG_MIRROR).is_some()
        && annotation(well_known::CONFIG_SOURCE).is_some_and(|source| source == well_known::COMPONENT_SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Profile};
    use crate::plugins::{Handle, Registry};
    use crate::queue::Rejection;
    use serde_json::{Value, json};

    fn pod(name: &str, priority: i32, extra: &Value) -> Arc<Pod> {
        let mut pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        json_patch::merge(&mut pod, extra);
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    /// A node with room for one, kept for a pod that does not come: another has tried in vain.
    fn promised(now: Instant) -> (SchedulerState, Arc<Pod>) {
        let registry = Registry::in_tree();
        let profile = Profile::default_for("default-scheduler", &registry);
        let framework = Framework::new(&profile, &registry, &Handle::offline()).expect("a profile");
        let mut core = SchedulerState::new([Arc::new(framework)], 0, Config::default().backoff).seeded(1);
        let node = json!({"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}});
        core.set_node(Arc::new(serde_json::from_value(node).expect("a node")), now);
        let gated =
            json!({"spec": {"schedulingGates": [{"name": "x"}]}, "status": {"nominatedNodeName": "a"}});
        let first = pod("first", 10, &gated);
        core.set_pod(&first, None, now);
        core.set_pod(&pod("second", 5, &json!({})), None, now);
        let popped = core.queue.pop(now).expect("the second");
        let Found { class, feasible } = core.find(&popped);
        let Err(Failure::Unschedulable(diagnosis)) = feasible else { panic!("the room is the first's") };
        core.done(&popped, class);
        let plugins = diagnosis.plugins.clone();
        let rejection = Rejection { plugins, pending: false, nominated: None };
        core.queue.unschedulable("second", rejection, now);
        (core, first)
    }

    #[test]
    fn room_that_is_kept_no_longer_helps_others() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let next = |core: &mut SchedulerState| core.queue.pop(later).map(|popped| popped.pod.uid.clone());
        let (mut core, first) = promised(now);
        core.set_pod(&first, Some(&first), later);
        assert_eq!(next(&mut core), None, "nothing changed");
        core.remove_pod(&first, later);
        assert_eq!(next(&mut core).as_deref(), Some("second"));

        let (mut core, first) = promised(now);
        let mut elsewhere = first.as_ref().clone();
        elsewhere.status.get_or_insert_default().nominated_node_name = None;
        core.set_pod(&Arc::new(elsewhere), Some(&first), later);
        assert_eq!(next(&mut core).as_deref(), Some("second"));
    }

    #[test]
    fn a_pod_whose_nomination_is_withdrawn_takes_room_anywhere() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let (mut core, _) = promised(now);
        let busy = pod("busy", 20, &json!({"spec": {"nodeName": "b"}}));
        core.set_pod(&busy, None, now);
        let nominated = pod("third", 5, &json!({"status": {"nominatedNodeName": "a"}}));
        core.set_pod(&nominated, None, now);
        core.queue.pop(now).expect("the third");
        let (plugins, node) = (vec!["NodeResourcesFit"], Some("a".to_owned()));
        core.queue.unschedulable("third", Rejection { plugins, pending: false, nominated: node }, now);
        core.set_pod(&pod("third", 5, &json!({})), Some(&nominated), later);
        core.remove_pod(&busy, later);
        let mut woken = std::iter::from_fn(|| core.queue.pop(later));
        assert!(woken.any(|popped| popped.pod.uid == "third"));
    }

    #[test]
    fn a_pod_that_goes_elsewhere_leaves_the_room_that_was_kept_for_it() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let (mut core, first) = promised(now);
        let node =
            json!({"metadata": {"name": "b"}, "status": {"allocatable": {"cpu": "500m", "pods": "9"}}});
        core.set_node(Arc::new(serde_json::from_value(node).expect("a node")), later);
        let pod = Arc::new(PodInfo::new(first.clone()));
        let popped = Popped {
            framework: core.framework_of(&first).expect("a profile"),
            pod,
            attempts: 1,
            first: now,
            flushed: false,
        };
        for (node, woken) in [("a", false), ("b", true)] {
            core.snapshot.forget("first");
            core.snapshot.nominate(popped.pod.clone(), "a");
            let slot = core.snapshot.node_named(node).expect("a node").slot;
            let mut class = Box::default();
            assert_eq!(core.reserve(&popped, &mut class, slot, later), Ok(node.to_owned()));
            assert_eq!(core.queue.pop(later).is_some(), woken, "{node}");
        }
    }

    #[test]
    fn a_pod_that_goes_while_it_is_bound_gives_its_room_back() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let (mut core, first) = promised(now);
        core.snapshot.assume(Arc::new(PodInfo::new(first.clone())), "a");
        let mut going = first.as_ref().clone();
        going.metadata.deletion_timestamp = pod(
            "x",
            0,
            &json!({"metadata": {"deletionTimestamp":
            "2026-01-01T00:00:00Z"}}),
        )
        .metadata
        .deletion_timestamp
        .clone();
        core.set_pod(&Arc::new(going), Some(&first), later);
        assert_eq!(core.snapshot.whereabouts("first"), Place::Nowhere);
        assert_eq!(core.queue.pop(later).expect("the second").pod.uid, "second");
    }

    #[test]
    fn a_claim_that_was_made_for_a_pod_is_worth_a_try() {
        let plain = pod("p", 0, &json!({}));
        let with = pod(
            "p",
            0,
            &json!({"status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "x"}]}}),
        );
        assert!(is_alike(&plain, &plain) && !is_alike(&plain, &with));
        let labelled = pod("p", 0, &json!({"metadata": {"labels": {"a": "b"}}}));
        assert!(!is_alike(&plain, &labelled));
        let written = pod("p", 0, &json!({"status": {"nominatedNodeName": "a"}}));
        assert!(is_alike(&plain, &written), "what a scheduler writes itself");
    }
}
