//! A pod that needs what not every kubelet can do goes to nodes whose kubelet declares it (KEP-5328).

use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{ClusterEvent, CycleState, Plugin, Point, Reuse, Status};
use k8s_openapi::api::core::v1::PodSpec;

pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

pub struct NodeDeclaredFeatures;

/// A name that nodes declare, and whether a pod needs it before it runs.
type Feature = (&'static str, fn(&PodSpec) -> bool);

const FEATURES: [Feature; 2] = [
    ("RestartAllContainersOnContainerExits", restarts_all),
    ("UserNamespacesHostNetworkSupport", maps_users_of_host_network),
];

fn restarts_all(spec: &PodSpec) -> bool {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut rules = containers.flat_map(|c| c.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == "RestartAllContainers")
}

fn maps_users_of_host_network(spec: &PodSpec) -> bool {
    spec.host_network == Some(true) && spec.host_users == Some(false)
}

fn needed(pod: &PodInfo) -> impl Iterator<Item = &'static str> {
    let spec = pod.spec();
    FEATURES.iter().filter(move |(_, needs)| spec.is_some_and(needs)).map(|(name, _)| *name)
}

/// What the pod needs and the node does not declare, in the order of names.
fn missing(pod: &PodInfo, node: &NodeInfo) -> Vec<&'static str> {
    let declared = node.declared_features();
    needed(pod).filter(|name| !declared.iter().any(|d| d == name)).collect()
}

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn pre_filter(&self, _state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        if needed(pod).next().is_none() { Status::Skip } else { Status::Success }
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let missing = missing(pod, node);
        if missing.is_empty() {
            return Status::Success;
        }
        let missing = missing.join(", ");
        Status::unresolvable(format!(
            "node declared features check failed - unsatisfied requirements: {missing}"
        ))
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => missing(pod, node).is_empty(),
            ClusterEvent::NodeUpdated { node, changed } => changed.features && missing(pod, node).is_empty(),
            ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            _ => false,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let missing = missing(pod, node);
        (!missing.is_empty()).then(|| {
            let missing = missing.join(", ");
            format!(
                "the kubelet of {} would have to declare {missing}; or do without it in the pod",
                node.name
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod, snapshot};
    use serde_json::{Value, json};

    const RESTARTS: &str = "RestartAllContainersOnContainerExits";
    const USERS: &str = "UserNamespacesHostNetworkSupport";

    #[test]
    fn a_pod_goes_where_all_that_it_needs_is_declared() {
        let restarting = json!({"containers": [{"name": "c", "restartPolicyRules":
            [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]}]});
        let mut before = restarting.clone();
        before["initContainers"] = before["containers"].take();
        before["containers"] = json!([]);
        let mapped = json!({"containers": [], "hostNetwork": true, "hostUsers": false});
        let mut both = restarting.clone();
        both["hostNetwork"] = json!(true);
        both["hostUsers"] = json!(false);
        let cases: [(Value, &[&str], &str); 7] = [
            (json!({"containers": [], "hostNetwork": true}), &[], ""),
            (restarting.clone(), &[], RESTARTS),
            (restarting, &[RESTARTS], ""),
            (before, &[USERS], RESTARTS),
            (mapped.clone(), &["Other"], USERS),
            (mapped, &[USERS], ""),
            (both, &[], "RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport"),
        ];
        for (spec, declared, missing) in cases {
            let pod = pod(json!({"spec": spec}));
            let node = node(json!({"status": {"declaredFeatures": declared}}));
            let skipped =
                NodeDeclaredFeatures.pre_filter(&mut CycleState::default(), &pod, &snapshot(&[], &[]));
            let status = NodeDeclaredFeatures.filter(&CycleState::default(), &pod, &node);
            let words = "node declared features check failed - unsatisfied requirements: ";
            let expected = if missing.is_empty() { String::new() } else { format!("{words}{missing}") };
            assert_eq!(status.message(), expected, "{spec} on {declared:?}");
            assert!(missing.is_empty() || skipped == Status::Success, "{spec}");
            let event = ClusterEvent::NodeAdded(&node);
            assert_eq!(NodeDeclaredFeatures.queueing_hint(&pod, &event), missing.is_empty(), "{spec}");
        }
    }
}
