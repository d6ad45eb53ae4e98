//! Authentication, authorization, admission and what is asked of deprecated resources.

use super::security::{Credentials, PodSecurity};
use coracle_metrics::Text;
use coracle_metrics::{Counter, Family, Gauge, Histogram, Metric as _};
use std::sync::Arc;
use std::time::Duration;

/// Upstream's buckets of authentication and authorization, in seconds: powers of two from a millisecond.
const CHECK_SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// Upstream's buckets of admission controllers and of whole admission, in seconds.
const ADMISSION_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// Upstream's buckets of admission webhooks, in seconds.
const WEBHOOK_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Upstream's buckets of the checks of validating policies, in seconds.
const POLICY_SECONDS: &[f64] = &[5e-7, 1e-3, 1e-2, 0.1, 1.0];
/// Prometheus' own buckets, which upstream leaves as they are for CEL.
const DEFAULT_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Yes,
    No,
}

/// Attempts and their times, for each outcome; recording costs no lock.
struct Checks {
    counters: [Counter; 2],
    durations: [Histogram; 2],
}

impl Default for Checks {
    fn default() -> Self {
        Self { counters: Default::default(), durations: [CHECK_SECONDS; 2].map(Histogram::new) }
    }
}

impl Checks {
    fn record(&self, outcome: Outcome, duration: Duration) {
        self.counters[outcome as usize].add(1);
        self.durations[outcome as usize].observe(duration);
    }

    fn render(&self, names: [(&str, &str); 2], results: [&str; 2], text: &mut Text) {
        let [(count, count_help), (time, time_help)] = names;
        text.head(count, count_help, "counter");
        for (result, counter) in results.iter().zip(&self.counters) {
            text.sample(count, &[("result", result)], counter.get());
        }
        text.head(time, time_help, "histogram");
        for (result, histogram) in results.iter().zip(&self.durations) {
            histogram.render(time, &[("result", result)], text);
        }
    }
}

pub(super) struct Access {
    authentication: Checks,
    users: Family<Counter>,
    authorization: Checks,
    controllers: Family<Histogram>,
    steps: Family<Histogram>,
    webhooks: Webhooks,
    policies: Family<Counter>,
    policy_durations: Family<Histogram>,
    pub(super) cel_compilation: Histogram,
    pub(super) cel_evaluation: Histogram,
    deprecated: Family<Gauge>,
    pub(super) pod_security: PodSecurity,
    pub(super) credentials: Credentials,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            authentication: Checks::default(),
            users: Family::new(
                "authenticated_user_requests",
                "Requests that were authenticated, by the kind of user.",
                &["username"],
                Counter::default,
            ),
            authorization: Checks::default(),
            controllers: Family::new(
                "apiserver_admission_controller_admission_duration_seconds",
                "Time of one admission plugin, by operation and type.",
                &["name", "operation", "rejected", "type"],
                || Histogram::new(ADMISSION_SECONDS),
            ),
            steps: Family::new(
                "apiserver_admission_step_admission_duration_seconds",
                "Time of all plugins of a type together.",
                &["operation", "rejected", "type"],
                || Histogram::new(ADMISSION_SECONDS),
            ),
            webhooks: Webhooks::default(),
            policies: Family::new(
                "apiserver_validating_admission_policy_check_total",
                "Checks of validating policies, by binding and what came of them.",
                &["enforcement_action", "error_type", "policy", "policy_binding"],
                Counter::default,
            ),
            policy_durations: Family::new(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "Time of the checks of validating policies.",
                &["enforcement_action", "error_type", "policy", "policy_binding"],
                || Histogram::new(POLICY_SECONDS),
            ),
            cel_compilation: Histogram::new(DEFAULT_SECONDS),
            cel_evaluation: Histogram::new(DEFAULT_SECONDS),
            deprecated: Family::new(
                "apiserver_requested_deprecated_apis",
                "1 for deprecated resources that were asked for.",
                &["group", "removed_release", "resource", "subresource", "version"],
                Gauge::default,
            ),
            pod_security: PodSecurity::default(),
            credentials: Credentials::default(),
        }
    }
}

struct Webhooks {
    durations: Family<Histogram>,
    failed_open: Family<Counter>,
    rejected: Family<Counter>,
    requests: Family<Counter>,
    excluded: Family<Counter>,
    condition_errors: Family<Counter>,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            durations: Family::new(
                "apiserver_admission_webhook_admission_duration_seconds",
                "Time of one admission webhook, by operation and type.",
                &["name", "operation", "rejected", "type"],
                || Histogram::new(WEBHOOK_SECONDS),
            ),
            failed_open: Family::new(
                "apiserver_admission_webhook_fail_open_count",
                "Requests let through because a webhook failed whose policy allows that.",
                &["name", "type"],
                Counter::default,
            ),
            rejected: Family::new(
                "apiserver_admission_webhook_rejection_count",
                "Requests that a webhook refused, or whose webhook failed.",
                &["error_type", "name", "operation", "rejection_code", "type"],
                Counter::default,
            ),
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
        }
    }
}

