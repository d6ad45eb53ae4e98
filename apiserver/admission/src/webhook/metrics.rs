//! What is counted of webhooks, under upstream's names.

use super::ask::Failure;
use coracle_component_base::metrics::Metrics;
use std::time::Duration;

/// The largest code that is told apart, as upstream: webhooks can make up codes.
const MOST_CODE: u16 = 600;

/// One call's place in the counts.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    pub metrics: &'a Metrics,
    pub name: &'a str,
    /// `admit` or `validating`.
    pub kind: &'static str,
    pub operation: &'static str,
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
        let code = code.min(MOST_CODE);
        let Self { metrics, name, kind, operation } = self;
        metrics.admission_webhook(name, operation, kind, error.is_some(), took);
        metrics.webhook_answered(name, operation, kind, error.is_some(), code);
        if let Some(error) = error {
            metrics.webhook_rejected(name, operation, kind, error, code);
        }
        if forgiven {
            metrics.webhook_failed_open(name, kind);
        }
    }

    pub fn excluded(self) {
        self.metrics.webhook_excluded(self.name, self.operation, self.kind);
    }

    pub fn condition_failed(self) {
        self.metrics.webhook_condition_failed(self.name, self.operation, self.kind);
    }
}
