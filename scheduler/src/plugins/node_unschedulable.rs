//! Cordoned nodes take only pods that tolerate it.

use super::taint_toleration::tolerates;
use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{ClusterEvent, CycleState, Plugin, Point, Reuse, Status};
use coracle_api::well_known;
use k8s_openapi::api::core::v1::Taint;

pub const POINTS: &[Point] = &[Point::Filter];

pub struct NodeUnschedulable;

fn refuses(node: &NodeInfo, pod: &PodInfo) -> bool {
    if !node.is_unschedulable() {
        return false;
    }
    let taint = Taint {
        key: well_known::UNSCHEDULABLE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    !tolerates(pod, &taint)
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if refuses(node, pod) {
            return Status::unresolvable("node(s) were unschedulable");
        }
        Status::Success
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => !refuses(node, pod),
            ClusterEvent::NodeUpdated { node, changed } => changed.unschedulable && !refuses(node, pod),
            ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            _ => false,
        }
    }

    fn advice(&self, _pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        Some(format!("kubectl uncordon {}", node.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NodeChange;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn only_who_tolerates_it_goes_to_a_cordoned_node() {
        let key = "node.kubernetes.io/unschedulable";
        let cases = [
            (true, json!([]), false),
            (false, json!([]), true),
            (true, json!([{"key": key, "operator": "Exists", "effect": "NoSchedule"}]), true),
            (true, json!([{"key": key, "operator": "Exists", "effect": "NoExecute"}]), false),
            (true, json!([{"operator": "Exists"}]), true),
            (true, json!([{"key": "other", "operator": "Exists"}]), false),
        ];
        for (cordoned, tolerations, fits) in cases {
            let node = node(json!({"spec": {"unschedulable": cordoned}}));
            let pod = pod(json!({"spec": {"containers": [], "tolerations": tolerations}}));
            let status = NodeUnschedulable.filter(&CycleState::default(), &pod, &node);
            let words = if fits { "" } else { "node(s) were unschedulable" };
            assert_eq!(status.message(), words, "{cordoned} {tolerations}");
            assert_eq!(NodeUnschedulable.queueing_hint(&pod, &ClusterEvent::NodeAdded(&node)), fits);
            for (unschedulable, helps) in [(true, fits), (false, false)] {
                let changed = NodeChange { unschedulable, ..NodeChange::default() };
                let event = ClusterEvent::NodeUpdated { node: &node, changed };
                assert_eq!(NodeUnschedulable.queueing_hint(&pod, &event), helps);
            }
        }
    }
}
