//! `nodeSelector` and node affinity: required terms filter, preferred ones score.

use super::{affinity, normalize};
use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{ClusterEvent, CycleState, NodeScore, Plugin, Point, Status};
use k8s_openapi::api::core::v1::NodeAffinity as Terms;

pub struct NodeAffinity;

fn terms(pod: &PodInfo) -> Option<&Terms> {
    pod.spec()?.affinity.as_ref()?.node_affinity.as_ref()
}

fn matches(pod: &PodInfo, node: &NodeInfo) -> bool {
    let selector = pod.spec().and_then(|s| s.node_selector.as_ref());
    let label = |key: &str| node.labels().and_then(|l| l.get(key));
    if !selector.into_iter().flatten().all(|(key, value)| label(key) == Some(value)) {
        return false;
    }
    let required = terms(pod).and_then(|t| t.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|r| affinity::any_term_matches(&r.node_selector_terms, node))
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::PreScore, Point::Score]
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if matches(pod, node) {
            Status::Success
        } else {
            Status::unresolvable("node(s) didn't match Pod's node affinity/selector")
        }
    }

    fn pre_score(&self, _state: &mut CycleState, pod: &PodInfo, _nodes: &[&NodeInfo]) -> Status {
        let preferred =
            terms(pod).and_then(|t| t.preferred_during_scheduling_ignored_during_execution.as_ref());
        if preferred.is_none_or(Vec::is_empty) { Status::Skip } else { Status::Success }
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let preferred =
            terms(pod).and_then(|t| t.preferred_during_scheduling_ignored_during_execution.as_ref());
        let matching =
            preferred.into_iter().flatten().filter(|t| affinity::term_matches(&t.preference, node));
        matching.map(|t| i64::from(t.weight)).sum()
    }

    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        normalize::by_highest(scores, false);
    }

    fn helps(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => matches(pod, node),
            ClusterEvent::NodeUpdated { old, new } => !matches(pod, old) && matches(pod, new),
            ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn every_operator_decides_as_upstream() {
        let labelled = node(json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}}));
        let cases = [
            (json!({"key": "zone", "operator": "In", "values": ["a", "b"]}), true),
            (json!({"key": "zone", "operator": "In", "values": ["b"]}), false),
            (json!({"key": "zone", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "absent", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "zone", "operator": "Exists"}), true),
            (json!({"key": "zone", "operator": "DoesNotExist"}), false),
            (json!({"key": "cores", "operator": "Gt", "values": ["4"]}), true),
            (json!({"key": "cores", "operator": "Lt", "values": ["8"]}), false),
            (json!({"key": "zone", "operator": "Gt", "values": ["4"]}), false),
        ];
        for (expression, fits) in cases {
            let pod = pod(json!({"spec": {"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}}));
            let status = NodeAffinity.filter(&CycleState::default(), &pod, &labelled);
            assert_eq!(status.is_success(), fits, "{expression}");
        }
    }

    #[test]
    fn node_selector_and_match_fields_both_count() {
        let n1 = node(json!({"metadata": {"name": "n1", "labels": {"disk": "ssd"}}}));
        let wants = |disk: &str, name: &str| {
            pod(
                json!({"spec": {"containers": [], "nodeSelector": {"disk": disk}, "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                    [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}}}),
            )
        };
        assert!(matches(&wants("ssd", "n1"), &n1));
        assert!(!matches(&wants("hdd", "n1"), &n1));
        assert!(!matches(&wants("ssd", "n2"), &n1));
    }
}
