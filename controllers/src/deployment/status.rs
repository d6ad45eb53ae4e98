//! A Deployment's status and its conditions, worded as upstream words them.

use super::shape::Shape;
use coracle_api::condition::with_transition_time;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
use std::time::Duration;

pub const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub const PAUSED: &str = "DeploymentPaused";

pub fn condition<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.as_ref()?.iter().find(|c| c.type_ == type_)
}

/// Sets a condition; the same status and reason again change nothing, the same status keeps its transition time.
pub fn set_condition(
    status: &mut DeploymentStatus,
    type_: &str,
    value: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let old = condition(status, type_);
    if old.is_some_and(|c| c.status == value && c.reason.as_deref() == Some(reason)) {
        return;
    }
    let new = DeploymentCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    let new = with_transition_time(status.conditions.as_deref().unwrap_or_default(), new);
    remove_condition(status, type_);
    status.conditions.get_or_insert_default().push(new);
}

fn remove_condition(status: &mut DeploymentStatus, type_: &str) {
    if let Some(all) = status.conditions.as_mut() {
        all.retain(|c| c.type_ != type_);
    }
}

/// Seconds without progress after which a rollout has failed; the largest number means never.
pub fn deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.progress_deadline_seconds.filter(|d| *d != i32::MAX)
}

fn sum(sets: &[&Arc<ReplicaSet>], of: impl Fn(&ReplicaSet) -> Option<i32>) -> i32 {
    sets.iter().filter_map(|s| of(s)).sum()
}

fn non_zero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// Counts over all sets, and the Available condition; the other conditions as they are.
pub fn counts(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    all: &[&Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let available = sum(all, |s| s.status.as_ref()?.available_replicas);
    let declared = sum(all, |s| s.spec.as_ref()?.replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: non_zero(sum(all, |s| Some(s.status.as_ref()?.replicas))),
        updated_replicas: new.and_then(|s| non_zero(s.status.as_ref()?.replicas)),
        ready_replicas: non_zero(sum(all, |s| s.status.as_ref()?.ready_replicas)),
        available_replicas: non_zero(available),
        unavailable_replicas: non_zero((declared - available).max(0)),
        terminating_replicas: Some(sum(all, |s| s.status.as_ref()?.terminating_replicas)),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let (value, reason, message) = if available >= Shape::of(deployment).min_available() {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, AVAILABLE, value, reason, message.to_owned(), now);
    status
}

pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|n| n.unwrap_or(0) == wanted)
        && status.observed_generation >= deployment.metadata.generation
}

fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let n = |value: Option<i32>| value.unwrap_or(0);
    let old_pods = |s: &DeploymentStatus| n(s.replicas) - n(s.updated_replicas);
    n(new.updated_replicas) > n(old.updated_replicas)
        || old_pods(new) < old_pods(old)
        || n(new.ready_replicas) > n(old.ready_replicas)
        || n(new.available_replicas) > n(old.available_replicas)
}

/// Time until the deadline passes, counted from the last progress; `None` when the rollout is not waited for.
pub fn until_deadline(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let condition = condition(status, PROGRESSING)?;
    if matches!(condition.reason.as_deref(), Some(NEW_SET_AVAILABLE | TIMED_OUT)) {
        return None;
    }
    let due = condition.last_update_time.as_ref()?.0.as_second() + i64::from(deadline(deployment)?);
    Some(Duration::from_secs(u64::try_from(due - now.as_second()).unwrap_or(0)))
}

fn subject(deployment: &Deployment, new: Option<&Arc<ReplicaSet>>) -> String {
    let name = |meta: &kube::api::ObjectMeta| meta.name.clone().unwrap_or_default();
    match new {
        Some(set) => format!("ReplicaSet \"{}\"", name(&set.metadata)),
        None => format!("Deployment \"{}\"", name(&deployment.metadata)),
    }
}

