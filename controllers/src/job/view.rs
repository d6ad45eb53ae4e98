//! What a Job and its pods amount to at one moment.

use super::indexes::Indexes;
use super::policy::{self, Action};
use crate::common::pods;
use coracle_client::informer::deleting;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::HashMap;
use std::sync::Arc;

/// Holds a pod until its end has been counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The indexes of an Indexed Job.
pub struct IndexView {
    pub completions: i32,
    pub succeeded: Indexes,
    /// Only where failures are counted by index.
    pub failed: Option<Indexes>,
    /// The last failed pod of each index that has no later one and may be tried again: it is kept, because it knows
    /// how often.
    pub last_failed: HashMap<i32, Arc<Pod>>,
}

pub struct View<'a> {
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    pub status: JobStatus,
    /// All pods of the Job.
    pub pods: Vec<Arc<Pod>>,
    pub active: Vec<Arc<Pod>>,
    /// Ended, and not in the status yet.
    pub new_succeeded: Vec<Arc<Pod>>,
    pub new_failed: Vec<Arc<Pod>>,
    /// Over the Job's whole life.
    pub succeeded: usize,
    pub failed: usize,
    pub indexed: Option<IndexView>,
}

pub fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|f| f == TRACKING)
}

pub fn size(count: Option<i32>) -> usize {
    usize::try_from(count.unwrap_or(0)).unwrap_or(0)
}

pub fn condition(status: &JobStatus, type_: &str) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == type_ && c.status == "True")
}

pub fn is_finished(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|s| condition(s, "Complete") || condition(s, "Failed"))
}

pub fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend.unwrap_or(false)
}

/// Whether only pods that have ended are replaced, not those on their way out.
pub fn replaces_failed_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Whether a pod counts as failed: terminating ones do, unless the Job waits for their end.
pub fn is_failed(spec: &JobSpec, pod: &Pod) -> bool {
    match pods::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !replaces_failed_only(spec) && deleting(pod),
    }
}

fn is_counted(uids: Option<&Vec<String>>, pod: &Pod) -> bool {
    uids.is_some_and(|uids| uids.iter().any(|uid| Some(uid) == pod.metadata.uid.as_ref()))
}

