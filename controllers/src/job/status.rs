//! A Job's status: conditions, and the counting of pods that have ended.

use super::policy::{self, Action};
use super::verdict::Verdict;
use super::view::{View, index_of, is_failed, is_one_of, is_tracked, size};
use crate::common::pods;
use coracle_client::informer::deleting;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

/// Pods counted in one pass; upstream's.
const BATCH: usize = 500;

/// Sets a condition. Whether that changed anything; a condition that was never true is not added as false.
pub fn set_condition(
    status: &mut JobStatus,
    type_: &str,
    value: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let text = if value { "True" } else { "False" };
    let all = status.conditions.get_or_insert_default();
    let before = all.iter_mut().find(|c| c.type_ == type_);
    if before.as_ref().is_some_and(|c| c.status == text && c.reason.as_deref() == Some(reason)) {
        return false;
    }
    let condition = JobCondition {
        type_: type_.to_owned(),
        status: text.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    match before {
        Some(before) => *before = condition,
        None if value => all.push(condition),
        None => return false,
    }
    true
}

/// The pods to let go of, and what the status says meanwhile.
#[derive(Debug, Default)]
pub struct Counting {
    pub let_go: Vec<Arc<Pod>>,
    pub uncounted: UncountedTerminatedPods,
    /// There are more than one pass takes.
    pub more: bool,
    /// What rules of podFailurePolicy said of the failed ones among them.
    pub by_rule: Vec<Action>,
}

/// Which pods are counted now.
pub fn count(view: &View, verdict: Option<&Verdict>) -> Counting {
    let mut counting = Counting { uncounted: view.uncounted(), ..Counting::default() };
    let ended = verdict.is_some() || deleting(view.job);
    for pod in view.pods.iter().filter(|p| is_tracked(p)) {
        let failed = is_failed(view.spec, pod);
        let succeeded = pods::phase(pod) == "Succeeded";
        if !(ended || succeeded || failed && !is_kept(view, pod)) {
            continue;
        }
        if counting.let_go.len() == BATCH {
            counting.more = true;
            break;
        }
        counting.let_go.push(pod.clone());
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if succeeded && view.indexed.is_none() {
            note(&mut counting.uncounted.succeeded, uid);
        } else if !succeeded && (failed || verdict.is_some_and(|v| !v.success)) {
            count_failure(view, pod, uid, &mut counting);
        }
    }
    counting
}

/// Its successor will need to know how often its index has failed.
fn is_kept(view: &View, pod: &Pod) -> bool {
    let kept = view.indexed.as_ref().and_then(|i| i.last_failed.get(&index_of(pod)?));
    kept.is_some_and(|kept| kept.metadata.uid == pod.metadata.uid)
}

fn count_failure(view: &View, pod: &Pod, uid: String, counting: &mut Counting) {
    let known = counting.uncounted.failed.as_ref().is_some_and(|uids| uids.contains(&uid));
    if known || !is_one_of(view.spec, pod) {
        return;
    }
    let action = policy::by_rule(view.spec.pod_failure_policy.as_ref(), pod);
    if action != Some(Action::Ignore) {
        note(&mut counting.uncounted.failed, uid);
    }
    counting.by_rule.extend(action);
}

fn note(list: &mut Option<Vec<String>>, uid: String) {
    let list = list.get_or_insert_default();
    if !list.contains(&uid) {
        list.push(uid);
    }
}

/// Moves the uncounted pods that are not held any more, by `held`, to the counters.
pub fn settle(status: &mut JobStatus, held: impl Fn(&str) -> bool) {
    let Some(uncounted) = status.uncounted_terminated_pods.as_mut() else { return };
    let take = |list: &mut Option<Vec<String>>| -> i32 {
        let Some(uids) = list.as_mut() else { return 0 };
        let before = uids.len();
        uids.retain(|uid| held(uid));
        let moved = before - uids.len();
        if uids.is_empty() {
            *list = None;
        }
        i32::try_from(moved).unwrap_or(i32::MAX)
    };
    let (succeeded, failed) = (take(&mut uncounted.succeeded), take(&mut uncounted.failed));
    add(&mut status.succeeded, succeeded);
    add(&mut status.failed, failed);
}

fn add(counter: &mut Option<i32>, more: i32) {
    if more > 0 {
        *counter = Some(counter.unwrap_or(0) + more);
    }
}

/// The numbers of this moment and the indexes; `active` is how many pods are left.
pub fn numbers(view: &View, status: &mut JobStatus, active: usize) {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    status.active = (active > 0).then(|| count(active));
    status.ready = Some(count(view.ready().min(active)));
    status.terminating = Some(count(view.terminating() + (view.active.len().saturating_sub(active))));
    if let Some(indexed) = &view.indexed {
        status.succeeded = (!indexed.succeeded.is_empty()).then(|| count(indexed.succeeded.len()));
        status.completed_indexes = (!indexed.succeeded.is_empty()).then(|| indexed.succeeded.to_string());
        status.failed_indexes = indexed.failed.as_ref().map(ToString::to_string);
    }
}

/// Whether nothing of the Job is running or uncounted any more.
pub fn is_settled(status: &JobStatus) -> bool {
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    uncounted.succeeded.is_none()
        && uncounted.failed.is_none()
        && size(status.active) == 0
        && size(status.ready) == 0
        && size(status.terminating) == 0
}
