use super::*;
use crate::config::{Config, Profile};
use crate::core::SchedulerState;
use crate::cycle::Failure;
use crate::framework::Framework;
use crate::plugins::Registry;
use crate::plugins::testing::{pod, snapshot};
use crate::queue::Popped;
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;

#[derive(Default)]
struct Protected(Vec<Value>);

impl Cluster for Protected {
    fn disruption_budgets(&self) -> Vec<Arc<Value>> {
        self.0.iter().cloned().map(Arc::new).collect()
    }
}

fn core(nodes: &[Value], pods: &[Value], budgets: Vec<Value>) -> SchedulerState {
    let registry = Registry::in_tree();
    let profile = Profile::default_for("default-scheduler", &registry);
    let handle = Handle::with(Arc::new(Protected(budgets)));
    let framework = Framework::new(&profile, &registry, &handle).expect("a profile");
    let mut core = SchedulerState::new([Arc::new(framework)], 0, Config::default().backoff).seeded(1);
    core.snapshot = snapshot(nodes, pods);
    core
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"host": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}}})
}

fn running(name: &str, node: &str, priority: i32, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"startTime": "2026-01-01T00:00:00Z"}})
}

fn wanting(priority: i32, cpu: &str) -> Value {
    let mut value = running("new", "", priority, cpu);
    value["spec"]["nodeName"] = Value::Null;
    value
}

/// The best candidate, or what is said instead.
fn preempt(core: &mut SchedulerState, pod: Value) -> Result<Candidate, String> {
    let pod = Arc::new(crate::plugins::testing::pod(pod));
    let framework = core.framework_of(pod.waiting().expect("it waits")).expect("a profile");
    let popped = Popped { pod, framework, attempts: 1, first: Instant::now(), flushed: false };
    let mut found = core.find(&popped);
    let Err(Failure::Unschedulable(diagnosis)) = found.feasible else { return Err("it fits".to_owned()) };
    let answer = core.post_filter(&popped, &mut found.class, &diagnosis, false).expect("an answer");
    core.done(&popped, found.class);
    match answer {
        PostFilter::Preempt(mut candidates) => Ok(candidates.remove(0)),
        PostFilter::Unhelpful(why) => Err(why.why().to_owned()),
        PostFilter::Error(why) => Err(why),
    }
}

fn chosen(core: &mut SchedulerState, pod: Value) -> (String, Vec<String>) {
    let candidate = preempt(core, pod).expect("a candidate");
    (candidate.node, candidate.victims.iter().map(|v| v.key.name.clone()).collect())
}

#[test]
fn the_owners_example_takes_one_of_three() {
    let pods: Vec<Value> = (1..=3).map(|n| running(&format!("low-{n}"), "a", 1000, "1")).collect();
    let mut core = core(&[node("a", "3")], &pods, vec![]);
    let candidate = preempt(&mut core, wanting(1_000_000, "1")).expect("a candidate");
    assert_eq!((candidate.node.as_str(), candidate.victims.len(), candidate.violations), ("a", 1, 0));
    assert!(preempt(&mut core, wanting(1000, "1")).is_err(), "equals are safe");
}

#[test]
fn as_few_and_as_unimportant_pods_as_possible_go() {
    let nodes = [node("a", "2"), node("b", "2"), node("c", "2")];
    let pods = [
        running("a1", "a", 5, "1"),
        running("a2", "a", 1, "1"),
        running("b1", "b", 2, "1"),
        running("b2", "b", 2, "1"),
        running("c1", "c", 3, "2"),
    ];
    assert_eq!(
        chosen(&mut core(&nodes, &pods, vec![]), wanting(10, "1")),
        ("a".to_owned(), vec!["a2".to_owned()])
    );
    // Two of priority 2 are less than one of 5 and one of 1, or one of 3.
    let (node, victims) = chosen(&mut core(&nodes, &pods, vec![]), wanting(10, "2"));
    assert_eq!((node.as_str(), victims.len()), ("b", 2));
}

#[test]
fn among_equals_who_began_last_goes() {
    let mut late = running("late", "b", 1, "2");
    late["status"]["startTime"] = json!("2026-02-01T00:00:00Z");
    let pods = [running("early", "a", 1, "2"), late];
    let nodes = [node("a", "2"), node("b", "2")];
    assert_eq!(chosen(&mut core(&nodes, &pods, vec![]), wanting(10, "1")).0, "b");
}

