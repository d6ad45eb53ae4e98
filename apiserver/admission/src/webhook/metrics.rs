//! What is counted of webhooks, under upstream's names.

use super::ask::Failure;
use coracle_component_base::metrics::{self, Counter, Family};
use std::sync::{LazyLock, Once};
use std::time::Duration;

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
    requests: Family<Counter>,
    excluded: Family<Counter>,
    condition_errors: Family<Counter>,
}

static WEBHOOKS: LazyLock<Webhooks> = LazyLock::new(|| Webhooks {
    requests: Family::new(
        "apiserver_admission_webhook_request_total",
        "Calls of webhooks by the code of their answer.",
        &["code", "name", "operation", "rejected", "type"],
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
            WEBHOOKS.requests.render(text);
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
        let code = code.min(MOST_CODE);
        let Self { name, kind, operation } = self;
        let metrics = metrics::global();
        metrics.admission_webhook(name, operation, kind, error.is_some(), took);
        WEBHOOKS.requests.with(&[&code.to_string(), name, operation, rejected, kind], |c| c.add(1));
        if let Some(error) = error {
            metrics.webhook_rejected(name, operation, kind, error, code);
        }
        if forgiven {
            metrics.webhook_failed_open(name, kind);
        }
    }

    pub fn excluded(self) {
        WEBHOOKS.excluded.with(&["webhook", self.name, self.operation, self.kind], |c| c.add(1));
    }

    pub fn condition_failed(self) {
        WEBHOOKS.condition_errors.with(&["webhook", self.name, self.operation, self.kind], |c| c.add(1));
    }
}
