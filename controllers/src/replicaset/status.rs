//! The status that a set's pods amount to.

use super::kinds::Replicated;
use crate::common::pods;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
use std::time::Duration;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Why pods are missing or too many: reason and message of the condition.
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
}

/// `owned` are all pods of the set, terminating ones included.
pub fn status<S: Replicated>(
    set: &S,
    owned: &[Arc<Pod>],
    failure: Option<&Failure>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let old = set.status();
    let template_labels =
        set.template().and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.clone()).unwrap_or_default();
    let labelled = |pod: &Pod| {
        let labels = pod.metadata.labels.as_ref();
        template_labels.iter().all(|(k, v)| labels.is_some_and(|l| l.get(k) == Some(v)))
    };
    let active: Vec<&Arc<Pod>> = owned.iter().filter(|p| pods::is_active(p)).collect();
    let count = |test: &dyn Fn(&Pod) -> bool| number(active.iter().filter(|p| test(p)).count());
    let min_ready = set.min_ready_seconds();
    let terminating = owned.iter().filter(|p| pods::is_terminating(p)).count();
    ReplicaSetStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: non_zero(count(&labelled)),
        ready_replicas: non_zero(count(&|p| pods::is_ready(p))),
        available_replicas: non_zero(count(&|p| pods::is_available(p, min_ready, now))),
        observed_generation: set.meta().generation,
        terminating_replicas: Some(number(terminating)),
        conditions: conditions(old.conditions.unwrap_or_default(), failure, now),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn non_zero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

/// A failure that lasts keeps its condition as it was first reported.
fn conditions(
    mut all: Vec<ReplicaSetCondition>,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    match failure {
        None => all.retain(|c| c.type_ != REPLICA_FAILURE),
        Some(_) if all.iter().any(|c| c.type_ == REPLICA_FAILURE) => {}
        Some(failure) => all.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(failure.reason.to_owned()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(Time(now)),
        }),
    }
    (!all.is_empty()).then_some(all)
}

/// When the next ready pod becomes available, if one does by time alone.
pub fn next_available(owned: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let waits = owned.iter().filter(|p| pods::is_active(p));
    waits
        .filter_map(|p| pods::until_available(p, min_ready_seconds, now))
        .filter(|left| !left.is_zero())
        .min()
}
