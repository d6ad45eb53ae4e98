//! Nodes whose resources the pod brings to like degrees of use score higher: what counts is how much better or worse
//! balanced a node is with the pod than without it.

use super::strategy::{Weighted, cpu_and_memory, resources};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{CycleState, MAX_NODE_SCORE, Plugin, Point, Reuse, Status};
use crate::plugins::{ArgumentErrors, Arguments};
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
    pub fn new(arguments: &Value) -> Result<Self, ArgumentErrors> {
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

/// 50 to 100, the more the more alike the shares are.
fn balance(shares: impl Iterator<Item = Option<i128>>) -> i64 {
    let shares: Vec<i128> = shares.flatten().collect();
    let score = (MILLION - deviation(&shares)) * i128::from(MAX_NODE_SCORE) / MILLION;
    i64::try_from(score).unwrap_or(MAX_NODE_SCORE)
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
        // A device that the pod does not ask for says nothing about how well it is placed.
        let counts =
            |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage") || pod.requests.get(name) > 0;
        let balance_with = |part: &dyn Fn(&str) -> i64| {
            let names = self.resources.iter().map(|r| r.name.as_str()).filter(|name| counts(name));
            balance(names.map(|name| {
                share(node.requested.get(name).saturating_add(part(name)), node.allocatable.get(name))
            }))
        };
        let (with, without) = (balance_with(&|name| pod.requests.get(name)), balance_with(&|_| 0));
        MAX_NODE_SCORE / 2 + (MAX_NODE_SCORE / 2 + with - without) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;

    fn asking(cpu: &str, memory: &str) -> PodInfo {
        pod(json!({"spec": {"containers": [{"name": "c", "resources": {"requests":
            {"cpu": cpu, "memory": memory, "example.com/gpu": "1"}}}]}}))
    }

    /// Of a pod that asks for half of a CPU and half a GiB, on a node where another uses so much.
    fn score(arguments: Value, (cpu, memory): (&str, &str), used: Option<(&str, &str)>) -> i64 {
        let plugin = NodeResourcesBalancedAllocation::new(&arguments).expect("arguments");
        let mut node = node(json!({"status": {"allocatable":
            {"cpu": cpu, "memory": memory, "example.com/gpu": "1", "example.com/fpga": "1"}}}));
        if let Some((cpu, memory)) = used {
            node.add(std::sync::Arc::new(asking(cpu, memory)));
        }
        plugin.score(&CycleState::default(), &asking("500m", "512Mi"), &node)
    }

    #[test]
    fn whoever_is_balanced_better_with_the_pod_scores_higher() {
        let default = || json!({});
        // As balanced as before.
        assert_eq!(score(default(), ("1", "1Gi"), None), 75);
        // 100 without it, 75 with it: half of the CPU more than of the memory.
        assert_eq!(score(default(), ("500m", "1Gi"), None), 62);
        // 91 without it, 100 with it.
        assert_eq!(score(default(), ("1500m", "1Gi"), Some(("1", "512Mi"))), 79);
        assert_eq!(score(default(), ("1", "1Gi"), Some(("500m", "0"))), 75);
        // More than there is counts as all of it.
        assert_eq!(score(default(), ("500m", "512Mi"), Some(("500m", "0"))), 100);
        let three = json!({"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "example.com/gpu"}]});
        assert_eq!(score(three, ("1", "1Gi"), None), 63);
        let unasked =
            json!({"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "example.com/fpga"}]});
        assert_eq!(score(unasked, ("1", "1Gi"), None), 75);
    }

    #[test]
    fn arguments_are_checked() {
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
