//! The status that a StatefulSet's pods amount to.

use super::identity::revision;
use super::plan::{Places, is_running_and_ready};
use coracle_client::informer::deleting;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// `current` and `update` are names of revisions.
pub fn status(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    places: &Places,
    current: &str,
    update: &str,
) -> StatefulSetStatus {
    let pods: Vec<&Arc<Pod>> = places.replicas.iter().flatten().chain(&places.condemned).collect();
    let count = |test: &dyn Fn(&Pod) -> bool| -> i32 {
        i32::try_from(pods.iter().filter(|p| test(p)).count()).unwrap_or(i32::MAX)
    };
    let of = |name: &str| count(&|p| !deleting(p) && revision(p) == name);
    let old = set.status.clone().unwrap_or_default();
    let mut status = StatefulSetStatus {
        replicas: count(&|_| true),
        ready_replicas: non_zero(count(&is_running_and_ready)),
        available_replicas: Some(count(&|p| places.is_available(p))),
        current_replicas: non_zero(of(current)),
        updated_replicas: non_zero(of(update)),
        current_revision: Some(current.to_owned()),
        update_revision: Some(update.to_owned()),
        observed_generation: set.metadata.generation,
        collision_count: Some(old.collision_count.unwrap_or(0)),
        conditions: old.conditions,
    };
    let wanted = spec.replicas.unwrap_or(1);
    let complete = status.updated_replicas.unwrap_or(0) == wanted
        && status.ready_replicas.unwrap_or(0) == wanted
        && status.replicas == wanted;
    if super::plan::is_rolling(spec) && complete {
        status.current_revision = status.update_revision.clone();
        status.current_replicas = status.updated_replicas;
    }
    status
}

fn non_zero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
