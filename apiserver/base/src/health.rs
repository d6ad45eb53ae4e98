//! What `/livez`, `/readyz` and `/healthz` tell: one registry that every component of the process reports to.
//!
//! See <https://kubernetes.io/docs/reference/using-api/health-checks/>.

use crate::metrics::{Counter, Family, Gauge, Text};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which questions a check answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matters {
    /// Readiness only: a failure passes by itself.
    Ready,
    /// Liveness and readiness: a failure calls for a restart.
    Alive,
}

#[derive(Clone)]
struct Check {
    matters: Matters,
    /// Why it fails, if it does.
    failure: Option<String>,
}

/// Upstream's names of what this server has done before it answers anybody: read the store and its watch cache, made the
/// cluster's first objects, registered its own groups.
pub const STARTED: [&str; 27] = [
    "autoregister-completion",
    "etcd",
    "log",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-status-available-controller",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/bootstrap-controller",
    "poststarthook/crd-informer-synced",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/kube-apiserver-autoregistration",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/start-kube-apiserver-admission-initializer",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-system-namespaces-controller",
];

/// The same, which upstream asks of readiness alone.
pub const LOADED: [&str; 2] = ["etcd-readiness", "informer-sync"];

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    /// The client asked not to be told of it.
    Excluded,
}

/// Cloning shares the registry.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
    metrics: Arc<HealthMetrics>,
}

/// What the answers of the checks were, under upstream's names.
struct HealthMetrics {
    last: Family<Gauge>,
    answers: Family<Counter>,
}

impl Default for HealthMetrics {
    fn default() -> Self {
        Self {
            last: Family::new(
                "kubernetes_healthcheck",
                "1 for checks that succeeded the last time they were asked, else 0.",
                &["name", "type"],
                Gauge::default,
            ),
            answers: Family::new(
                "kubernetes_healthchecks_total",
                "Answers of the health checks.",
                &["name", "status", "type"],
                Counter::default,
            ),
        }
    }
}

impl HealthMetrics {
    fn answered(&self, name: &str, probe: &str, ok: bool) {
        self.last.with(&[name, probe], |gauge| gauge.set(ok.into()));
        let status = if ok { "success" } else { "error" };
        self.answers.with(&[name, status, probe], |counter| counter.add(1));
    }
}

impl Health {
    /// Reports the state of a check, which appears with its first report.
    pub fn report(&self, name: &str, matters: Matters, state: Result<(), String>) {
        self.checks.lock().insert(name.to_owned(), Check { matters, failure: state.err() });
    }

    /// To be called once the store is open, the watch cache loaded and the first objects made, before anybody is answered:
    /// from then on there are the checks that upstream has for this, and they succeed for as long as the process lives.
    pub fn started(&self) {
        for (names, matters) in [(&STARTED[..], Matters::Alive), (&LOADED[..], Matters::Ready)] {
            names.iter().for_each(|name| self.report(name, matters, Ok(())));
        }
        // Who reads the metrics alone learns of liveness too.
        let _ = self.examine("livez", |_| false);
    }

    pub fn forget(&self, name: &str) {
        self.checks.lock().remove(name);
    }

    /// What a check last reported; `None` if it never has.
    pub fn state(&self, name: &str) -> Option<Result<(), String>> {
        self.checks.lock().get(name).map(|check| check.failure.clone().map_or(Ok(()), Err))
    }

    /// Names of failing checks.
    pub fn failing(&self) -> Vec<String> {
        let checks = self.checks.lock();
        checks.iter().filter(|(_, c)| c.failure.is_some()).map(|(name, _)| name.clone()).collect()
    }

    /// What one check says now to `probe`; `None` if it never reported. Counts for the metrics of health.
    pub fn check(&self, probe: &str, name: &str) -> Option<Result<(), String>> {
        let state = self.state(name)?;
        self.metrics.answered(name, probe, state.is_ok());
        Some(state)
    }

    /// What all checks say now to `probe` (`livez`, `readyz` or `healthz`), in the order of their names after `ping`. Those
    /// that are `excluded` are not asked. Counts for the metrics of health.
    pub fn examine(&self, probe: &str, excluded: impl Fn(&str) -> bool) -> Vec<(String, Outcome)> {
        self.metrics.answered("ping", probe, true);
        let ping = if excluded("ping") { Outcome::Excluded } else { Outcome::Passed };
        let mut outcomes = vec![("ping".to_owned(), ping)];
        for (name, check) in self.checks.lock().iter() {
            if probe != "readyz" && check.matters == Matters::Ready {
                continue;
            }
            let outcome = match check.failure {
                _ if excluded(name) => Outcome::Excluded,
                None => Outcome::Passed,
                Some(_) => Outcome::Failed,
            };
            if outcome != Outcome::Excluded {
                self.metrics.answered(name, probe, outcome == Outcome::Passed);
            }
            outcomes.push((name.clone(), outcome));
        }
        outcomes
    }

    /// What the checks answered, in Prometheus' text format: the page of `/metrics/slis`.
    pub fn render_metrics(&self) -> String {
        let mut text = Text::default();
        self.metrics.last.render(&mut text);
        self.metrics.answers.render(&mut text);
        text.finish()
    }
}
