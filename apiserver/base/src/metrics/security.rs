//! Figures of the Pod Security Standards, and of the credentials that clients show.

use coracle_metrics::Text;
use coracle_metrics::{Counter, Family, Histogram, Metric as _};
use std::time::Duration;

/// Upstream's buckets of what is left of client certificates: minutes, hours, days, months, a year; in seconds.
const CERTIFICATE_SECONDS: &[f64] = &[
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

pub(super) struct PodSecurity {
    evaluations: Family<Counter>,
    exemptions: Family<Counter>,
    errors: Family<Counter>,
}

impl Default for PodSecurity {
    /// With the series that upstream shows from the start: a rate needs the zero before the first one.
    fn default() -> Self {
        let figures = Self::empty();
        for operation in ["create", "update"] {
            let labels = ["allow", "privileged", "latest", "enforce", operation, "pod", ""];
            figures.evaluations.with(&labels, |_| ());
            for resource in ["pod", "controller"] {
                figures.exemptions.with(&[operation, resource, ""], |_| ());
            }
        }
        figures
    }
}

impl PodSecurity {
    fn empty() -> Self {
        Self {
            evaluations: Family::new(
                "pod_security_evaluations_total",
                "Judgements of pods and of what makes pods by the Pod Security Standards.",
                &[
                    "decision",
                    "policy_level",
                    "policy_version",
                    "mode",
                    "request_operation",
                    "resource",
                    "subresource",
                ],
                Counter::default,
            ),
            exemptions: Family::new(
                "pod_security_exemptions_total",
                "Requests that the Pod Security Standards do not hold for.",
                &["request_operation", "resource", "subresource"],
                Counter::default,
            ),
            errors: Family::new(
                "pod_security_errors_total",
                "Requests in namespaces whose labels for the Pod Security Standards are wrong.",
                &["fatal", "request_operation", "resource", "subresource"],
                Counter::default,
            ),
        }
    }

    /// `labels` as those of `pod_security_evaluations_total`.
    pub(super) fn judged(&self, labels: [&str; 7]) {
        self.evaluations.with(&labels, |counter| counter.add(1));
    }

    pub(super) fn exempt(&self, labels: [&str; 3]) {
        self.exemptions.with(&labels, |counter| counter.add(1));
    }

    /// Never fatal: what cannot be read counts as the strictest.
    pub(super) fn failed(&self, [operation, resource, subresource]: [&str; 3]) {
        self.errors.with(&["false", operation, resource, subresource], |counter| counter.add(1));
    }

    pub(super) fn render(&self, text: &mut Text) {
        for family in [&self.evaluations, &self.exemptions, &self.errors] {
            family.render(text);
        }
    }
}

pub(super) struct Credentials {
    /// Tokens of pods within their time, and beyond it.
    pod_tokens: [Counter; 2],
    handshake_errors: Counter,
    ended: Family<Counter>,
    certificates: Histogram,
    /// Requests for a certificate with a duration that have got one, and those that got that duration.
    requested_durations: Family<Counter>,
    honored_durations: Family<Counter>,
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            pod_tokens: Default::default(),
            handshake_errors: Counter::default(),
            ended: Family::new(
                "coracle_apiserver_connections_ended_total",
                "Connections that the server ended, by what was wrong with them: idle, head (no whole request in its time), stuck (the client took nothing of its answers), flood, evicted or full (others needed the place).",
                &["reason"],
                Counter::default,
            ),
            certificates: Histogram::new(CERTIFICATE_SECONDS),
            requested_durations: Family::new(
                "apiserver_certificates_registry_csr_requested_duration_total",
                "Certificates that were issued to requests with a duration, by signer.",
                &["signerName"],
                Counter::default,
            ),
            honored_durations: Family::new(
                "apiserver_certificates_registry_csr_honored_duration_total",
                "Certificates that were issued with the duration that was asked for, by signer.",
                &["signerName"],
                Counter::default,
            ),
        }
    }
}

impl Credentials {
    pub(super) fn pod_token(&self, stale: bool) {
        self.pod_tokens[usize::from(stale)].add(1);
    }

    pub(super) fn handshake_failed(&self) {
        self.handshake_errors.add(1);
    }

    pub(super) fn connection_ended(&self, reason: &str) {
        self.ended.with(&[reason], |counter| counter.add(1));
    }

    pub(super) fn certificate_left(&self, left: Duration) {
        self.certificates.observe(left);
    }

    pub(super) fn certificate_issued(&self, signer: &str, honored: bool) {
        self.requested_durations.with(&[signer], |counter| counter.add(1));
        if honored {
            self.honored_durations.with(&[signer], |counter| counter.add(1));
        }
    }

    pub(super) fn render(&self, text: &mut Text) {
        for (name, help, counter) in [
            (
                "serviceaccount_valid_tokens_total",
                "Tokens of pods that were used in their time.",
                &self.pod_tokens[0],
            ),
            (
                "serviceaccount_stale_tokens_total",
                "Tokens of pods that were used after they should have been renewed.",
                &self.pod_tokens[1],
            ),
            (
                "apiserver_tls_handshake_errors_total",
                "Connections that ended before their TLS handshake did.",
                &self.handshake_errors,
            ),
        ] {
            text.single(name, help, "counter", counter.get());
        }
        for family in [&self.ended, &self.requested_durations, &self.honored_durations] {
            family.render(text);
        }
        let name = "apiserver_client_certificate_expiration_seconds";
        text.head(name, "What was left of the time of client certificates, by connection.", "histogram");
        self.certificates.render(name, &[], text);
    }
}
