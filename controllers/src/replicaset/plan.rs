//! Which pods a set creates or deletes next.

use crate::common::pods;
use coracle_api::well_known;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

/// Pods created or deleted in one pass; upstream's burst. A larger set takes several passes.
pub const BURST: usize = 500;
/// A pod with a lower cost is deleted first (default 0).
const DELETION_COST: &str = well_known::POD_DELETION_COST;

#[derive(Debug)]
pub enum Step {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// `active` are the set's own active pods, `related` those of all sets with the same owner (for a Deployment: of its
/// other ReplicaSets), by which doubled-up pods are told.
pub fn plan(desired: i32, active: &[Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) -> Step {
    let desired = usize::try_from(desired).unwrap_or(0);
    match active.len().cmp(&desired) {
        Ordering::Equal => Step::Nothing,
        Ordering::Less => Step::Create((desired - active.len()).min(BURST)),
        Ordering::Greater => Step::Delete(victims(active, related, (active.len() - desired).min(BURST), now)),
    }
}

fn victims(active: &[Arc<Pod>], related: &[Arc<Pod>], count: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut per_node: HashMap<&str, usize> = HashMap::new();
    for node in related.iter().filter(|p| pods::is_active(p)).filter_map(|p| pods::node_name(p)) {
        *per_node.entry(node).or_default() += 1;
    }
    let mut ranked: Vec<&Arc<Pod>> = active.iter().collect();
    ranked.sort_by_cached_key(|pod| rank(pod, &per_node, now));
    ranked.into_iter().take(count).cloned().collect()
}

/// Lower goes first: unassigned, pending, not ready, cheap, doubled up on a node, ready for a short time, restarted
/// often, young. Times are compared by order of magnitude, so that ties are broken by UID and thus at random.
type Rank = (bool, u8, bool, i32, Reverse<usize>, i64, Reverse<i32>, i64, String);

fn rank(pod: &Pod, per_node: &HashMap<&str, usize>, now: Timestamp) -> Rank {
    let node = pods::node_name(pod);
    let phase = match pods::phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let neighbours = node.and_then(|n| per_node.get(n)).copied().unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
    (
        node.is_some(),
        phase,
        pods::is_ready(pod),
        deletion_cost(pod),
        Reverse(neighbours),
        magnitude(pods::ready_since(pod), now),
        Reverse(pods::max_restarts(pod)),
        magnitude(created, now),
        pod.metadata.uid.clone().unwrap_or_default(),
    )
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|a| a.get(DELETION_COST)).and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

/// The binary logarithm of an age in nanoseconds, -1 for no age.
fn magnitude(since: Option<Timestamp>, now: Timestamp) -> i64 {
    let age = since.map_or(0, |since| now.as_nanosecond() - since.as_nanosecond());
    if age <= 0 { -1 } else { i64::from(age.ilog2()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, node: &str, phase: &str, ready: Option<&str>, extra: serde_json::Value) -> Arc<Pod> {
        let ready =
            ready.map(|since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": extra.get("annotations") },
                "spec": { "nodeName": node, "containers": [] },
                "status": { "phase": phase, "conditions": ready, "containerStatuses": extra.get("statuses") },
            }))
            .unwrap(),
        )
    }

    fn now() -> Timestamp {
        "2026-01-02T00:00:00Z".parse().unwrap()
    }

    fn first_victim(pods: &[Arc<Pod>]) -> String {
        match plan(i32::try_from(pods.len()).unwrap() - 1, pods, pods, now()) {
            Step::Delete(victims) => victims[0].metadata.name.clone().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn missing_pods_are_created_up_to_the_burst() {
        assert!(matches!(plan(3, &[], &[], now()), Step::Create(3)));
        assert!(matches!(plan(1000, &[], &[], now()), Step::Create(BURST)));
        assert!(matches!(plan(0, &[], &[], now()), Step::Nothing));
    }

    #[test]
    fn each_rank_decides_when_those_before_it_are_equal() {
        let none = || json!({});
        let long = Some("2026-01-01T01:00:00Z");
        let cheap = json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}});
        let restarted = json!({"statuses": [{"name": "c", "ready": true, "restartCount": 9, "image": "", "imageID": ""}]});
        let cases = [
            ("unassigned", pod("a", "n", "Pending", None, none()), pod("b", "", "Pending", None, none())),
            ("pending", pod("a", "n", "Running", None, none()), pod("b", "m", "Pending", None, none())),
            ("not ready", pod("a", "n", "Running", long, none()), pod("b", "m", "Running", None, none())),
            ("cost", pod("a", "n", "Running", long, none()), pod("b", "m", "Running", long, cheap)),
            (
                "ready for a shorter time",
                pod("a", "n", "Running", long, none()),
                pod("b", "m", "Running", Some("2026-01-01T23:59:00Z"), none()),
            ),
            ("restarts", pod("a", "n", "Running", long, none()), pod("b", "m", "Running", long, restarted)),
        ];
        for (why, keep, goes) in cases {
            assert_eq!(first_victim(&[keep, goes]), "b", "{why}");
        }
    }

    #[test]
    fn of_equal_pods_one_goes_from_the_fullest_node() {
        let ready = Some("2026-01-01T01:00:00Z");
        let one = pod("a", "n", "Running", ready, json!({}));
        let two = pod("b", "m", "Running", ready, json!({}));
        let three = pod("c", "m", "Running", ready, json!({}));
        assert_eq!(first_victim(&[one, two, three]), "b");
    }
}
