use super::*;
use crate::cache::NodeInfo;
use crate::config::{Config, Profile};
use crate::core::SchedulerState;
use crate::framework::{CycleState, Plugin, Point, Unhelpful};
use crate::plugins::testing::{pod, snapshot};
use crate::plugins::{Handle, Registry};
use crate::queue::Popped;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

fn node(name: &str, extra: Value) -> Value {
    let mut node = json!({"metadata": {"name": name},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}});
    json_patch::merge(&mut node, &extra);
    node
}

fn core(nodes: &[Value], pods: &[Value]) -> SchedulerState {
    let registry = Registry::in_tree();
    let profile = Profile::default_for("default-scheduler", &registry);
    core_of(&profile, &registry, nodes, pods)
}

fn core_of(profile: &Profile, registry: &Registry, nodes: &[Value], pods: &[Value]) -> SchedulerState {
    let framework = Framework::new(profile, registry, &Handle::offline()).expect("a profile");
    let backoff = Config::default().backoff;
    let mut core = SchedulerState::new([Arc::new(framework)], 0, backoff).seeded(7);
    core.snapshot = snapshot(nodes, pods);
    core
}

fn popped(core: &SchedulerState, pod: &Arc<PodInfo>) -> Popped {
    let framework = core.framework_of(pod.waiting().expect("it waits")).expect("a profile");
    Popped { pod: pod.clone(), framework, attempts: 1, first: Instant::now(), flushed: false }
}

/// Where the pod would go; it is not counted there.
fn place(core: &mut SchedulerState, pod: &Arc<PodInfo>) -> Result<String, String> {
    let popped = popped(core, pod);
    let mut found = core.find(&popped);
    let outcome = match found.feasible {
        Ok(slots) => {
            let totals = core.score(&popped, &mut found.class, &slots).expect("scores");
            let slot = core.choose(&totals).expect("a node");
            Ok(core.snapshot.node(slot).name.clone())
        }
        Err(Failure::Error(why)) => Err(why),
        Err(Failure::Unschedulable(diagnosis)) => {
            let answer = core.post_filter(&popped, &mut found.class, &diagnosis, false);
            let mut said = diagnosis.as_ref().clone();
            match answer.expect("an answer") {
                PostFilter::Unhelpful(why) => said.preemption = Some(why),
                PostFilter::Preempt(candidates) => {
                    let names: Vec<&str> =
                        candidates[0].victims.iter().map(|v| v.key.name.as_str()).collect();
                    let words = format!("{} without {}", candidates[0].node, names.join(", "));
                    said.preemption = Some(Unhelpful::Nothing(words));
                }
                PostFilter::Error(why) => said.preemption = Some(Unhelpful::Nothing(why)),
            }
            Err(said.message())
        }
    };
    core.done(&popped, found.class);
    outcome
}

fn new(spec: Value) -> Arc<PodInfo> {
    Arc::new(pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec})))
}

fn asking(cpu: &str) -> Arc<PodInfo> {
    new(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}))
}

#[test]
fn no_node_at_all() {
    let said = place(&mut core(&[], &[]), &asking("1m"));
    assert_eq!(said, Err("no nodes available to schedule pods".to_owned()));
}

