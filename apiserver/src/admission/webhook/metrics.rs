//! What is counted of webhooks, under upstream's names.

use super::ask::Failure;
use crate::metrics::{self, Counter, Family, Histogram};
use std::sync::{LazyLock, Once};
use std::time::Duration;

/// Upstream's buckets of webhooks, in seconds.
const WEBHOOK_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// The largest code that is told apart, as upstream: webhooks can make up codes.
const MOST_CODE: u16 = 600;

/// One call's place in the counts.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    pub name: &'a str,
    /// `admit` or `validating`.
    pub kind: &'static str,
    pub operation: &'static str,
}

struct Webhooks {
    durations: Family<Histogram>,
    requests: Family<Counter>,
    rejections: Family<Counter>,
    fail_open: Family<Counter>,
    excluded: Family<Counter>,
    condition_errors: Family<Counter>,
}

static WEBHOOKS: LazyLock<Webhooks> = LazyLock::new(|| Webhooks {
    durations: Family::new(
        "apiserver_admission_webhook_admission_duration_seconds",
        "Time of one webhook, by operation and type.",
        &["name", "operation", "rejected", "type"],
        || Histogram::new(WEBHOOK_SECONDS),
    ),
    requests: Family::new(
        "apiserver_admission_webhook_request_total",
        "Calls of webhooks by the code of their answer.",
        &["code", "name", "operation", "rejected", "type"],
        Counter::default,
    ),
    rejections: Family::new(
        "apiserver_admission_webhook_rejection_count",
        "Requests that webhooks have refused, or that were refused because a webhook could not be asked.",
        &["error_type", "name", "operation", "rejection_code", "type"],
        Counter::default,
    ),
    fail_open: Family::new(
        "apiserver_admission_webhook_fail_open_count",
        "Failed calls that failurePolicy Ignore let pass.",
        &["name", "type"],
        Counter::default,
    ),
    excluded: Family::new(
        "apiserver_admission_match_condition_exclusions_total",
        "Requests that match conditions kept from a webhook.",
        &["kind", "name", "operation", "type"],
        Counter::default,
    ),
    condition_errors: Family::new(
        "apiserver_admission_match_condition_evaluation_errors_total",
        "Match conditions that could not be evaluated.",
        &["kind", "name", "operation", "type"],
        Counter::default,
    ),
});

/// Shows them on the page of metrics; once is enough.
pub(super) fn show() {
    static SHOWN: Once = Once::new();
    SHOWN.call_once(|| {
        metrics::global().collect_as("webhooks", |text| {
            WEBHOOKS.durations.render(text);
            WEBHOOKS.requests.render(text);
            WEBHOOKS.rejections.render(text);
            WEBHOOKS.fail_open.render(text);
            WEBHOOKS.excluded.render(text);
            WEBHOOKS.condition_errors.render(text);
        });
    });
}

impl Labels<'_> {
    /// A webhook was asked; `fails_open` is its failure policy.
    pub fn asked(self, failure: Option<&Failure>, fails_open: bool, took: Duration) {
        let (code, error) = match failure {
            None => (200, None),
            Some(Failure::Call { code, .. }) => (*code, Some("calling_webhook_error")),
            Some(Failure::Rejected(error)) => (error.code, Some("no_error")),
            Some(Failure::Internal(_)) => (0, Some("apiserver_internal_error")),
        };
        let forgiven = fails_open && matches!(failure, Some(Failure::Call { .. }));
        let error = error.filter(|_| !forgiven);
        let rejected = if error.is_some() { "true" } else { "false" };
        let code = code.min(MOST_CODE).to_string();
        let Self { name, kind, operation } = self;
        WEBHOOKS.durations.with(&[name, operation, rejected, kind], |h| h.observe(took));
        WEBHOOKS.requests.with(&[&code, name, operation, rejected, kind], |c| c.add(1));
        if let Some(error) = error {
            WEBHOOKS.rejections.with(&[error, name, operation, &code, kind], |c| c.add(1));
        }
        if forgiven {
            WEBHOOKS.fail_open.with(&[name, kind], |c| c.add(1));
        }
    }

    pub fn excluded(self) {
        WEBHOOKS.excluded.with(&["webhook", self.name, self.operation, self.kind], |c| c.add(1));
    }

    pub fn condition_failed(self) {
        WEBHOOKS.condition_errors.with(&["webhook", self.name, self.operation, self.kind], |c| c.add(1));
    }
}
