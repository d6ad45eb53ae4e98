use super::*;
use crate::plugins::testing::{pod, snapshot};
use serde_json::json;

fn node(name: &str, zone: Option<&str>) -> Value {
    let mut labels = json!({"kubernetes.io/hostname": name});
    if let Some(zone) = zone {
        labels["topology.kubernetes.io/zone"] = json!(zone);
    }
    json!({"metadata": {"name": name, "labels": labels}})
}

fn placed(name: &str, node: &str, app: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": []}})
}

fn constraint(key: &str, skew: i64, when: &str) -> Value {
    json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "web"}}})
}

fn spreading(constraints: Value) -> PodInfo {
    pod(json!({"metadata": {"name": "new", "namespace": "default", "uid": "new", "labels": {"app": "web"}},
        "spec": {"containers": [], "topologySpreadConstraints": constraints}}))
}

fn plugin() -> PodTopologySpread {
    PodTopologySpread::new(&Handle::offline(), &json!({})).expect("arguments")
}

/// The names of the nodes that pass.
fn passing(plugin: &PodTopologySpread, pod: &PodInfo, snapshot: &Snapshot) -> Vec<String> {
    let mut state = CycleState::default();
    assert_eq!(plugin.pre_filter(&mut state, pod, snapshot), Status::Success);
    let passes = |n: &&NodeInfo| plugin.filter(&state, pod, n).is_success();
    snapshot.nodes().filter(passes).map(|n| n.name.clone()).collect()
}

fn zones() -> Vec<Value> {
    vec![node("a1", Some("a")), node("b1", Some("b")), node("a2", Some("a"))]
}

const ZONE: &str = "topology.kubernetes.io/zone";

#[test]
fn the_skew_is_never_exceeded() {
    let snapshot = snapshot(&zones(), &[placed("p", "a1", "web"), placed("q", "b1", "other")]);
    let hard = spreading(json!([constraint(ZONE, 1, "DoNotSchedule")]));
    assert_eq!(passing(&plugin(), &hard, &snapshot), ["b1"]);
    let loose = spreading(json!([constraint(ZONE, 2, "DoNotSchedule")]));
    assert_eq!(passing(&plugin(), &loose, &snapshot).len(), 3);
}

#[test]
fn nodes_without_the_label_do_not_count_and_are_refused() {
    let mut nodes = zones();
    nodes.push(node("bare", None));
    let snapshot = snapshot(&nodes, &[placed("p", "bare", "web")]);
    let hard = spreading(json!([constraint(ZONE, 1, "DoNotSchedule")]));
    assert_eq!(passing(&plugin(), &hard, &snapshot).len(), 3);
    let mut state = CycleState::default();
    plugin().pre_filter(&mut state, &hard, &snapshot);
    let bare = snapshot.node_named("bare").expect("a node");
    assert!(matches!(plugin().filter(&state, &hard, bare), Status::Unresolvable(_)));
    let advice = plugin().advice(&hard, bare);
    assert_eq!(advice.as_deref(), Some("give node bare the label topology.kubernetes.io/zone"));
    let zoned = snapshot.node_named("a1").and_then(|node| plugin().advice(&hard, node));
    assert!(zoned.is_some_and(|text| text.starts_with("raise maxSkew")));
}

#[test]
fn too_few_domains_count_as_empty_ones() {
    let snapshot = snapshot(&zones(), &[placed("p", "a1", "web"), placed("q", "b1", "web")]);
    let mut wanted = constraint(ZONE, 1, "DoNotSchedule");
    assert_eq!(passing(&plugin(), &spreading(json!([wanted])), &snapshot).len(), 3);
    wanted["minDomains"] = json!(3);
    assert_eq!(passing(&plugin(), &spreading(json!([wanted])), &snapshot), [""; 0]);
}

#[test]
fn inclusion_policies_say_which_nodes_count() {
    let mut tainted = node("c1", Some("c"));
    tainted["spec"] = json!({"taints": [{"key": "x", "effect": "NoSchedule"}]});
    let mut nodes = zones();
    nodes.push(tainted);
    let snapshot = snapshot(&nodes, &[placed("p", "a1", "web"), placed("q", "b1", "web")]);
    let mut wanted = constraint(ZONE, 1, "DoNotSchedule");
    // Zone c is empty, and counts though the pod cannot go there.
    assert_eq!(passing(&plugin(), &spreading(json!([wanted])), &snapshot), ["c1"]);
    wanted["nodeTaintsPolicy"] = json!("Honor");
    assert_eq!(passing(&plugin(), &spreading(json!([wanted])), &snapshot).len(), 4);
}