#[test]
fn every_reason_is_counted_and_sorted_and_preemption_has_its_say() {
    let tainted = json!({"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}});
    let nodes = [node("a", json!({})), node("b", tainted.clone()), node("c", tainted)];
    assert_eq!(
        place(&mut core(&nodes, &[]), &asking("2")),
        Err("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). \
             no new claims to deallocate, preemption: 0/3 nodes are available: \
             3 Preemption is not helpful for scheduling."
            .to_owned())
    );
    let full = json!({"metadata": {"name": "q", "uid": "q"}, "spec": {"nodeName": "a", "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "900m"}}}]}});
    assert_eq!(
        place(&mut core(&nodes, &[full]), &asking("500m")),
        Err("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). \
             no new claims to deallocate, preemption: 0/3 nodes are available: \
             1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
            .to_owned())
    );
}

#[test]
fn preemption_says_what_is_short_though_the_less_important_went() {
    let on = |name: &str, node: &str, priority: i32, cpu: &str| {
        json!({"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node, "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    };
    let pods = [on("low", "a", 0, "200m"), on("high", "a", 9, "800m"), on("equal", "b", 5, "900m")];
    let nodes =
        [node("a", json!({})), node("b", json!({})), node("c", json!({"spec": {"unschedulable": true}}))];
    let wants = new(
        json!({"priority": 5, "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}),
    );
    assert_eq!(
        place(&mut core(&nodes, &pods), &wants),
        Err("0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. \
             no new claims to deallocate, preemption: 0/3 nodes are available: 1 Insufficient cpu, \
             1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
            .to_owned())
    );
}

#[test]
fn somebody_elses_nomination_is_followed() {
    let mut core = core(&[node("a", json!({})), node("b", json!({}))], &[]);
    let nominated = |name: Option<&str>| {
        let pod = json!({"metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"schedulerName": "default-scheduler", "containers": []}, "status": {"nominatedNodeName": name}});
        Arc::new(serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(pod).expect("a pod"))
    };
    let now = Instant::now();
    let steps = [None, Some("a"), Some("b"), None];
    let mut old = None;
    for step in steps {
        let pod = nominated(step);
        core.set_pod(&pod, old.as_ref(), now);
        assert_eq!(core.snapshot.nomination("u"), step);
        old = Some(pod);
    }
    // What was decided here and is not shown yet stays.
    core.snapshot.nominate(asking("1m"), "a");
    core.set_pod(&nominated(None), old.as_ref(), now);
    assert_eq!(core.snapshot.nomination("u"), Some("a"));
}

#[test]
fn what_pre_filter_refuses_is_refused_everywhere() {
    let wants = new(json!({"containers": [], "volumes":
        [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}));
    let said = place(&mut core(&[node("a", json!({}))], &[]), &wants).expect_err("refused");
    let words = "0/1 nodes are available: persistentvolumeclaim \"data\" not found. ";
    assert!(said.starts_with(words), "{said}");
    assert!(
        said.ends_with("preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
    );
}

#[test]
fn a_named_node_is_the_only_one_looked_at() {
    let wants = |name: &str| {
        new(json!({"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields":
                [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}}))
    };
    let nodes =
        [node("a", json!({})), node("b", json!({})), node("c", json!({"spec": {"unschedulable": true}}))];
    assert_eq!(place(&mut core(&nodes, &[]), &wants("b")), Ok("b".to_owned()));
    let said = place(&mut core(&nodes, &[]), &wants("c")).expect_err("cordoned");
    let words = "0/3 nodes are available: 1 node(s) were unschedulable, \
         2 node(s) didn't satisfy plugin(s) [NodeAffinity].";
    assert!(said.starts_with(words), "{said}");
}

#[test]
fn what_is_kept_of_a_class_follows_what_happens() {
    let mut core = core(&[node("a", json!({})), node("b", json!({}))], &[]);
    let wants = asking("600m");
    let mut places: Vec<String> = Vec::new();
    for n in 0..2 {
        let replica = Arc::new(pod(json!({"metadata": {"name": format!("p{n}"), "namespace": "default",
            "uid": format!("u{n}")}, "spec": wants.spec()})));
        let node = place(&mut core, &replica).expect("room");
        core.snapshot.assume(replica, &node);
        places.push(node);
    }
    places.sort();
    assert_eq!(places, ["a", "b"]);
    assert!(place(&mut core, &wants).is_err());
    assert!(place(&mut core, &wants).is_err(), "known by now");
    core.snapshot.forget("u0");
    assert!(place(&mut core, &wants).is_ok());
    core.snapshot.set_node(Arc::new(serde_json::from_value(node("c", json!({}))).expect("a node")));
    assert!(place(&mut core, &wants).is_ok());
}

#[test]
fn room_for_a_nominated_pod_is_not_given_away() {
    let mut core = core(&[node("a", json!({}))], &[]);
    let important = Arc::new(pod(json!({"metadata": {"name": "i", "uid": "i", "namespace": "default"},
        "spec": {"priority": 10, "containers": [{"name": "c", "resources": {"requests": {"cpu": "800m"}}}]}})));
    core.snapshot.nominate(important.clone(), "a");
    assert!(place(&mut core, &asking("500m")).is_err());
    assert_eq!(place(&mut core, &asking("100m")), Ok("a".to_owned()));
    assert_eq!(place(&mut core, &important), Ok("a".to_owned()));
    core.snapshot.withdraw("i");
    assert_eq!(place(&mut core, &asking("500m")), Ok("a".to_owned()));
}

#[test]
fn a_large_cluster_is_searched_in_part() {
    assert_eq!(enough_nodes(50, 0), 50);
    assert_eq!(enough_nodes(1000, 0), 420);
    assert_eq!(enough_nodes(5000, 0), 500);
    assert_eq!(enough_nodes(6000, 0), 300);
    assert_eq!(enough_nodes(5000, 100), 5000);
}

#[test]
fn reserve_counts_and_forget_gives_back() {
    let mut core = core(&[node("a", json!({}))], &[]);
    let wants = asking("600m");
    let popped = popped(&core, &wants);
    let mut found = core.find(&popped);
    let slots = found.feasible.expect("room");
    assert_eq!(core.reserve(&popped, &mut found.class, slots[0], Instant::now()), Ok("a".to_owned()));
    core.done(&popped, found.class);
    assert!(place(&mut core, &asking("600m")).is_err());
    core.forget(&wants, "a", Instant::now() + Duration::from_secs(1));
    assert!(place(&mut core, &asking("600m")).is_ok());
}

/// Lets one pod with the label `quota` run in the whole cluster.
struct Quota;

const QUOTA: &[Point] = &[Point::PreFilter, Point::Filter];

impl Quota {
    fn counts(pod: &PodInfo) -> usize {
        usize::from(pod.labels().is_some_and(|labels| labels.contains_key("quota")))
    }

    fn filter_code(spent: usize) -> Status {
        if spent > 0 { Status::unschedulable("quota spent") } else { Status::Success }
    }
}

impl Plugin for Quota {
    fn name(&self) -> &'static str {
        "Quota"
    }
    fn points(&self) -> &'static [Point] {
        QUOTA
    }
    fn pre_filter(&self, state: &mut CycleState, _pod: &PodInfo, snapshot: &Snapshot) -> Status {
        let spent: usize = snapshot.nodes().flat_map(|n| &n.pods).map(|p| Self::counts(p)).sum();
        state.put("Quota", spent);
        Self::filter_code(spent)
    }
    fn add_pod(&self, state: &mut CycleState, _pod: &PodInfo, added: &PodInfo, _node: &NodeInfo) {
        state.get_mut::<usize>("Quota").into_iter().for_each(|spent| *spent += Self::counts(added));
    }
    fn remove_pod(&self, state: &mut CycleState, _pod: &PodInfo, removed: &PodInfo, _node: &NodeInfo) {
        state.get_mut::<usize>("Quota").into_iter().for_each(|spent| *spent -= Self::counts(removed));
    }
    fn filter(&self, state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> Status {
        Self::filter_code(state.get::<usize>("Quota").copied().unwrap_or(0))
    }
}

#[test]
fn pods_are_taken_away_for_what_pre_filter_refuses_too() {
    let mut registry = Registry::in_tree();
    registry.add("Quota", QUOTA, |_, _| Ok(Quota));
    let mut profile = Profile::default_for("default-scheduler", &registry);
    for point in QUOTA {
        profile.plugins.entry(*point).or_default().insert(0, ("Quota".to_owned(), 0));
    }
    let holder = json!({"metadata": {"name": "q", "uid": "q", "labels": {"quota": ""}},
        "spec": {"nodeName": "b", "priority": 1, "containers": []}});
    let nodes = [node("a", json!({})), node("b", json!({}))];
    let wants = |priority: i32| new(json!({"priority": priority, "containers": []}));
    let mut core = core_of(&profile, &registry, &nodes, &[holder]);
    assert_eq!(
        place(&mut core, &wants(5)),
        Err("0/2 nodes are available: quota spent. b without q".to_owned())
    );
    let none = "0/2 nodes are available: quota spent. no new claims to deallocate, preemption: 0/2 nodes are available: \
                2 No preemption victims found for incoming pod.";
    assert_eq!(place(&mut core, &wants(1)), Err(none.to_owned()));
}

/// Leaves these nodes alone.
struct Only(&'static str, &'static [&'static str]);

impl Plugin for Only {
    fn name(&self) -> &'static str {
        self.0
    }
    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter]
    }
    fn pre_filter(&self, state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        state.only_nodes(self.0, self.1.iter().map(|name| (*name).to_owned()).collect());
        Status::Success
    }
}

#[test]
fn whoever_leaves_no_node_is_named() {
    let said = |all: &[(&'static str, &'static [&'static str])]| {
        let mut registry = Registry::in_tree();
        let mut profile = Profile::default_for("default-scheduler", &registry);
        for (name, nodes) in all.iter().copied() {
            registry.add(name, &[Point::PreFilter], move |_, _| Ok(Only(name, nodes)));
            profile.plugins.entry(Point::PreFilter).or_default().push((name.to_owned(), 0));
        }
        let nodes = [node("a", json!({})), node("b", json!({}))];
        let said = place(&mut core_of(&profile, &registry, &nodes, &[]), &asking("1m"));
        said.expect_err("no node is left").split_once(" no new claims").expect("a sentence").0.to_owned()
    };
    assert_eq!(said(&[("X", &[])]), "0/2 nodes are available: node(s) didn't satisfy plugin X.");
    assert_eq!(
        said(&[("X", &["a"]), ("Y", &["b"])]),
        "0/2 nodes are available: node(s) didn't satisfy plugin(s) [X Y] simultaneously."
    );
}
