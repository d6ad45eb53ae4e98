//! Whether a Job is over, and why.

use super::policy::{self, Action};
use super::view::{View, is_failed, is_suspended, size};
use jiff::Timestamp;
use std::time::Duration;

/// The end that a Job has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub success: bool,
    pub reason: String,
    pub message: String,
}

impl Verdict {
    fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.into() }
    }

    /// The condition that stands until the last pod has ended, and the one that stands then.
    pub fn conditions(&self) -> (&'static str, &'static str) {
        if self.success { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") }
    }
}

/// Before pods are created or deleted; a verdict stands once it is in the status.
pub fn before_work(view: &View, now: Timestamp) -> Option<Verdict> {
    standing(view)
        .or_else(|| failed_by_policy(view))
        .or_else(|| spent(view))
        .or_else(|| deadline(view, now))
        .or_else(|| failed_by_indexes(view))
        .or_else(|| succeeded_by_policy(view))
}

fn standing(view: &View) -> Option<Verdict> {
    ["SuccessCriteriaMet", "FailureTarget"].into_iter().find_map(|type_| {
        let mut conditions = view.status.conditions.iter().flatten();
        let found = conditions.find(|c| c.type_ == type_ && c.status == "True")?;
        Some(Verdict {
            success: type_ == "SuccessCriteriaMet",
            reason: found.reason.clone().unwrap_or_default(),
            message: found.message.clone().unwrap_or_default(),
        })
    })
}

fn failed_by_policy(view: &View) -> Option<Verdict> {
    let rules = view.spec.pod_failure_policy.as_ref()?;
    let failed = view.pods.iter().filter(|pod| is_failed(view.spec, pod));
    failed.map(|pod| policy::on_failure(Some(rules), pod)).find_map(|action| match action {
        Action::FailJob(message) => Some(Verdict::failed("PodFailurePolicy", message)),
        _ => None,
    })
}

fn spent(view: &View) -> Option<Verdict> {
    let limit = view.spec.backoff_limit.unwrap_or(6);
    let over = view.failed > size(Some(limit)) || restarts_spent(view, limit);
    over.then(|| Verdict::failed("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
}

/// Containers that restart in place count as failures too.
fn restarts_spent(view: &View, limit: i32) -> bool {
    let template = view.spec.template.spec.as_ref();
    if template.and_then(|t| t.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = view.pods.iter().filter(|p| matches!(crate::common::pods::phase(p), "Running" | "Pending"));
    let restarts: i32 = running.flat_map(|p| policy::statuses(p)).map(|c| c.restart_count).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

/// What is left of activeDeadlineSeconds while the Job runs.
pub fn until_deadline(view: &View, now: Timestamp) -> Option<Duration> {
    let seconds = view.spec.active_deadline_seconds?;
    if is_suspended(view.spec) {
        return None;
    }
    let start = view.status.start_time.as_ref()?.0;
    let left = start.as_millisecond() + seconds.saturating_mul(1000) - now.as_millisecond();
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

fn deadline(view: &View, now: Timestamp) -> Option<Verdict> {
    let message = "Job was active longer than specified deadline";
    until_deadline(view, now)?.is_zero().then(|| Verdict::failed("DeadlineExceeded", message))
}

fn failed_by_indexes(view: &View) -> Option<Verdict> {
    let indexed = view.indexed.as_ref()?;
    let failed = indexed.failed.as_ref().filter(|f| !f.is_empty())?;
    if view.spec.max_failed_indexes.is_some_and(|max| failed.len() > size(Some(max))) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Verdict::failed("MaxFailedIndexesExceeded", message));
    }
    let all = indexed.succeeded.len() + failed.len() >= size(Some(indexed.completions));
    all.then(|| Verdict::failed("FailedIndexes", "Job has failed indexes"))
}

fn succeeded_by_policy(view: &View) -> Option<Verdict> {
    let (rules, indexed) = (view.spec.success_policy.as_ref()?, view.indexed.as_ref()?);
    let message = policy::on_success(rules, &indexed.succeeded, indexed.completions)?;
    Some(Verdict { success: true, reason: "SuccessPolicy".to_owned(), message })
}

/// After pods were created or deleted: whether as many succeeded as should. `active` is how many are left.
pub fn after_work(view: &View, active: usize) -> Option<Verdict> {
    let enough = match view.spec.completions {
        // Any pod's success ends a Job without a number of completions, once the others have ended.
        None => view.succeeded > 0 && active == 0,
        Some(completions) => view.succeeded >= size(Some(completions)) && active == 0,
    };
    enough.then(|| Verdict {
        success: true,
        reason: "CompletionsReached".to_owned(),
        message: "Reached expected number of succeeded pods".to_owned(),
    })
}
