//! Taints keep pods away unless they tolerate them; nodes with fewer `PreferNoSchedule` taints score higher.

use super::normalize;
use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{ClusterEvent, CycleState, NodeScore, Plugin, Point, Reuse, Status};
use coracle_client::placement::tolerates_taint;
use k8s_openapi::api::core::v1::Taint;

pub const POINTS: &[Point] = &[Point::Filter, Point::Score];

pub struct TaintToleration;

pub fn tolerates(pod: &PodInfo, taint: &Taint) -> bool {
    tolerates_taint(pod.spec(), taint)
}

/// The first taint that keeps the pod off the node.
pub fn untolerated<'n>(pod: &PodInfo, node: &'n NodeInfo) -> Option<&'n Taint> {
    let hard = |t: &&Taint| t.effect == "NoSchedule" || t.effect == "NoExecute";
    node.taints().iter().filter(hard).find(|t| !tolerates(pod, t))
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        match untolerated(pod, node) {
            None => Status::Success,
            Some(_) => Status::unresolvable("node(s) had untolerated taint(s)"),
        }
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let soft = node.taints().iter().filter(|t| t.effect == "PreferNoSchedule");
        i64::try_from(soft.filter(|t| !tolerates(pod, t)).count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        normalize::by_highest(scores, true);
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => untolerated(pod, node).is_none(),
            ClusterEvent::NodeUpdated { node, changed } => changed.taints && untolerated(pod, node).is_none(),
            ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            _ => false,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let taint = untolerated(pod, node)?;
        let value = taint.value.as_ref().map(|v| format!("={v}")).unwrap_or_default();
        let text = format!("{}{value}:{}", taint.key, taint.effect);
        Some(format!("tolerate {text}, or kubectl taint nodes {} {text}-", node.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn tolerations_match_as_upstream_says() {
        let cases = [
            (json!([]), false),
            (json!([{"key": "a", "operator": "Exists"}]), true),
            (json!([{"operator": "Exists"}]), true),
            (json!([{"key": "a", "value": "5"}]), true),
            (json!([{"key": "a", "value": "c"}]), false),
            (json!([{"key": "a", "operator": "Gt", "value": "4"}]), true),
            (json!([{"key": "a", "operator": "Lt", "value": "5"}]), false),
            (json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}]), false),
            (json!([{"key": "b", "operator": "Exists"}]), false),
        ];
        let tainted = node(json!({"spec": {"taints": [{"key": "a", "value": "5", "effect": "NoSchedule"}]}}));
        for (tolerations, fits) in cases {
            let pod = pod(json!({"spec": {"containers": [], "tolerations": tolerations}}));
            let status = TaintToleration.filter(&CycleState::default(), &pod, &tainted);
            assert_eq!(status.is_success(), fits, "{tolerations}");
            if !fits {
                assert_eq!(status.reasons(), ["node(s) had untolerated taint(s)"]);
            }
        }
    }

    #[test]
    fn hard_taints_of_both_effects_keep_pods_away() {
        let plain = pod(json!({"spec": {"containers": []}}));
        for (effect, fits) in [("NoSchedule", false), ("NoExecute", false), ("PreferNoSchedule", true)] {
            let node = node(json!({"spec": {"taints": [{"key": "a", "effect": effect}]}}));
            let status = TaintToleration.filter(&CycleState::default(), &plain, &node);
            assert_eq!(status.is_success(), fits, "{effect}");
            assert_eq!(
                TaintToleration.queueing_hint(&plain, &ClusterEvent::NodeAdded(&node)),
                fits,
                "{effect}"
            );
        }
    }

    #[test]
    fn soft_taints_only_cost_points() {
        let soft = node(json!({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}));
        let plain = pod(json!({"spec": {"containers": []}}));
        assert!(TaintToleration.filter(&CycleState::default(), &plain, &soft).is_success());
        assert_eq!(TaintToleration.score(&CycleState::default(), &plain, &soft), 1);
        let tolerant = json!([{"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"}]);
        let tolerant = pod(json!({"spec": {"containers": [], "tolerations": tolerant}}));
        assert_eq!(TaintToleration.score(&CycleState::default(), &tolerant, &soft), 0);
    }
}
