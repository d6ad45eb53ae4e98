//! `/livez`, `/readyz` and `/healthz`: one registry that every component of the process reports to.
//!
//! See <https://kubernetes.io/docs/reference/using-api/health-checks/>.

use crate::http::Reply;
use crate::metrics;
use crate::registry::Query;
use http::StatusCode;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
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
const STARTED: [&str; 27] = [
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
const LOADED: [&str; 2] = ["etcd-readiness", "informer-sync"];

/// Cloning shares the registry.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
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
        let _ = self.all("livez", &Query::new(None));
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

    /// Answers `/livez`, `/readyz`, `/healthz` and `/<one of them>/<check>`; `None` for other paths.
    pub fn answer(&self, path: &str, query: &Query) -> Option<Reply> {
        let mut parts = path.trim_start_matches('/').trim_end_matches('/').splitn(2, '/');
        let probe = parts.next()?;
        if !matches!(probe, "livez" | "readyz" | "healthz") {
            return None;
        }
        match parts.next() {
            None => Some(self.all(probe, query)),
            Some(name) => self.one(probe, name),
        }
    }

    fn one(&self, probe: &str, name: &str) -> Option<Reply> {
        if name == "ping" {
            return Some(Reply::text(StatusCode::OK, "ok"));
        }
        let check = self.checks.lock().get(name).cloned()?;
        metrics::global().health_check(name, probe, check.failure.is_none());
        Some(match check.failure {
            None => Reply::text(StatusCode::OK, "ok"),
            Some(why) => {
                Reply::text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
            }
        })
    }

    fn all(&self, probe: &str, query: &Query) -> Reply {
        let mut excluded = query.all("exclude");
        let asked = excluded.len();
        excluded.retain(|name| *name != "ping");
        let ping = if excluded.len() < asked { "[+]ping excluded: ok\n" } else { "[+]ping ok\n" };
        let (mut text, mut failed) = (ping.to_owned(), false);
        metrics::global().health_check("ping", probe, true);
        for (name, check) in self.checks.lock().iter() {
            if probe != "readyz" && check.matters == Matters::Ready {
                continue;
            }
            let asked = excluded.len();
            excluded.retain(|other| other != name);
            let line = if excluded.len() < asked {
                writeln!(text, "[+]{name} excluded: ok")
            } else {
                metrics::global().health_check(name, probe, check.failure.is_none());
                failed |= check.failure.is_some();
                match check.failure {
                    None => writeln!(text, "[+]{name} ok"),
                    Some(_) => writeln!(text, "[-]{name} failed: reason withheld"),
                }
            };
            // Writing to a String cannot fail.
            let _ = line;
        }
        if !excluded.is_empty() {
            let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let _ = writeln!(
                text,
                "warn: some health checks cannot be excluded: no matches for {}",
                names.join(", ")
            );
        }
        if failed {
            return Reply::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{probe} check failed\n"));
        }
        if query.flag("verbose").unwrap_or(false) {
            return Reply::text(StatusCode::OK, format!("{text}{probe} check passed\n"));
        }
        Reply::text(StatusCode::OK, "ok")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Content;

    fn ask(health: &Health, uri: &str) -> Option<(u16, String)> {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let reply = health.answer(path, &Query::new(Some(query)))?;
        let Content::Text(_, bytes) = reply.content else { panic!("no text") };
        Some((reply.status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap()))
    }

    #[test]
    fn a_started_server_has_upstreams_checks() {
        let health = Health::default();
        assert_eq!(ask(&health, "/livez/etcd"), None, "not started");
        health.started();
        let (_, alive) = ask(&health, "/livez?verbose=1").unwrap();
        let (_, ready) = ask(&health, "/readyz?verbose").unwrap();
        assert_eq!(ask(&health, "/healthz?verbose=1").unwrap().1, alive.replace("livez", "healthz"));
        let line = |name: &str| format!("[+]{name} ok\n");
        for name in STARTED {
            assert!(alive.contains(&line(name)) && ready.contains(&line(name)), "{name}");
        }
        for name in LOADED {
            assert!(!alive.contains(&line(name)) && ready.contains(&line(name)), "{name}");
        }
        assert_eq!(ask(&health, "/readyz/poststarthook/rbac/bootstrap-roles").unwrap(), (200, "ok".into()));
        let (_, text) = ask(&health, "/livez?verbose&exclude=etcd&exclude=ping").unwrap();
        assert!(text.contains("[+]etcd excluded: ok\n") && text.contains("[+]ping excluded: ok\n"), "{text}");
    }

    #[test]
    fn readiness_is_stricter_than_liveness() {
        let health = Health::default();
        health.report("kubelet", Matters::Ready, Err("no runtime".into()));
        health.report("store", Matters::Alive, Ok(()));
        assert_eq!(ask(&health, "/livez").unwrap(), (200, "ok".into()));
        let (code, text) = ask(&health, "/readyz").unwrap();
        assert_eq!(code, 500);
        assert_eq!(
            text,
            "[+]ping ok\n[-]kubelet failed: reason withheld\n[+]store ok\nreadyz check failed\n"
        );
        assert_eq!(ask(&health, "/readyz?exclude=kubelet").unwrap().0, 200);
        assert_eq!(ask(&health, "/readyz/store").unwrap().0, 200);
        assert_eq!(ask(&health, "/livez/kubelet").unwrap().0, 500);
        assert_eq!(ask(&health, "/livez/nothing"), None);
        let text = ask(&health, "/readyz?verbose&exclude=kubelet&exclude=moon").unwrap().1;
        assert!(text.contains("[+]kubelet excluded: ok\n"), "{text}");
        assert!(
            text.contains("warn: some health checks cannot be excluded: no matches for \"moon\"\n"),
            "{text}"
        );
        health.report("kubelet", Matters::Ready, Ok(()));
        assert!(ask(&health, "/readyz?verbose").unwrap().1.ends_with("readyz check passed\n"));
        assert_eq!(ask(&health, "/version"), None);
    }
}
