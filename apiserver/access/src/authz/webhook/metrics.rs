//! What is counted of authorization webhooks, under upstream's names.

use coracle_component_base::metrics::{Counter, Family, Histogram, Text};
use coracle_webhook::{CallError, TransportError};
use serde_json::Value;
use std::time::Duration;

/// Upper bounds in seconds: upstream's.
const BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const CONDITION_BOUNDS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25];

/// Of all webhooks of a server, over every change of its configuration.
pub struct Metrics {
    evaluations: Family<Counter>,
    durations: Family<Histogram>,
    failed_open: Family<Counter>,
    excluded: Family<Counter>,
    condition_errors: Family<Counter>,
    condition_times: Family<Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            evaluations: Family::new(
                "apiserver_authorization_webhook_evaluations_total",
                "Calls of authorization webhooks by what became of them.",
                &["name", "result"],
                Counter::default,
            ),
            durations: Family::new(
                "apiserver_authorization_webhook_duration_seconds",
                "How long calls of authorization webhooks took.",
                &["name", "result"],
                || Histogram::new(BOUNDS),
            ),
            failed_open: Family::new(
                "apiserver_authorization_webhook_evaluations_fail_open_total",
                "Questions that a webhook's failure left to the others.",
                &["name", "result"],
                Counter::default,
            ),
            excluded: Family::new(
                "apiserver_authorization_match_condition_exclusions_total",
                "Questions that match conditions kept from a webhook.",
                &["name", "type"],
                Counter::default,
            ),
            condition_errors: Family::new(
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "Match conditions that could not be evaluated.",
                &["name", "type"],
                Counter::default,
            ),
            condition_times: Family::new(
                "apiserver_authorization_match_condition_evaluation_seconds",
                "How long the match conditions of a webhook took.",
                &["name", "type"],
                || Histogram::new(CONDITION_BOUNDS),
            ),
        }
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    Timeout,
    Error,
}

impl Outcome {
    pub fn of(answer: &Result<Value, CallError>) -> Self {
        match answer {
            Ok(_) => Self::Success,
            Err(CallError::Transport { source: TransportError::Deadline(_), .. }) => Self::Timeout,
            Err(_) => Self::Error,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

impl Metrics {
    /// Writes everything.
    pub fn render(&self, text: &mut Text) {
        self.evaluations.render(text);
        self.durations.render(text);
        self.failed_open.render(text);
        self.excluded.render(text);
        self.condition_errors.render(text);
        self.condition_times.render(text);
    }

    pub(super) fn asked(&self, name: &str, outcome: Outcome, took: Duration) {
        self.evaluations.with(&[name, outcome.name()], |counter| counter.add(1));
        self.durations.with(&[name, outcome.name()], |histogram| histogram.observe(took));
    }

    /// An answer that makes no sense is a failure too, though the call was none.
    pub(super) fn failed_open(&self, name: &str, outcome: Outcome) {
        let outcome = if outcome == Outcome::Success { Outcome::Error } else { outcome };
        self.failed_open.with(&[name, outcome.name()], |counter| counter.add(1));
    }

    pub(super) fn excluded(&self, name: &str) {
        self.excluded.with(&[name, "Webhook"], |counter| counter.add(1));
    }

    pub(super) fn condition_failed(&self, name: &str) {
        self.condition_errors.with(&[name, "Webhook"], |counter| counter.add(1));
    }

    pub(super) fn conditions_took(&self, name: &str, took: Duration) {
        self.condition_times.with(&[name, "Webhook"], |histogram| histogram.observe(took));
    }
}
