//! Which pods a Job deletes or creates next.

use super::backoff::{self, Record};
use super::view::{self, View, index_of, is_suspended, replaces_failed_only, size};
use crate::common::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Pods created or deleted in one pass; upstream's.
const BURST: usize = 500;

#[derive(Debug, Default)]
pub struct Plan {
    pub delete: Vec<Arc<Pod>>,
    /// One pod for each; the index of an Indexed Job.
    pub create: Vec<Option<i32>>,
    /// Look again then, for pods that wait for their back-off.
    pub again: Option<Duration>,
}

/// For a Job that goes on.
pub fn plan(view: &View, record: Record, now: Timestamp) -> Plan {
    if is_suspended(view.spec) {
        return Plan { delete: first(view.active.clone()), ..Plan::default() };
    }
    let wanted = wanted(view);
    let delete = first(surplus(view, wanted));
    if !delete.is_empty() {
        return Plan { delete, ..Plan::default() };
    }
    let leaving = if replaces_failed_only(view.spec) { view.terminating() } else { 0 };
    let missing = wanted.saturating_sub(leaving + view.active.len()).min(BURST);
    create(view, missing, record, now)
}

fn first(mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    pods.truncate(BURST);
    pods
}

fn wanted(view: &View) -> usize {
    let parallel = view.parallelism();
    match view.spec.completions {
        // The first success means that the others finish by themselves.
        None if view.succeeded > 0 => view.active.len().min(parallel),
        None => parallel,
        Some(completions) => {
            let given_up = view.indexed.as_ref().and_then(|i| i.failed.as_ref()).map_or(0, |f| f.len());
            size(Some(completions)).saturating_sub(view.succeeded + given_up).min(parallel)
        }
    }
}

/// Pods too many: doubles and strangers among the indexes, then those that have come least far.
fn surplus(view: &View, wanted: usize) -> Vec<Arc<Pod>> {
    let mut ranked: Vec<Arc<Pod>> = view.active.clone();
    ranked.sort_by_cached_key(|pod| {
        let running = pods::node_name(pod).is_some();
        (running, pods::phase(pod) != "Pending", pods::is_ready(pod), std::cmp::Reverse(created(pod)))
    });
    let mut gone: Vec<Arc<Pod>> = Vec::new();
    if let Some(indexed) = &view.indexed {
        let mut seen = HashSet::new();
        // From the best to the worst: the best of each index stays.
        let keeps = |pod: &Arc<Pod>, seen: &mut HashSet<i32>| {
            index_of(pod)
                .is_some_and(|i| i < indexed.completions && !indexed.succeeded.contains(i) && seen.insert(i))
        };
        let (kept, extra): (Vec<_>, Vec<_>) = ranked.into_iter().rev().partition(|pod| keeps(pod, &mut seen));
        gone = extra;
        ranked = kept.into_iter().rev().collect();
    }
    let left = ranked.len().saturating_sub(wanted);
    gone.extend(ranked.into_iter().take(left));
    gone
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|t| t.0)
}

fn create(view: &View, missing: usize, record: Record, now: Timestamp) -> Plan {
    if missing == 0 {
        return Plan::default();
    }
    let by_index = view.indexed.as_ref().is_some_and(|i| i.failed.is_some());
    let wait = record.remaining(now);
    if !by_index && !wait.is_zero() {
        return Plan { again: Some(wait), ..Plan::default() };
    }
    let Some(indexed) = &view.indexed else {
        return Plan { create: vec![None; missing], ..Plan::default() };
    };
    let only_ended = replaces_failed_only(view.spec);
    let busy = view.pods.iter().filter(|p| pods::is_active(p) || only_ended && pods::is_terminating(p));
    let busy: HashSet<i32> = busy.filter_map(|p| index_of(p)).collect();
    let failed = indexed.failed.as_ref();
    let pending = (0..indexed.completions).filter(|i| {
        !busy.contains(i) && !indexed.succeeded.contains(*i) && failed.is_none_or(|f| !f.contains(*i))
    });
    let mut plan = Plan::default();
    for index in pending {
        if plan.create.len() == missing {
            break;
        }
        let wait = indexed.last_failed.get(&index).map_or(Duration::ZERO, |pod| {
            let (failures, ignored) = view::index_failures(view.spec, pod);
            let attempts = u32::try_from(failures + ignored).unwrap_or(0);
            backoff::remaining(attempts, backoff::finished_at(pod), now)
        });
        if wait.is_zero() {
            plan.create.push(Some(index));
        } else {
            plan.again = Some(plan.again.map_or(wait, |again| again.min(wait)));
        }
    }
    plan
}
