//! Nodes whose CPU and memory would be used to like degrees score higher.

use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{CycleState, MAX_NODE_SCORE, Plugin, Point, Status};

pub struct NodeResourcesBalancedAllocation;

/// Used share in millionths, at most all of it.
fn share(used: i64, allocatable: i64) -> Option<i64> {
    const MILLION: i128 = 1_000_000;
    (allocatable > 0).then(|| {
        let millionths = i128::from(used.max(0)) * MILLION / i128::from(allocatable);
        i64::try_from(millionths.min(MILLION)).unwrap_or(1_000_000)
    })
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreScore, Point::Score]
    }

    fn pre_score(&self, _state: &mut CycleState, pod: &PodInfo, _nodes: &[&NodeInfo]) -> Status {
        let best_effort = pod.requests.milli_cpu == 0 && pod.requests.memory_bytes == 0;
        if best_effort { Status::Skip } else { Status::Success }
    }

    /// With two resources the standard deviation of their shares is half of their difference.
    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let cpu = share(node.requested.milli_cpu + pod.requests.milli_cpu, node.allocatable.milli_cpu);
        let memory =
            share(node.requested.memory_bytes + pod.requests.memory_bytes, node.allocatable.memory_bytes);
        match (cpu, memory) {
            (Some(cpu), Some(memory)) => (1_000_000 - (cpu - memory).abs() / 2) * MAX_NODE_SCORE / 1_000_000,
            _ => MAX_NODE_SCORE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn like_shares_score_highest() {
        let asking = pod(json!({"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}]}}));
        let score = |cpu: &str, memory: &str| {
            let node = node(json!({"status": {"allocatable": {"cpu": cpu, "memory": memory}}}));
            NodeResourcesBalancedAllocation.score(&CycleState::default(), &asking, &node)
        };
        assert_eq!(score("1", "1Gi"), 100);
        assert_eq!(score("500m", "1Gi"), 75);
    }
}