#[test]
fn protected_pods_go_last() {
    let budget = |app: &str, allowed: i64| {
        json!({"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed}})
    };
    let nodes = [node("a", "1"), node("b", "1")];
    let pods = [running("a1", "a", 1, "1"), running("b1", "b", 5, "1")];
    assert_eq!(chosen(&mut core(&nodes, &pods, vec![budget("a1", 0)]), wanting(10, "1")).0, "b");
    assert_eq!(chosen(&mut core(&nodes, &pods, vec![budget("a1", 1)]), wanting(10, "1")).0, "a");
    let both = vec![budget("a1", 0), budget("b1", 0)];
    let candidate = preempt(&mut core(&nodes, &pods, both), wanting(10, "1")).expect("violated last");
    assert_eq!((candidate.node.as_str(), candidate.violations), ("a", 1));
}

#[test]
fn who_may_not_preempt_is_told_why() {
    let pods = [running("p", "a", 1, "1")];
    let mut never = wanting(10, "1");
    never["spec"]["preemptionPolicy"] = json!("Never");
    let mut core = core(&[node("a", "1")], &pods, vec![]);
    let said = |core: &mut SchedulerState, pod| preempt(core, pod).expect_err("not eligible");
    assert!(said(&mut core, never).ends_with("preemption: not eligible due to preemptionPolicy=Never."));
    let mut leaving = running("p", "a", 1, "1");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["status"]["conditions"] =
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
    core.snapshot.set_pod(Arc::new(pod(leaving)));
    let mut nominated = wanting(10, "1");
    nominated["status"] = json!({"nominatedNodeName": "a"});
    let words = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert!(said(&mut core, nominated).ends_with(words));
}

#[test]
fn anti_affinity_with_a_victim_is_solved_by_its_going() {
    let mut shy = wanting(10, "1");
    shy["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "host"}]}});
    let pods = [running("p", "a", 1, "1"), running("q", "a", 1, "1")];
    let mut core = core(&[node("a", "9")], &pods, vec![]);
    assert_eq!(chosen(&mut core, shy.clone()), ("a".to_owned(), vec!["p".to_owned()]));
    // Trying it out leaves no trace.
    assert_eq!(chosen(&mut core, shy), ("a".to_owned(), vec!["p".to_owned()]));
}

#[test]
fn a_pods_own_nomination_counts_against_its_siblings_alone() {
    let named = |name: &str| {
        let mut value = wanting(10, "1");
        (value["metadata"]["name"], value["metadata"]["uid"]) = (json!(name), json!(name));
        value
    };
    for siblings_first in [true, false] {
        let mut core = core(&[node("a", "1")], &[running("p", "a", 1, "1")], vec![]);
        core.snapshot.nominate(Arc::new(pod(named("first"))), "a");
        let order =
            if siblings_first { ["sibling", "first", "sibling"] } else { ["first", "sibling", "first"] };
        for name in order {
            let answer = preempt(&mut core, named(name)).map(|candidate| candidate.node);
            assert_eq!(answer.is_ok(), name == "first", "{name}: {answer:?}");
        }
    }
}

#[test]
fn arguments_are_checked() {
    let make = |args| DefaultPreemption::new(&Handle::offline(), &args);
    assert!(make(json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0})).is_err());
    assert!(make(json!({"minCandidateNodesPercentage": 101})).is_err());
    let plugin =
        make(json!({"minCandidateNodesPercentage": 5, "minCandidateNodesAbsolute": 10})).expect("fine");
    assert_eq!((plugin.wanted(1000), plugin.wanted(100), plugin.wanted(4)), (50, 10, 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Nobody of equal or higher priority ever goes, the pod fits when the victims are gone, and each of them is needed.
    #[test]
    fn only_lower_priorities_go_and_none_in_vain(
        pods in proptest::collection::vec((0..4usize, 0..6i32, 1..5u32), 0..24),
        priority in 0..6i32,
        wanted in 1..5u32,
    ) {
        let nodes: Vec<Value> = (0..4).map(|n| node(&format!("n{n}"), "4")).collect();
        let mut used = [0u32; 4];
        let mut placed = Vec::new();
        for (i, (at, importance, cpu)) in pods.into_iter().enumerate() {
            if used[at] + cpu <= 4 {
                used[at] += cpu;
                placed.push((at, cpu, running(&format!("p{i}"), &format!("n{at}"), importance, &cpu.to_string())));
            }
        }
        let values: Vec<Value> = placed.iter().map(|(_, _, v)| v.clone()).collect();
        let answer = preempt(&mut core(&nodes, &values, vec![]), wanting(priority, &wanted.to_string()));
        let Ok(candidate) = answer else { return Ok(()) };
        prop_assert!(candidate.victims.iter().all(|v| v.priority < priority));
        let at: usize = candidate.node[1..].parse().expect("a number");
        let cpu = |name: &str| placed.iter().find(|(_, _, v)| v["metadata"]["name"] == name).map(|(_, c, _)| *c);
        let freed: u32 = candidate.victims.iter().filter_map(|v| cpu(&v.key.name)).sum();
        prop_assert!(used[at] - freed + wanted <= 4, "it fits");
        for victim in &candidate.victims {
            let one = cpu(&victim.key.name).expect("known");
            prop_assert!(used[at] - freed + one + wanted > 4, "{} could have stayed", victim.key.name);
        }
    }
}
