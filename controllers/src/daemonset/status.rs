//! The status that a DaemonSet's pods amount to.

use super::plan::{Place, age};
use super::pod::hash_of;
use crate::common::pods;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};

/// Counted by nodes: of several pods on one, the oldest stands for it.
pub fn status(
    set: &DaemonSet,
    spec: &DaemonSetSpec,
    places: &[Place],
    hash: &str,
    now: Timestamp,
) -> DaemonSetStatus {
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: set.status.as_ref().and_then(|s| s.collision_count),
        conditions: set.status.as_ref().and_then(|s| s.conditions.clone()),
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available) = (0, 0);
    for place in places {
        let pod = place.pods.iter().min_by_key(|pod| age(pod));
        if !place.runs {
            status.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = pod else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pods::is_ready(pod));
        available += i32::from(pods::is_available(pod, spec.min_ready_seconds.unwrap_or(0), now));
        updated += i32::from(hash_of(pod) == hash);
    }
    let non_zero = |count: i32| (count != 0).then_some(count);
    status.updated_number_scheduled = non_zero(updated);
    status.number_available = non_zero(available);
    status.number_unavailable = non_zero(status.desired_number_scheduled - available);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn the_oldest_pod_of_a_node_stands_for_it() {
        let pod = |name: &str, ready: &str, hash: &str, second: u32| -> Arc<Pod> {
            let made = format!("2026-01-01T00:00:0{second}Z");
            let labels = json!({ "controller-revision-hash": hash });
            let metadata = json!({ "name": name, "labels": labels, "creationTimestamp": made });
            let conditions =
                json!([{ "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:09Z" }]);
            let status = json!({ "phase": "Running", "conditions": conditions });
            let pod = json!({ "metadata": metadata, "spec": { "nodeName": "a", "containers": [] }, "status": status });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let set: DaemonSet = serde_json::from_value(
            json!({ "metadata": { "name": "d" }, "spec": { "selector": {}, "template": {} } }),
        )
        .unwrap();
        let pods = vec![pod("new", "True", "2", 2), pod("old", "False", "1", 1)];
        let mut place = Place { node: "a".to_owned(), runs: true, stays: true, pods };
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let spec = set.spec.as_ref().unwrap();
        let during = status(&set, spec, std::slice::from_ref(&place), "2", now);
        assert_eq!((during.current_number_scheduled, during.number_ready), (1, 0));
        assert_eq!((during.updated_number_scheduled, during.number_unavailable), (None, Some(1)));
        place.pods.pop();
        let after = status(&set, spec, &[place], "2", now);
        assert_eq!((after.number_ready, after.updated_number_scheduled), (1, Some(1)));
    }
}
