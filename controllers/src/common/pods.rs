//! How controllers judge a pod.

use super::timestamp;
use coracle_api::pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use std::time::Duration;

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

/// Succeeded or Failed: its containers will not start again.
pub fn is_terminal(pod: &Pod) -> bool {
    pod::is_terminal(pod)
}

/// Neither terminal nor being deleted: it counts as a replica.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Being deleted, its containers perhaps still running.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_some()
}

pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == type_)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready")
        .filter(|c| c.status == "True")
        .and_then(|c| timestamp(c.last_transition_time.as_ref()))
}

/// How long a ready pod still has to stay ready before it counts as available; `None` when it is not ready.
pub fn until_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let due = ready_since(pod)?.as_millisecond() + i64::from(min_ready_seconds) * 1000;
    Some(Duration::from_millis(u64::try_from(due - now.as_millisecond()).unwrap_or(0)))
}

pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    until_available(pod, min_ready_seconds, now).is_some_and(|left| left.is_zero())
}

pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty())
}

/// Restarts of the container that restarted most.
pub fn max_restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    statuses.into_iter().flatten().map(|c| c.restart_count).max().unwrap_or(0)
}
