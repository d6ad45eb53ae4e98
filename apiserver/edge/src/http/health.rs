//! `/livez`, `/readyz` and `/healthz`: what the registry of health checks says, in upstream's words.
//!
//! See <https://kubernetes.io/docs/reference/using-api/health-checks/>.

use super::Reply;
use coracle_component_base::health::{Health, Outcome};
use coracle_registry::Query;
use http::StatusCode;
use std::fmt::Write;

/// Answers `/livez`, `/readyz`, `/healthz` and `/<one of them>/<check>`; `None` for other paths.
pub fn answer(health: &Health, path: &str, query: &Query) -> Option<Reply> {
    let mut parts = path.trim_start_matches('/').trim_end_matches('/').splitn(2, '/');
    let probe = parts.next()?;
    if !matches!(probe, "livez" | "readyz" | "healthz") {
        return None;
    }
    match parts.next() {
        None => Some(all_checks(health, probe, query)),
        Some(name) => one_check(health, probe, name),
    }
}

fn one_check(health: &Health, probe: &str, name: &str) -> Option<Reply> {
    if name == "ping" {
        return Some(Reply::text(StatusCode::OK, "ok"));
    }
    Some(match health.check(probe, name)? {
        Ok(()) => Reply::text(StatusCode::OK, "ok"),
        Err(why) => Reply::text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")),
    })
}

fn all_checks(health: &Health, probe: &str, query: &Query) -> Reply {
    let excluded = query.all("exclude");
    let outcomes = health.examine(probe, |name| excluded.contains(&name));
    let mut text: String = outcomes.iter().map(|(name, outcome)| line(name, *outcome)).collect();
    let known = |name: &str| outcomes.iter().any(|(known, _)| known == name);
    let unknown: Vec<String> =
        excluded.iter().filter(|name| !known(name)).map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    if outcomes.iter().any(|(_, outcome)| *outcome == Outcome::Failed) {
        return Reply::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{probe} check failed\n"));
    }
    if query.flag("verbose").unwrap_or(false) {
        return Reply::text(StatusCode::OK, format!("{text}{probe} check passed\n"));
    }
    Reply::text(StatusCode::OK, "ok")
}

fn line(name: &str, outcome: Outcome) -> String {
    match outcome {
        Outcome::Passed => format!("[+]{name} ok\n"),
        Outcome::Failed => format!("[-]{name} failed: reason withheld\n"),
        Outcome::Excluded => format!("[+]{name} excluded: ok\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Content;
    use super::*;
    use coracle_component_base::health::{LOADED, Matters, STARTED};

    fn ask(health: &Health, uri: &str) -> Option<(u16, String)> {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let reply = answer(health, path, &Query::new(Some(query)))?;
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
