//! The status that a DaemonSet's pods amount to.

use super::plan::Place;
use super::pod::hash_of;
use crate::common::pods;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// Counted by nodes: of several pods on one, the oldest ready one stands for it.
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
        let pod = foremost(place);
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

fn foremost(place: &Place) -> Option<&Arc<Pod>> {
    let living = place.pods.iter().filter(|p| !pods::is_terminal(p));
    living.min_by_key(|pod| (!pods::is_ready(pod), pod.metadata.creation_timestamp.as_ref().map(|t| t.0)))
}
