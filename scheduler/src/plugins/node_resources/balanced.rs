//! Nodes whose resources would be used to like degrees score higher.

use super::strategy::{Weighted, cpu_and_memory, resources};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{CycleState, MAX_NODE_SCORE, Plugin, Point, Reuse, Status};
use crate::plugins::{Arguments, Mistakes};
use serde_json::Value;

pub const POINTS: &[Point] = &[Point::PreScore, Point::Score];

pub struct NodeResourcesBalancedAllocation {
    resources: Vec<Weighted>,
}

/// Shares are counted in millionths: whole numbers give every machine the same answer.
const MILLION: i128 = 1_000_000;

/// Used share in millionths, at most all of it.
fn share(used: i64, allocatable: i64) -> Option<i128> {
    (allocatable > 0).then(|| (i128::from(used.max(0)) * MILLION / i128::from(allocatable)).min(MILLION))
}

/// The standard deviation; of two shares it is half of their difference.
fn deviation(shares: &[i128]) -> i128 {
    let count = i128::try_from(shares.len()).unwrap_or(i128::MAX);
    match shares {
        [] | [_] => 0,
        [a, b] => (a - b).abs() / 2,
        several => {
            let mean = several.iter().sum::<i128>() / count;
            let squares: i128 = several.iter().map(|s| (s - mean) * (s - mean)).sum();
            (squares / count).isqrt()
        }
    }
}

impl NodeResourcesBalancedAllocation {
    pub fn new(arguments: &Value) -> Result<Self, Mistakes> {
        let mut arguments = Arguments::new(arguments);
        let mut mistakes = Vec::new();
        let given = arguments.take("resources").unwrap_or_default();
        let one = |_: &str, weight| if weight == 1 { Ok(()) } else { Err("must be 1".to_owned()) };
        let mut list = resources("resources", &given, &mut mistakes, one);
        for (i, resource) in list.iter().enumerate() {
            if list[..i].iter().any(|other| other.name == resource.name) {
                mistakes.push(format!("resources[{i}].name: Duplicate value: {:?}", resource.name));
            }
        }
        if list.is_empty() {
            list = cpu_and_memory();
        }
        mistakes.extend(arguments.finish().err().unwrap_or_default());
        if mistakes.is_empty() { Ok(Self { resources: list }) } else { Err(mistakes) }
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn pre_score(
        &self,
        _state: &mut CycleState,
        pod: &PodInfo,
        _snapshot: &Snapshot,
        _nodes: &[usize],
    ) -> Status {
        let best_effort = self.resources.iter().all(|r| pod.requests.get(&r.name) == 0);
        if best_effort { Status::Skip } else { Status::Success }
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let shares: Vec<i128> = self
            .resources
            .iter()
            .filter_map(|r| {
                let used = node.requested.get(&r.name).saturating_add(pod.requests.get(&r.name));
                share(used, node.allocatable.get(&r.name))
            })
            .collect();
        let score = (MILLION - deviation(&shares)) * i128::from(MAX_NODE_SCORE) / MILLION;
        i64::try_from(score).unwrap_or(MAX_NODE_SCORE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn like_shares_score_highest() {
        let asking = pod(json!({"spec": {"containers": [{"name": "c", "resources": {"requests":
            {"cpu": "500m", "memory": "512Mi", "example.com/gpu": "1"}}}]}}));
        let score = |arguments: Value, cpu: &str, memory: &str| {
            let plugin = NodeResourcesBalancedAllocation::new(&arguments).expect("arguments");
            let node = node(json!({"status": {"allocatable":
                {"cpu": cpu, "memory": memory, "example.com/gpu": "1"}}}));
            plugin.score(&CycleState::default(), &asking, &node)
        };
        assert_eq!(score(json!({}), "1", "1Gi"), 100);
        assert_eq!(score(json!({}), "500m", "1Gi"), 75);
        let three = json!({"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "example.com/gpu"}]});
        assert_eq!(score(three, "1", "1Gi"), 76);
        let wrong =
            json!({"resources": [{"name": "cpu", "weight": 2}, {"name": "memory"}, {"name": "memory"}]});
        assert_eq!(
            NodeResourcesBalancedAllocation::new(&wrong).err().unwrap_or_default(),
            [
                "resources[0].weight: Invalid value: 2: must be 1",
                "resources[1].name: Duplicate value: \"memory\""
            ]
        );
    }
}
