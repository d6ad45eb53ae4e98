//! A host port is taken once per node, protocol and address.

use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{ClusterEvent, CycleState, Plugin, Point, Reuse, Status};

pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

pub struct NodePorts;

fn free(pod: &PodInfo, node: &NodeInfo) -> bool {
    if node.with_ports == 0 {
        return true;
    }
    let mut taken = node.pods.iter().flat_map(|p| &p.host_ports);
    !taken.any(|t| pod.host_ports.iter().any(|wanted| wanted.conflicts(t)))
}

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn pre_filter(&self, _state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        if pod.host_ports.is_empty() { Status::Skip } else { Status::Success }
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if free(pod, node) {
            Status::Success
        } else {
            Status::unschedulable("node(s) didn't have free ports for the requested pod ports")
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(_) | ClusterEvent::Timeout => true,
            ClusterEvent::PodGone { pod: gone, .. } => {
                gone.host_ports.iter().any(|g| pod.host_ports.iter().any(|p| p.conflicts(g)))
            }
            _ => false,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let holder = node.pods.iter().find(|p| {
            p.host_ports.iter().any(|taken| pod.host_ports.iter().any(|wanted| wanted.conflicts(taken)))
        })?;
        Some(format!("its host port is held by pod {}", holder.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn a_port_conflicts_with_itself_on_the_same_address_and_protocol() {
        let port = |ip: &str, protocol: &str, port: u16| {
            pod(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "ports":
                [{"containerPort": 80, "hostPort": port, "hostIP": ip, "protocol": protocol}]}]}}))
        };
        let mut taken = node(json!({}));
        taken.add(Arc::new(port("10.0.0.1", "TCP", 80)));
        for (ip, protocol, number, fits) in [
            ("10.0.0.1", "TCP", 80, false),
            ("10.0.0.2", "TCP", 80, true),
            ("0.0.0.0", "TCP", 80, false),
            ("", "TCP", 80, false),
            ("::", "TCP", 80, false),
            ("10.0.0.1", "UDP", 80, true),
            ("0.0.0.0", "SCTP", 80, true),
            ("10.0.0.1", "TCP", 81, true),
            ("10.0.0.1", "TCP", 0, true),
        ] {
            let wants = port(ip, protocol, number);
            let status = NodePorts.filter(&CycleState::default(), &wants, &taken);
            assert_eq!(status.is_success(), fits, "{ip} {protocol} {number}");
            let event = ClusterEvent::PodGone { pod: &taken.pods[0], node: "n" };
            assert_eq!(NodePorts.queueing_hint(&wants, &event), !fits, "{ip} {protocol} {number}");
        }
    }
}
