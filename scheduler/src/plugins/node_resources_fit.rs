//! The pod's requests must fit into what the node has left; emptier nodes score higher (LeastAllocated).

use crate::cache::{NodeInfo, PodInfo, Resources};
use crate::framework::{ClusterEvent, CycleState, MAX_NODE_SCORE, Plugin, Point, Status};
use std::borrow::Cow;

pub struct NodeResourcesFit;

/// One resource that is short: its reason, and whether an empty node would be short of it too.
struct Short {
    reason: Cow<'static, str>,
    hopeless: bool,
}

fn shortages(pod: &PodInfo, node: &NodeInfo) -> Vec<Short> {
    let mut short = Vec::new();
    if i64::try_from(node.pods.len()).unwrap_or(i64::MAX) >= node.allowed_pods {
        short.push(Short { reason: "Too many pods".into(), hopeless: false });
    }
    let mut need = |name: &str, wanted: i64, allocatable: i64, used: i64| {
        if wanted > 0 && wanted > allocatable - used {
            short.push(Short {
                reason: format!("Insufficient {name}").into(),
                hopeless: wanted > allocatable,
            });
        }
    };
    let (wanted, has, used) = (&pod.requests, &node.allocatable, &node.requested);
    need("cpu", wanted.milli_cpu, has.milli_cpu, used.milli_cpu);
    need("memory", wanted.memory_bytes, has.memory_bytes, used.memory_bytes);
    need(
        "ephemeral-storage",
        wanted.ephemeral_storage_bytes,
        has.ephemeral_storage_bytes,
        used.ephemeral_storage_bytes,
    );
    let of = |r: &Resources, name: &str| r.scalar.get(name).copied().unwrap_or(0);
    for (name, amount) in &wanted.scalar {
        need(name, *amount, of(has, name), of(used, name));
    }
    short
}

/// Share of a resource that stays free, in 0 to `MAX_NODE_SCORE`.
fn free_share(wanted: i64, used: i64, allocatable: i64) -> i64 {
    let taken = wanted.saturating_add(used);
    if allocatable <= 0 || taken > allocatable {
        return 0;
    }
    (allocatable - taken).saturating_mul(MAX_NODE_SCORE) / allocatable
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::Score]
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let short = shortages(pod, node);
        if short.is_empty() {
            return Status::Success;
        }
        let hopeless = short.iter().any(|s| s.hopeless);
        let reasons = short.into_iter().map(|s| s.reason).collect();
        if hopeless { Status::Unresolvable(reasons) } else { Status::Unschedulable(reasons) }
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let cpu = free_share(pod.counted.milli_cpu, node.counted.milli_cpu, node.allocatable.milli_cpu);
        let memory =
            free_share(pod.counted.memory_bytes, node.counted.memory_bytes, node.allocatable.memory_bytes);
        (cpu + memory) / 2
    }

    fn helps(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => shortages(pod, node).is_empty(),
            ClusterEvent::NodeUpdated { old, new } => {
                !shortages(pod, old).is_empty() && shortages(pod, new).is_empty()
            }
            ClusterEvent::PodGone(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::StorageChanged => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;
    use std::sync::Arc;

    fn asking(cpu: &str, memory: &str) -> PodInfo {
        pod(json!({"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}))
    }

    fn sized() -> NodeInfo {
        node(json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "2"}}}))
    }

    #[test]
    fn reasons_are_upstreams() {
        let mut busy = sized();
        busy.add(Arc::new(asking("600m", "100Mi")));
        let filter = |p: &PodInfo, n: &NodeInfo| NodeResourcesFit.filter(&CycleState::default(), p, n);
        assert_eq!(filter(&asking("400m", "1Mi"), &busy), Status::Success);
        assert_eq!(filter(&asking("500m", "1Mi"), &busy), Status::unschedulable("Insufficient cpu"));
        assert_eq!(filter(&asking("2", "1Mi"), &busy), Status::unresolvable("Insufficient cpu"));
        assert_eq!(
            filter(&asking("500m", "1Gi"), &busy),
            Status::Unschedulable(vec!["Insufficient cpu".into(), "Insufficient memory".into()])
        );
        busy.add(Arc::new(asking("0", "0")));
        assert_eq!(filter(&asking("1m", "1Mi"), &busy), Status::unschedulable("Too many pods"));
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let mut busy = sized();
        busy.add(Arc::new(asking("500m", "512Mi")));
        let score =
            |n: &NodeInfo| NodeResourcesFit.score(&CycleState::default(), &asking("100m", "128Mi"), n);
        assert_eq!(score(&sized()), 88);
        assert_eq!(score(&busy), 38);
    }
}
