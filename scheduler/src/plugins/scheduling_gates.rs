//! Pods with scheduling gates stay out of the queue until the last gate is removed (KEP-3521).

use crate::cache::{NodeInfo, PodInfo};
use crate::framework::{ClusterEvent, Plugin, Point, Reuse, Status};

pub const POINTS: &[Point] = &[Point::PreEnqueue];

pub struct SchedulingGates;

fn gates(pod: &PodInfo) -> Vec<&str> {
    let gates = pod.spec().and_then(|s| s.scheduling_gates.as_deref()).unwrap_or_default();
    gates.iter().map(|g| g.name.as_str()).collect()
}

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Status {
        let gates = gates(pod);
        if gates.is_empty() {
            return Status::Success;
        }
        Status::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" ")))
    }

    /// The queue looks at a gated pod again whenever the pod itself changes; nothing else opens a gate.
    fn queueing_hint(&self, _pod: &PodInfo, _event: &ClusterEvent<'_>) -> bool {
        false
    }

    fn advice(&self, pod: &PodInfo, _node: &NodeInfo) -> Option<String> {
        let gates = gates(pod);
        (!gates.is_empty()).then(|| format!("remove the scheduling gates {}", gates.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::pod;
    use serde_json::{Value, json};

    #[test]
    fn a_pod_with_gates_stays_out_and_says_which() {
        let gated = |gates: Value| pod(json!({"spec": {"containers": [], "schedulingGates": gates}}));
        let cases = [
            (json!(null), ""),
            (json!([]), ""),
            (json!([{"name": "a.b/c"}]), "waiting for scheduling gates: [a.b/c]"),
            (json!([{"name": "a"}, {"name": "b"}]), "waiting for scheduling gates: [a b]"),
        ];
        for (gates, words) in cases {
            let status = SchedulingGates.pre_enqueue(&gated(gates.clone()));
            assert_eq!(
                (status.message().as_str(), status.is_success()),
                (words, words.is_empty()),
                "{gates}"
            );
        }
    }
}
