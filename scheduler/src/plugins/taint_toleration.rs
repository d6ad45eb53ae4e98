//! Taints keep pods away unless they tolerate them; nodes with fewer `PreferNoSchedule` taints score higher.

use super::normalize;
use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{ClusterEvent, CycleState, NodeScore, Plugin, Point, Status};
use k8s_openapi::api::core::v1::{Taint, Toleration};

pub struct TaintToleration;

/// Upstream's `Toleration.ToleratesTaint`: an empty key with Exists tolerates every key, an empty effect every
/// effect, and no operator means Equal.
fn matches(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |s: &Option<String>| s.as_deref().unwrap_or_default().to_owned();
    let (effect, key, operator) =
        (text(&toleration.effect), text(&toleration.key), text(&toleration.operator));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match operator.as_str() {
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

pub fn tolerates(pod: &PodInfo, taint: &Taint) -> bool {
    let tolerations = pod.spec().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|t| matches(t, taint))
}

/// The first taint that keeps the pod off the node.
fn untolerated<'n>(pod: &PodInfo, node: &'n NodeInfo) -> Option<&'n Taint> {
    let hard = |t: &&Taint| t.effect == "NoSchedule" || t.effect == "NoExecute";
    node.taints().iter().filter(hard).find(|t| !tolerates(pod, t))
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::Score]
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        match untolerated(pod, node) {
            None => Status::Success,
            Some(taint) => Status::unresolvable(format!(
                "node(s) had untolerated taint {{{}: {}}}",
                taint.key,
                taint.value.as_deref().unwrap_or_default()
            )),
        }
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let soft = node.taints().iter().filter(|t| t.effect == "PreferNoSchedule");
        i64::try_from(soft.filter(|t| !tolerates(pod, t)).count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        normalize::by_highest(scores, true);
    }

    fn helps(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => untolerated(pod, node).is_none(),
            ClusterEvent::NodeUpdated { old, new } => {
                untolerated(pod, old).is_some() && untolerated(pod, new).is_none()
            }
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
    fn tolerations_match_as_upstream_says() {
        let cases = [
            (json!([]), false),
            (json!([{"key": "a", "operator": "Exists"}]), true),
            (json!([{"operator": "Exists"}]), true),
            (json!([{"key": "a", "value": "b"}]), true),
            (json!([{"key": "a", "value": "c"}]), false),
            (json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}]), false),
            (json!([{"key": "b", "operator": "Exists"}]), false),
        ];
        let tainted = node(json!({"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}));
        for (tolerations, fits) in cases {
            let pod = pod(json!({"spec": {"containers": [], "tolerations": tolerations}}));
            let status = TaintToleration.filter(&CycleState::default(), &pod, &tainted);
            assert_eq!(status.is_success(), fits, "{tolerations}");
            if !fits {
                assert_eq!(status.reasons(), ["node(s) had untolerated taint {a: b}"]);
            }
        }
    }
}
