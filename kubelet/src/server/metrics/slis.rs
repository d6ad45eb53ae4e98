//! `/metrics/slis`: the health checks that objectives of service are made of, and how often each was asked (KEP-3466).

use super::respond;
use crate::metrics::HealthChecks;
use axum::body::Body;
use coracle_metrics::Text;
use http::Response;

pub(in crate::server) fn objectives(checks: &HealthChecks) -> Response<Body> {
    let mut page = Text::default();
    let name = "kubernetes_healthcheck";
    page.head(name, "This metric records the result of a single healthcheck.", "gauge");
    for (check, _) in checks.all() {
        page.sample(name, &[("name", check), ("type", "healthz")], 1);
    }
    let name = "kubernetes_healthchecks_total";
    page.head(name, "This metric records the results of all healthcheck.", "counter");
    for (check, asked) in checks.all() {
        let labels = [("name", check), ("status", "success"), ("type", "healthz")];
        page.sample(name, &labels, asked);
    }
    respond(page)
}
