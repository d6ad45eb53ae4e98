//! How probes have ended.

use super::Page;
use crate::probe::counts;
use axum::body::Body;
use http::Response;

pub(in crate::server) fn probes() -> Response<Body> {
    let mut page = Page::default();
    let name = "prober_probe_total";
    let help = "Cumulative number of a liveness, readiness or startup probe for a container by result.";
    page.family(name, "counter", help);
    for (of, count) in counts::all() {
        let labels = [
            ("container", &*of.container),
            ("namespace", &*of.namespace),
            ("pod", &*of.pod),
            ("pod_uid", &*of.pod_uid),
            ("probe_type", of.kind.title()),
            ("result", of.result),
        ];
        page.value(name, &labels, count);
    }
    page.respond()
}
