//! What pods and containers request, and what limits them.

use super::qos::amount_of;
use coracle_api::Quantity;
use coracle_api::pod::{self, Counted};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};

/// What can be changed while a container runs.
pub const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// What a container has: where it has no limit of its own, that of its pod (KEP-2837).
pub fn effective(
    own: Option<&ResourceRequirements>,
    pod: Option<&ResourceRequirements>,
) -> ResourceRequirements {
    let mut all = own.cloned().unwrap_or_default();
    for resource in RESIZABLE {
        let limit = pod.and_then(|pod| pod.limits.as_ref()?.get(resource));
        if let Some(limit) = limit.filter(|_| amount_of(own, true, resource).is_zero()) {
            all.limits.get_or_insert_default().insert(resource.to_owned(), limit.clone());
        }
    }
    all
}

/// What the pod requests, as the scheduler counts it: by its spec, which holds what the node has granted.
pub fn requests(pod: &Pod, resource: &str) -> Quantity {
    let counted = Counted { overhead: true, ..Counted::default() };
    pod::requests(pod, counted).get(resource).unwrap_or_default()
}

/// What the pod may use at most, counted in the same way; zero where nothing limits it.
pub fn limits(pod: &Pod, resource: &str) -> Quantity {
    let counted = Counted { overhead: true, ..Counted::default() };
    pod::limits(pod, counted).get(resource).unwrap_or_default()
}
