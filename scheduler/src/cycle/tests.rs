use super::*;
use crate::config::Profile;
use crate::plugins::Registry;
use crate::plugins::testing::pod;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::sync::Arc;

mod pure {
    //! The plugins without I/O, as the default profile orders them.
    pub const NAMES: [&str; 6] = [
        "PrioritySort",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
    ];
}

struct Refuses;

#[async_trait::async_trait]
impl crate::framework::Plugin for Refuses {
    fn name(&self) -> &'static str {
        "Refuses"
    }
    fn points(&self) -> &'static [crate::framework::Point] {
        &[crate::framework::Point::Bind]
    }
}

fn framework() -> Framework {
    let mut registry = Registry::empty();
    crate::plugins::add_pure(&mut registry);
    registry.add(Refuses);
    let mut plugins: Vec<(String, i64)> = pure::NAMES.iter().map(|n| ((*n).to_owned(), 1)).collect();
    plugins.push(("Refuses".to_owned(), 0));
    Framework::new(&Profile { scheduler_name: "test".to_owned(), plugins }, &registry).expect("a profile")
}

fn snapshot(nodes: &[(&str, Value)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, extra) in nodes {
        let mut node = json!({"metadata": {"name": name},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}});
        json_patch::merge(&mut node, extra);
        snapshot.set_node(Arc::new(serde_json::from_value(node).expect("a node")));
    }
    snapshot
}

fn place(snapshot: &Snapshot, spec: Value) -> Result<String, String> {
    let pod = pod(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec}));
    let mut random = StdRng::seed_from_u64(7);
    match decide(&framework(), snapshot, &pod, 0, &mut 0, &mut random) {
        Ok(placement) => Ok(placement.node),
        Err(Failure::Unschedulable(diagnosis)) => Err(diagnosis.message()),
        Err(Failure::Error(why)) => Err(why),
    }
}

#[test]
fn no_node_at_all() {
    let message = place(&Snapshot::default(), json!({"containers": []}));
    assert_eq!(message, Err("no nodes available to schedule pods".to_owned()));
}

#[test]
fn every_reason_is_counted_and_sorted() {
    let tainted = json!({"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}});
    let nodes = [("a", json!({})), ("b", tainted.clone()), ("c", tainted)];
    let asking = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
    assert_eq!(
        place(&snapshot(&nodes), asking),
        Err("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {dedicated: db}."
            .to_owned())
    );
}

#[test]
fn the_only_fitting_node_is_chosen() {
    let nodes = [("a", json!({"spec": {"unschedulable": true}})), ("b", json!({}))];
    assert_eq!(place(&snapshot(&nodes), json!({"containers": []})), Ok("b".to_owned()));
}

#[test]
fn assumed_pods_take_room_until_forgotten() {
    let mut nodes = snapshot(&[("a", json!({}))]);
    let asking = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "600m"}}}]});
    let first = pod(json!({"metadata": {"name": "q", "uid": "q"}, "spec": asking}));
    nodes.assume(Arc::new(first), "a");
    assert!(nodes.is_assumed("q"));
    assert_eq!(place(&nodes, asking.clone()), Err("0/1 nodes are available: 1 Insufficient cpu.".to_owned()));
    nodes.forget("q");
    assert_eq!(place(&nodes, asking), Ok("a".to_owned()));
}

#[test]
fn a_large_cluster_is_searched_in_part() {
    assert_eq!(enough_nodes(50, 0), 50);
    assert_eq!(enough_nodes(1000, 0), 420);
    assert_eq!(enough_nodes(5000, 0), 500);
    assert_eq!(enough_nodes(6000, 0), 300);
    assert_eq!(enough_nodes(5000, 100), 5000);
}