#[test]
fn terminating_pods_do_not_count() {
    let mut leaving = placed("p", "a1", "web");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let snapshot = snapshot(&zones(), &[leaving]);
    let hard = spreading(json!([constraint(ZONE, 1, "DoNotSchedule")]));
    assert_eq!(passing(&plugin(), &hard, &snapshot).len(), 3);
}

#[test]
fn what_comes_and_goes_is_followed_exactly() {
    let snapshot = snapshot(&zones(), &[placed("p", "a1", "web")]);
    let hard = spreading(json!([constraint(ZONE, 1, "DoNotSchedule")]));
    let (plugin, mut state) = (plugin(), CycleState::default());
    plugin.pre_filter(&mut state, &hard, &snapshot);
    let (a1, b1) = (snapshot.node_named("a1").expect("a node"), snapshot.node_named("b1").expect("a node"));
    let other = pod(placed("q", "b1", "web"));
    assert!(!plugin.filter(&state, &hard, a1).is_success());
    plugin.add_pod(&mut state, &hard, &other, b1);
    assert!(plugin.filter(&state, &hard, a1).is_success());
    plugin.remove_pod(&mut state, &hard, &other, b1);
    assert!(!plugin.filter(&state, &hard, a1).is_success());
}

fn scores(plugin: &PodTopologySpread, pod: &PodInfo, snapshot: &Snapshot) -> Vec<(String, i64)> {
    let mut state = CycleState::default();
    let slots: Vec<usize> = snapshot.order().to_vec();
    assert_eq!(plugin.pre_score(&mut state, pod, snapshot, &slots), Status::Success);
    let raw = |n: &NodeInfo| NodeScore { node: n.slot, score: plugin.score(&state, pod, n) };
    let mut scores: Vec<NodeScore> = snapshot.nodes().map(raw).collect();
    plugin.normalize(&state, pod, &mut scores);
    let mut named: Vec<(String, i64)> =
        scores.iter().map(|s| (snapshot.node(s.node).name.clone(), s.score)).collect();
    named.sort();
    named
}

#[test]
fn soft_constraints_prefer_the_emptier_topology() {
    let mut nodes = zones();
    nodes.push(node("bare", None));
    let snapshot = snapshot(&nodes, &[placed("p", "a1", "web"), placed("q", "a2", "web")]);
    let soft = spreading(json!([constraint(ZONE, 1, "ScheduleAnyway")]));
    let scores = scores(&plugin(), &soft, &snapshot);
    let of = |name: &str| scores.iter().find(|(n, _)| n == name).map(|(_, s)| *s);
    assert_eq!(of("b1"), Some(100));
    assert_eq!(of("a1"), Some(0));
    assert_eq!(of("bare"), Some(0));
}

#[test]
fn a_topology_that_goes_may_help() {
    let hard = spreading(json!([constraint(ZONE, 1, "DoNotSchedule")]));
    let gone = |labels: Value| -> k8s_openapi::api::core::v1::Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).expect("a node")
    };
    assert!(plugin().queueing_hint(&hard, &ClusterEvent::NodeGone(&gone(json!({ZONE: "z"})))));
    assert!(!plugin().queueing_hint(&hard, &ClusterEvent::NodeGone(&gone(json!({"other": "z"})))));
}

struct Owners;

impl Cluster for Owners {
    fn selectors(&self, _namespace: &str) -> Vec<Arc<Value>> {
        vec![Arc::new(json!({"kind": "Service", "name": "web", "selector": {"app": "web"}}))]
    }
}

#[test]
fn pods_of_a_service_spread_by_default() {
    let snapshot = snapshot(&zones(), &[placed("p", "a1", "web")]);
    let handle = Handle::with(Arc::new(Owners));
    let plugin = PodTopologySpread::new(&handle, &json!({})).expect("arguments");
    let scores = scores(&plugin, &spreading(json!([])), &snapshot);
    let of = |name: &str| scores.iter().find(|(n, _)| n == name).map(|(_, s)| *s).expect("scored");
    assert!(of("b1") > of("a2") && of("a2") > of("a1"), "{scores:?}");
    let listed = json!({"defaultingType": "List", "defaultConstraints": [
        {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]});
    let plugin = PodTopologySpread::new(&handle, &listed).expect("arguments");
    assert_eq!(passing(&plugin, &spreading(json!([])), &snapshot), ["b1"]);
}

#[test]
fn wrong_defaults_are_refused_with_their_paths() {
    let wrong = json!({"defaultingType": "List", "defaultConstraints": [
        {"topologyKey": "", "maxSkew": 0, "whenUnsatisfiable": "Never", "labelSelector": {}}]});
    let mistakes = Defaults::parse(&wrong).err().expect("refused");
    assert_eq!(mistakes.len(), 4, "{mistakes:?}");
    let system = json!({"defaultConstraints": [constraint(ZONE, 1, "DoNotSchedule")]});
    assert!(Defaults::parse(&system).is_err());
}
