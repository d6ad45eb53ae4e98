//! How probes have ended.

use super::respond;
use crate::metrics::probes::Counts;
use axum::body::Body;
use coracle_metrics::Text;
use http::Response;

pub(in crate::server) fn probes(counts: &Counts) -> Response<Body> {
    let mut page = Text::default();
    let name = "prober_probe_total";
    let help = "Cumulative number of a liveness, readiness or startup probe for a container by result.";
    page.head(name, help, "counter");
    for (of, count) in counts.all() {
        let labels = [
            ("container", &*of.container),
            ("namespace", &*of.namespace),
            ("pod", &*of.pod),
            ("pod_uid", &*of.pod_uid),
            ("probe_type", of.kind),
            ("result", of.result),
        ];
        page.sample(name, &labels, count);
    }
    counts.render_durations(&mut page);
    respond(page)
}
