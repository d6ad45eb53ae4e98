//! A pod that names its node goes there and nowhere else.

use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{ClusterEvent, CycleState, Plugin, Point, Reuse, Status};

pub const POINTS: &[Point] = &[Point::Filter];

pub struct NodeName;

fn fits(pod: &PodInfo, node: &NodeInfo) -> bool {
    pod.node_name().is_none_or(|name| name == node.name)
}

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if fits(pod, node) {
            Status::Success
        } else {
            Status::unresolvable("node(s) didn't match the requested node name")
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => fits(pod, node),
            ClusterEvent::Timeout => true,
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
    fn a_pod_that_names_a_node_fits_that_one() {
        let node = node(json!({"metadata": {"name": "a"}}));
        for (name, fits) in [(json!("a"), true), (json!("b"), false), (json!(""), true), (json!(null), true)]
        {
            let pod = pod(json!({"spec": {"containers": [], "nodeName": name}}));
            let status = NodeName.filter(&CycleState::default(), &pod, &node);
            let refusal = Status::unresolvable("node(s) didn't match the requested node name");
            assert_eq!(status, if fits { Status::Success } else { refusal }, "{name}");
            assert_eq!(NodeName.queueing_hint(&pod, &ClusterEvent::NodeAdded(&node)), fits, "{name}");
        }
    }
}
