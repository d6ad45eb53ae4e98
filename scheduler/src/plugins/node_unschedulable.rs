//! Cordoned nodes take only pods that tolerate it.

use super::taint_toleration::tolerates;
use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{ClusterEvent, CycleState, Plugin, Point, Status};
use k8s_openapi::api::core::v1::Taint;

pub struct NodeUnschedulable;

fn cordoned(node: &NodeInfo) -> bool {
    node.spec().and_then(|s| s.unschedulable) == Some(true)
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if cordoned(node) && !tolerates(pod, &taint) {
            return Status::unresolvable("node(s) were unschedulable");
        }
        Status::Success
    }

    fn helps(&self, _pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => !cordoned(node),
            ClusterEvent::NodeUpdated { old, new } => cordoned(old) && !cordoned(new),
            ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            _ => false,
        }
    }
}
