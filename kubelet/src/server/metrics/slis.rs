//! `/metrics/slis`: the health checks that objectives of service are made of, and how often each was asked (KEP-3466).

use super::respond;
use axum::body::Body;
use coracle_metrics::Text;
use http::Response;
use std::sync::atomic::{AtomicU64, Ordering};

/// The checks behind `/healthz`, by upstream's names. All three hold as long as this process answers at all.
const CHECKS: [&str; 3] = ["log", "ping", "syncloop"];

static ASKED: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

/// A check was asked at this path, cut at its slashes; the path of no single check asks them all.
pub(in crate::server) fn checked(path: &[&str]) {
    let alone = path.get(1).copied();
    for (name, asked) in CHECKS.iter().zip(&ASKED) {
        if alone.is_none_or(|wanted| wanted == *name) {
            asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(in crate::server) fn objectives() -> Response<Body> {
    let mut page = Text::default();
    let name = "kubernetes_healthcheck";
    page.head(name, "This metric records the result of a single healthcheck.", "gauge");
    for check in CHECKS {
        page.sample(name, &[("name", check), ("type", "healthz")], 1);
    }
    let name = "kubernetes_healthchecks_total";
    page.head(name, "This metric records the results of all healthcheck.", "counter");
    for (check, asked) in CHECKS.iter().zip(&ASKED) {
        let labels = [("name", *check), ("status", "success"), ("type", "healthz")];
        page.sample(name, &labels, asked.load(Ordering::Relaxed));
    }
    respond(page)
}