fn number(pod: &Pod, annotation: &str) -> i32 {
    pod.annotations().get(annotation).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The index that a pod stands for, if there is one.
pub fn index_of(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok().filter(|i| *i >= 0)
}

/// Whether a pod's end means something to the Job: in an Indexed one, only that of an index that there is.
pub fn is_one_of(spec: &JobSpec, pod: &Pod) -> bool {
    let completions = spec.completions.unwrap_or(0);
    spec.completion_mode.as_deref() != Some("Indexed") || index_of(pod).is_some_and(|i| i < completions)
}

/// Failures of the index, and ignored ones, with this pod's own.
pub fn index_failures(spec: &JobSpec, pod: &Pod) -> (i32, i32) {
    let (failures, ignored) = (number(pod, FAILURES), number(pod, IGNORED));
    match policy::on_failure(spec.pod_failure_policy.as_ref(), pod) {
        Action::Ignore => (failures, ignored + 1),
        _ => (failures + 1, ignored),
    }
}

impl<'a> View<'a> {
    /// `None` for a Job without a spec, which the API server does not store.
    pub fn new(job: &'a Job, pods: Vec<Arc<Pod>>) -> Option<Self> {
        let spec = job.spec.as_ref()?;
        let status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let select = |test: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
            pods.iter().filter(|p| test(p)).cloned().collect()
        };
        let active = select(&pods::is_active);
        let is_new = |p: &Pod, counted: Option<&Vec<String>>| {
            is_tracked(p) && is_one_of(spec, p) && !is_counted(counted, p)
        };
        let new_succeeded =
            select(&|p| is_new(p, uncounted.succeeded.as_ref()) && pods::phase(p) == "Succeeded");
        let new_failed = select(&|p| is_new(p, uncounted.failed.as_ref()) && is_failed(spec, p));
        let counting =
            |p: &&Arc<Pod>| policy::on_failure(spec.pod_failure_policy.as_ref(), p) != Action::Ignore;
        let mut view = Self {
            job,
            spec,
            succeeded: size(status.succeeded) + new_succeeded.len() + names(uncounted.succeeded.as_ref()),
            failed: size(status.failed)
                + new_failed.iter().filter(counting).count()
                + names(uncounted.failed.as_ref()),
            status,
            active,
            new_succeeded,
            new_failed,
            indexed: None,
            pods,
        };
        view.indexed = view.read_indexes();
        if let Some(indexed) = &view.indexed {
            view.succeeded = indexed.succeeded.len();
        }
        Some(view)
    }

    fn read_indexes(&self) -> Option<IndexView> {
        let completions = self.spec.completions?;
        if self.spec.completion_mode.as_deref() != Some("Indexed") {
            return None;
        }
        let parse = |text: Option<&String>| Indexes::parse(text.map_or("", String::as_str), completions);
        let own = |pod: &Pod| index_of(pod).filter(|i| *i < completions);
        let mut succeeded = parse(self.status.completed_indexes.as_ref());
        let done = self.pods.iter().filter(|p| is_tracked(p) && pods::phase(p) == "Succeeded");
        done.filter_map(|p| own(p)).for_each(|i| succeeded.insert(i));
        let failed = self.spec.backoff_limit_per_index.map(|limit| {
            let mut failed = parse(self.status.failed_indexes.as_ref());
            let tracked = self.pods.iter().filter(|p| is_tracked(p));
            let spent = tracked.filter(|p| self.spends_index(p, limit)).filter_map(|p| own(p));
            spent.filter(|i| !succeeded.contains(*i)).for_each(|i| failed.insert(i));
            failed
        });
        let last_failed = match &failed {
            Some(failed) => {
                self.last_failed(|i| i < completions && !succeeded.contains(i) && !failed.contains(i))
            }
            None => HashMap::new(),
        };
        Some(IndexView { completions, succeeded, failed, last_failed })
    }

    /// Whether the pod's failure is its index's last.
    fn spends_index(&self, pod: &Pod, limit: i32) -> bool {
        is_failed(self.spec, pod)
            && match policy::on_failure(self.spec.pod_failure_policy.as_ref(), pod) {
                Action::FailIndex => true,
                Action::Ignore => false,
                _ => number(pod, FAILURES) >= limit,
            }
    }

    /// Of each index that is still tried, the pod that tried last, if it failed.
    fn last_failed(&self, tried: impl Fn(i32) -> bool) -> HashMap<i32, Arc<Pod>> {
        let mut last: HashMap<i32, Arc<Pod>> = HashMap::new();
        let attempts = |pod: &Pod| number(pod, FAILURES) + number(pod, IGNORED);
        for pod in self.pods.iter().filter(|p| is_tracked(p)) {
            let Some(index) = index_of(pod).filter(|i| tried(*i)) else { continue };
            if last.get(&index).is_none_or(|other| attempts(other) <= attempts(pod)) {
                last.insert(index, pod.clone());
            }
        }
        last.retain(|_, pod| is_failed(self.spec, pod));
        last
    }

    pub fn ready(&self) -> usize {
        self.active.iter().filter(|p| pods::is_ready(p)).count()
    }

    pub fn terminating(&self) -> usize {
        self.pods.iter().filter(|p| pods::is_terminating(p)).count()
    }

    pub fn parallelism(&self) -> usize {
        size(self.spec.parallelism)
    }

    pub fn uncounted(&self) -> UncountedTerminatedPods {
        self.status.uncounted_terminated_pods.clone().unwrap_or_default()
    }
}

fn names(uids: Option<&Vec<String>>) -> usize {
    uids.map_or(0, Vec::len)
}
