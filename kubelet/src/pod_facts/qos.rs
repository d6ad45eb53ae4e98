//! Quality of service (KEP-less, as old as resources): which pods suffer first when memory is short.

use super::critical::is_node_critical;
use coracle_api::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};

pub use coracle_api::pod::{QosClass, qos_class as class};

/// A container's limit or request, zero where none is set.
pub fn amount(container: &Container, limits: bool, resource: &str) -> Quantity {
    amount_of(container.resources.as_ref(), limits, resource)
}

/// The same of resources by themselves.
pub fn amount_of(resources: Option<&ResourceRequirements>, limits: bool, resource: &str) -> Quantity {
    let map = resources.and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() });
    map.and_then(|m| m.get(resource)).and_then(|q| q.0.parse().ok()).unwrap_or_default()
}

/// How readily the kernel kills a container's processes (oom_score_adj): never those of pods critical to
/// the node and guaranteed ones, others the more readily the less memory they asked for.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    match class(pod) {
        _ if is_node_critical(pod) => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request = amount(container, false, "memory").units();
            let share = request.saturating_mul(1000) / memory_capacity.max(1);
            // Between guaranteed and best effort, exclusively on both ends.
            (1000 - share).clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes_and_their_scores() {
        for (resources, expected, score) in [
            (json!({}), QosClass::BestEffort, 1000),
            (json!({ "requests": { "memory": "500" } }), QosClass::Burstable, 500),
            (json!({ "requests": { "cpu": "1" } }), QosClass::Burstable, 999),
            (
                json!({ "requests": { "cpu": "1", "memory": "1Ki" }, "limits": { "cpu": "1", "memory": "1Ki" } }),
                QosClass::Guaranteed,
                -997,
            ),
            (
                json!({ "requests": { "cpu": "1", "memory": "1Ki" }, "limits": { "cpu": "2", "memory": "1Ki" } }),
                QosClass::Burstable,
                3,
            ),
        ] {
            let pod: Pod = serde_json::from_value(
                json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } }),
            )
            .unwrap();
            assert_eq!(class(&pod), expected, "{resources}");
            let container = &pod.spec.as_ref().unwrap().containers[0];
            assert_eq!(oom_score_adj(&pod, container, 1000), score, "{resources}");
        }
    }

    #[test]
    fn the_kernel_spares_what_is_critical_to_the_node() {
        for (class, priority, score) in
            [("system-node-critical", 2_000_001_000, -997), ("system-cluster-critical", 2_000_000_000, 1000)]
        {
            let spec =
                json!({ "priority": priority, "priorityClassName": class, "containers": [{ "name": "c" }] });
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            assert_eq!(oom_score_adj(&pod, &pod.spec.as_ref().unwrap().containers[0], 1000), score);
        }
    }
}