/// The status during and after a rollout: [`counts`] and the Progressing and ReplicaFailure conditions.
pub fn rollout(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    all: &[&Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let mut status = counts(deployment, new, all, now);
    if deadline(deployment).is_none() {
        remove_condition(&mut status, PROGRESSING);
    } else {
        progress(deployment, new, &old, &mut status, now);
    }
    match failure(new, all) {
        Some((reason, message, since)) => {
            set_condition(&mut status, REPLICA_FAILURE, "True", &reason, message, since.unwrap_or(now));
        }
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    status
}

fn progress(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &DeploymentStatus,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let current = condition(&old.clone(), PROGRESSING).cloned();
    let reason = current.as_ref().and_then(|c| c.reason.as_deref());
    if status.replicas == status.updated_replicas && reason == Some(NEW_SET_AVAILABLE) {
        return;
    }
    let subject = subject(deployment, new);
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        set_condition(status, PROGRESSING, "True", NEW_SET_AVAILABLE, message, now);
    } else if has_progressed(old, status) {
        // Every progress restarts the deadline, so the update time moves although status and reason may not.
        if let Some(all) = status.conditions.as_mut() {
            all.iter_mut().filter(|c| c.type_ == PROGRESSING).for_each(|c| c.reason = None);
        }
        let message = format!("{subject} is progressing.");
        set_condition(status, PROGRESSING, "True", "ReplicaSetUpdated", message, now);
    } else if until_deadline(deployment, status, now).is_some_and(|left| left.is_zero()) {
        let message = format!("{subject} has timed out progressing.");
        set_condition(status, PROGRESSING, "False", TIMED_OUT, message, now);
    }
}

type Failure = (String, String, Option<Timestamp>);

/// The newest set's failure to create pods, or an old one's: reason, message and since when.
fn failure(new: Option<&Arc<ReplicaSet>>, all: &[&Arc<ReplicaSet>]) -> Option<Failure> {
    let of = |set: &Arc<ReplicaSet>| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        let found = conditions.iter().find(|c| c.type_ == REPLICA_FAILURE)?;
        let since = found.last_transition_time.as_ref().map(|time| time.0);
        Some((found.reason.clone().unwrap_or_default(), found.message.clone().unwrap_or_default(), since))
    };
    new.and_then(of).or_else(|| all.iter().find_map(|s| of(s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn deployment(status: &DeploymentStatus) -> Deployment {
        serde_json::from_value(json!({ "metadata": { "name": "d", "generation": 1 },
            "spec": { "replicas": 2, "progressDeadlineSeconds": 10, "selector": {}, "template": {} }, "status": status }))
        .unwrap()
    }

    fn set(replicas: i32, available: i32) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(
                json!({ "metadata": { "name": "r" }, "spec": { "replicas": 2, "selector": {} },
            "status": { "replicas": replicas, "readyReplicas": available, "availableReplicas": available } }),
            )
            .unwrap(),
        )
    }

    fn reason(status: &DeploymentStatus, type_: &str) -> String {
        condition(status, type_).and_then(|c| c.reason.clone()).unwrap_or_default()
    }

    #[test]
    fn a_rollout_progresses_completes_and_stays_complete() {
        let mut status = DeploymentStatus::default();
        for (second, replicas, available, progressing, available_reason) in [
            (100, 1, 0, "ReplicaSetUpdated", "MinimumReplicasUnavailable"),
            (105, 2, 1, "ReplicaSetUpdated", "MinimumReplicasUnavailable"),
            (112, 2, 2, "NewReplicaSetAvailable", "MinimumReplicasAvailable"),
            (900, 2, 1, "NewReplicaSetAvailable", "MinimumReplicasUnavailable"),
        ] {
            let set = set(replicas, available);
            status = rollout(&deployment(&status), Some(&set), &[&set], at(second));
            assert_eq!(reason(&status, PROGRESSING), progressing, "at {second}");
            assert_eq!(reason(&status, AVAILABLE), available_reason, "at {second}");
        }
        assert_eq!(condition(&status, PROGRESSING).unwrap().last_transition_time, Some(Time(at(100))));
    }

    #[test]
    fn without_progress_the_deadline_passes() {
        let set = set(1, 0);
        let first = rollout(&deployment(&DeploymentStatus::default()), Some(&set), &[&set], at(100));
        let waiting = rollout(&deployment(&first), Some(&set), &[&set], at(109));
        assert_eq!(waiting, first);
        assert_eq!(until_deadline(&deployment(&first), &first, at(104)), Some(Duration::from_secs(6)));
        let late = rollout(&deployment(&first), Some(&set), &[&set], at(111));
        assert_eq!(reason(&late, PROGRESSING), "ProgressDeadlineExceeded");
        assert_eq!(
            condition(&late, PROGRESSING).unwrap().message.as_deref(),
            Some("ReplicaSet \"r\" has timed out progressing.")
        );
        assert_eq!(until_deadline(&deployment(&late), &late, at(112)), None);
    }
    #[test]
    fn a_failure_is_as_old_as_its_sets() {
        let mut failing = ReplicaSet::clone(&set(0, 0));
        let condition_of_it = json!([{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": "forbidden", "lastTransitionTime": at(90).to_string() }]);
        failing.status.as_mut().unwrap().conditions = serde_json::from_value(condition_of_it).unwrap();
        let failing = Arc::new(failing);
        let status = rollout(&deployment(&DeploymentStatus::default()), Some(&failing), &[&failing], at(100));
        let told = condition(&status, REPLICA_FAILURE).unwrap();
        assert_eq!(
            (told.reason.as_deref(), told.message.as_deref()),
            (Some("FailedCreate"), Some("forbidden"))
        );
        assert_eq!(told.last_transition_time, Some(Time(at(90))));
    }
}