fn flag(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

impl Access {
    /// Users by their kind, as upstream compresses them: the names of the system's own, `other` for all else.
    pub(super) fn authenticated(&self, user: Option<&str>, duration: Duration) {
        let outcome = if user.is_some() { Outcome::Yes } else { Outcome::No };
        self.authentication.record(outcome, duration);
        if let Some(user) = user {
            self.users.with(&[compress(user)], |counter| counter.add(1));
        }
    }

    pub(super) fn authorized(&self, allowed: bool, duration: Duration) {
        self.authorization.record(if allowed { Outcome::Yes } else { Outcome::No }, duration);
    }

    pub(super) fn plugin(&self, name: &str, operation: &str, kind: &str, rejected: bool, duration: Duration) {
        self.controllers.with(&[name, operation, flag(rejected), kind], |h| h.observe(duration));
    }

    pub(super) fn plugin_times(&self, name: &str, operation: &str, kind: &str) -> Arc<Histogram> {
        self.controllers.handle(&[name, operation, flag(false), kind])
    }

    pub(super) fn step(&self, operation: &str, kind: &str, rejected: bool, duration: Duration) {
        self.steps.with(&[operation, flag(rejected), kind], |h| h.observe(duration));
    }

    pub(super) fn webhook(
        &self,
        name: &str,
        operation: &str,
        kind: &str,
        rejected: bool,
        duration: Duration,
    ) {
        self.webhooks.durations.with(&[name, operation, flag(rejected), kind], |h| h.observe(duration));
    }

    pub(super) fn webhook_answered(
        &self,
        name: &str,
        operation: &str,
        kind: &str,
        rejected: bool,
        code: u16,
    ) {
        let code = code.to_string();
        self.webhooks.requests.with(&[&code, name, operation, flag(rejected), kind], |c| c.add(1));
    }

    pub(super) fn webhook_excluded(&self, name: &str, operation: &str, kind: &str) {
        self.webhooks.excluded.with(&["webhook", name, operation, kind], |c| c.add(1));
    }

    pub(super) fn webhook_condition_failed(&self, name: &str, operation: &str, kind: &str) {
        self.webhooks.condition_errors.with(&["webhook", name, operation, kind], |c| c.add(1));
    }

    pub(super) fn failed_open(&self, name: &str, kind: &str) {
        self.webhooks.failed_open.with(&[name, kind], |counter| counter.add(1));
    }

    pub(super) fn rejected(&self, name: &str, operation: &str, kind: &str, error_type: &str, code: u16) {
        // Upstream counts what is not an error of HTTP as a plain refusal.
        let code = if (400..=600).contains(&code) { code.to_string() } else { "0".to_owned() };
        self.webhooks.rejected.with(&[error_type, name, operation, &code, kind], |counter| counter.add(1));
    }

    pub(super) fn policy(
        &self,
        policy: &str,
        binding: &str,
        action: &str,
        error_type: &str,
        duration: Duration,
    ) {
        let labels = [action, error_type, policy, binding];
        self.policies.with(&labels, |counter| counter.add(1));
        self.policy_durations.with(&labels, |h| h.observe(duration));
    }

    pub(super) fn deprecated(&self, group: &str, version: &str, resource: &str, subresource: &str) {
        self.deprecated.with(&[group, "", resource, subresource, version], |gauge| gauge.set(1));
    }

    pub(super) fn render(&self, text: &mut Text) {
        let names = [
            ("authentication_attempts", "Requests by the result of their authentication."),
            ("authentication_duration_seconds", "Time of authentication by result."),
        ];
        self.authentication.render(names, ["success", "failure"], text);
        self.users.render(text);
        let names = [
            ("authorization_attempts_total", "Requests by the result of their authorization."),
            ("authorization_duration_seconds", "Time of authorization by result."),
        ];
        self.authorization.render(names, ["allowed", "denied"], text);
        self.controllers.render(text);
        self.steps.render(text);
        self.webhooks.durations.render(text);
        self.webhooks.failed_open.render(text);
        self.webhooks.rejected.render(text);
        self.webhooks.requests.render(text);
        self.webhooks.excluded.render(text);
        self.webhooks.condition_errors.render(text);
        self.policies.render(text);
        self.policy_durations.render(text);
        for (name, help, histogram) in [
            (
                "apiserver_cel_compilation_duration_seconds",
                "Time to compile an expression.",
                &self.cel_compilation,
            ),
            (
                "apiserver_cel_evaluation_duration_seconds",
                "Time to evaluate an expression.",
                &self.cel_evaluation,
            ),
        ] {
            text.head(name, help, "histogram");
            histogram.render(name, &[], text);
        }
        self.deprecated.render(text);
        self.pod_security.render(text);
        self.credentials.render(text);
    }
}

fn compress(user: &str) -> &str {
    match user {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => user,
        _ => "other",
    }
}
