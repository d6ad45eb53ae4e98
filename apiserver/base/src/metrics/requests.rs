//! Requests: everything that one answer adds, found by one look at its labels.

use super::gone::{self, Name};
use coracle_metrics::Text;
use coracle_metrics::{Counter, Family, Gauge, Histogram, Metric};
use parking_lot::RwLock;
use std::time::Duration;

/// Upstream's buckets of request durations, in seconds.
pub(super) const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// Upstream's buckets of the durations that service level objectives are about.
const OBJECTIVE_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// Upstream's buckets of answers, in bytes.
const RESPONSE_BYTES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// How a request is counted. Verbs are upstream's: GET, LIST, WATCH, POST, PUT, PATCH, DELETE, DELETECOLLECTION,
/// CONNECT.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// `resource`, `namespace`, `cluster` or empty.
    pub scope: &'a str,
    /// Who serves it; `apiserver`.
    pub component: &'a str,
    /// `All` or empty.
    pub dry_run: &'a str,
}

impl<'a> Request<'a> {
    fn labels(&self) -> [&'a str; 8] {
        [
            self.verb,
            self.dry_run,
            self.group,
            self.version,
            self.resource,
            self.subresource,
            self.scope,
            self.component,
        ]
    }
}

/// How an answer was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered {
    pub code: u16,
    pub duration: Duration,
    /// Of the body, where it is known.
    pub bytes: Option<u64>,
}

/// All figures of the requests with the same labels.
struct Series {
    codes: RwLock<Vec<(u16, Counter)>>,
    durations: Histogram,
    objectives: Histogram,
    bytes: Histogram,
    lasting: Gauge,
    aborted: Counter,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            codes: RwLock::default(),
            durations: Histogram::new(SECONDS),
            objectives: Histogram::new(OBJECTIVE_SECONDS),
            bytes: Histogram::new(RESPONSE_BYTES),
            lasting: Gauge::default(),
            aborted: Counter::default(),
        }
    }
}

impl Series {
    fn count(&self, code: u16) {
        if let Some((_, counter)) = self.codes.read().iter().find(|(known, _)| *known == code) {
            return counter.add(1);
        }
        let mut codes = self.codes.write();
        let at = codes.iter().position(|(known, _)| *known == code).unwrap_or_else(|| {
            codes.push((code, Counter::default()));
            codes.len() - 1
        });
        codes[at].1.add(1);
    }
}

impl Metric for Series {
    /// The family is written by [`Requests::render`] instead.
    const KIND: &'static str = "untyped";

    fn render(&self, _name: &str, _labels: &[(&str, &str)], _text: &mut Text) {}
}

pub(super) struct Requests(Family<Series>);

const LABELS: &[&str] =
    &["verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"];

impl Default for Requests {
    fn default() -> Self {
        Self(Family::new("", "", LABELS, Series::default))
    }
}

impl Requests {
    pub(super) fn answered(&self, request: Request<'_>, answered: Answered) {
        let lasting = matches!(request.verb, "WATCH" | "CONNECT");
        self.0.with(&request.labels(), |series| {
            series.count(answered.code);
            series.durations.observe(answered.duration);
            if !lasting {
                series.objectives.observe(answered.duration);
            }
            if let Some(bytes) = answered.bytes
                && matches!(request.verb, "GET" | "LIST")
            {
                series.bytes.observe_number(bytes);
            }
        });
    }

    pub(super) fn lasting(&self, request: Request<'_>, by: i64) {
        self.0.with(&request.labels(), |series| series.lasting.add(by));
    }

    pub(super) fn aborted(&self, request: Request<'_>) {
        self.0.with(&request.labels(), |series| series.aborted.add(1));
    }

    pub(super) fn drop_resources(&self, gone: &[Name]) {
        gone::drop_from(&self.0, (2, 4), gone);
    }

    pub(super) fn render(&self, text: &mut Text) {
        let name = "apiserver_request_total";
        text.head(name, "Requests by verb, resource and response code.", "counter");
        self.0.each(|labels, series| {
            let mut codes: Vec<(u16, u64)> = series.codes.read().iter().map(|(c, n)| (*c, n.get())).collect();
            codes.sort_unstable();
            for (code, count) in codes {
                let code = code.to_string();
                let mut labels = labels.to_vec();
                labels.push(("code", &code));
                text.sample(name, &labels, count);
            }
        });
        let help = "Time from a request to the end of its response, by verb and resource.";
        self.histogram("apiserver_request_duration_seconds", help, text, |series| &series.durations, &[]);
        let help = "Time from a request to the end of its response, for service level objectives: without watches \
            and streams.";
        let objectives = "apiserver_request_sli_duration_seconds";
        self.histogram(objectives, help, text, |series| &series.objectives, &[]);
        let help = "Bytes of the answers to reads.";
        self.histogram("apiserver_response_sizes", help, text, |series| &series.bytes, &["dry_run"]);
        let name = "apiserver_request_aborts_total";
        text.head(name, "Requests whose clients did not wait for the answer.", "counter");
        self.0.each(|labels, series| {
            if series.aborted.get() > 0 {
                text.sample(name, &without(labels, &["dry_run", "component"]), series.aborted.get());
            }
        });
        let name = "apiserver_longrunning_requests";
        text.head(name, "Watches and streams at this moment.", "gauge");
        self.0.each(|labels, series| {
            if matches!(labels[0].1, "WATCH" | "CONNECT") {
                text.sample(name, &without(labels, &["dry_run"]), series.lasting.get());
            }
        });
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        text: &mut Text,
        pick: impl Fn(&Series) -> &Histogram,
        omit: &[&str],
    ) {
        text.head(name, help, "histogram");
        self.0.each(|labels, series| {
            let histogram = pick(series);
            if histogram.count() > 0 {
                histogram.render(name, &without(labels, omit), text);
            }
        });
    }
}

fn without<'a>(labels: &[(&'a str, &'a str)], omit: &[&str]) -> Vec<(&'a str, &'a str)> {
    labels.iter().filter(|(name, _)| !omit.contains(name)).copied().collect()
}
