//! Quality of service (KEP-less, as old as resources): which pods suffer first when memory is short.

use super::admit::is_node_critical;
use coracle_storage::volumes::downward::{Millis, quantity};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// A container's limit or request, zero where none is set.
pub fn amount(container: &Container, limits: bool, resource: &str) -> Millis {
    amount_of(container.resources.as_ref(), limits, resource)
}

/// The same of resources by themselves.
pub fn amount_of(resources: Option<&ResourceRequirements>, limits: bool, resource: &str) -> Millis {
    let map = resources.and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() });
    map.and_then(|m| m.get(resource)).and_then(|q| quantity(&q.0)).unwrap_or(Millis(0))
}

/// Guaranteed when every container limits CPU and memory and requests as much; BestEffort when none asks for
/// anything; else Burstable.
pub fn class(pod: &Pod) -> QosClass {
    let Some(spec) = &pod.spec else { return QosClass::BestEffort };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten()).peekable();
    let (mut guaranteed, mut any) = (containers.peek().is_some(), false);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let (limit, request) = (amount(container, true, resource), amount(container, false, resource));
            any |= limit.0 > 0 || request.0 > 0;
            // A limit without a request is a request, which the API server's defaulting has written down.
            guaranteed &= limit.0 > 0 && (request == limit || request.0 == 0);
        }
    }
    match (guaranteed, any) {
        (true, _) => QosClass::Guaranteed,
        (false, true) => QosClass::Burstable,
        (false, false) => QosClass::BestEffort,
    }
}

/// How readily the kernel kills a container's processes (oom_score_adj): never those of pods critical to
/// the node and guaranteed ones, others the more readily the less memory they asked for.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    match class(pod) {
        _ if is_node_critical(pod) => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request = i64::try_from(amount(container, false, "memory").0 / 1000).unwrap_or(i64::MAX);
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
