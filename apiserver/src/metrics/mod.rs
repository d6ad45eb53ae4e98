//! What the server counts, under the names that Kubernetes gives it
//! (<https://kubernetes.io/docs/reference/instrumentation/metrics/>).

mod family;
mod process;
mod text;

pub use family::{Counter, Family, Gauge, Histogram, Metric};
pub use text::{CONTENT_TYPE, Text};

use crate::store::SledStore;
use parking_lot::RwLock;
use std::sync::{LazyLock, Weak};
use std::time::Duration;

/// Upstream's buckets of request durations, in seconds.
const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// How a request is counted. Verbs are upstream's: GET, LIST, WATCH, CREATE, POST, UPDATE, PATCH, DELETE,
/// DELETECOLLECTION, CONNECT.
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

/// Bounded by priority: whether a request changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    Mutating,
    ReadOnly,
}

impl RequestKind {
    fn label(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::ReadOnly => "readOnly",
        }
    }
}

type Collector = Box<dyn Fn(&mut Text) + Send + Sync>;

/// One server's metrics.
pub struct Metrics {
    requests: Family<Counter>,
    durations: Family<Histogram>,
    in_flight: Family<Gauge>,
    watch_events: Family<Counter>,
    store_requests: Family<Histogram>,
    objects: Family<Gauge>,
    collectors: RwLock<Vec<Collector>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::new(
                "apiserver_request_total",
                "Requests by verb, resource and response code.",
                &[
                    "verb",
                    "group",
                    "version",
                    "resource",
                    "subresource",
                    "scope",
                    "component",
                    "code",
                    "dry_run",
                ],
                Counter::default,
            ),
            durations: Family::new(
                "apiserver_request_duration_seconds",
                "Time from a request to its response, by verb and resource; watches are not in it.",
                &["verb", "group", "version", "resource", "subresource", "scope", "component", "dry_run"],
                || Histogram::new(SECONDS),
            ),
            in_flight: Family::new(
                "apiserver_current_inflight_requests",
                "Requests being served at this moment.",
                &["request_kind"],
                Gauge::default,
            ),
            watch_events: Family::new(
                "apiserver_watch_events_total",
                "Events sent to watchers.",
                &["group", "version", "resource"],
                Counter::default,
            ),
            store_requests: Family::new(
                "etcd_request_duration_seconds",
                "Time that the store takes, by operation and resource, whatever the backend is.",
                &["operation", "group", "resource"],
                || Histogram::new(SECONDS),
            ),
            objects: Family::new(
                "apiserver_storage_objects",
                "Objects in the store, by resource.",
                &["resource"],
                Gauge::default,
            ),
            collectors: RwLock::default(),
        }
    }
}

impl Metrics {
    /// A request was answered. `code` is the HTTP status; watches pass no duration.
    pub fn request(&self, request: Request<'_>, code: http::StatusCode, duration: Option<Duration>) {
        let Request { verb, group, version, resource, subresource, scope, component, dry_run } = request;
        let labels = [verb, group, version, resource, subresource, scope, component, code.as_str(), dry_run];
        self.requests.with(&labels, |counter| counter.add(1));
        if let Some(duration) = duration {
            let labels = [verb, group, version, resource, subresource, scope, component, dry_run];
            self.durations.with(&labels, |histogram| histogram.observe(duration));
        }
    }

    /// Counts a request as being served until the guard is dropped.
    pub fn in_flight(&self, kind: RequestKind) -> InFlight<'_> {
        self.in_flight.with(&[kind.label()], |gauge| gauge.add(1));
        InFlight { metrics: self, kind }
    }

    pub fn watch_events(&self, group: &str, version: &str, resource: &str, count: u64) {
        self.watch_events.with(&[group, version, resource], |counter| counter.add(count));
    }

    /// The store answered. Operations are etcd's as upstream names them: get, list, create, update, delete.
    pub fn store_request(&self, operation: &str, group: &str, resource: &str, duration: Duration) {
        self.store_requests.with(&[operation, group, resource], |histogram| histogram.observe(duration));
    }

    /// `resource` as upstream writes it: the plural, and the group behind a dot if there is one.
    pub fn objects(&self, resource: &str, count: usize) {
        self.objects.with(&[resource], |gauge| gauge.set(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    /// Adds something that writes its figures at the time they are asked for.
    pub fn collect(&self, collector: impl Fn(&mut Text) + Send + Sync + 'static) {
        self.collectors.write().push(Box::new(collector));
    }

    /// Shows what the embedded store tells of itself, as long as it lives.
    pub fn collect_store(&self, store: Weak<SledStore>) {
        self.collect(move |text| {
            if let Some(store) = store.upgrade() {
                render_store(&store, text);
            }
        });
    }

    /// Everything, in Prometheus' text format ([`CONTENT_TYPE`]).
    pub fn render(&self) -> String {
        let mut text = Text::default();
        self.requests.render(&mut text);
        self.durations.render(&mut text);
        self.in_flight.render(&mut text);
        self.watch_events.render(&mut text);
        self.store_requests.render(&mut text);
        self.objects.render(&mut text);
        for collector in &*self.collectors.read() {
            collector(&mut text);
        }
        process::render(&mut text);
        text.finish()
    }
}

/// A request being served.
pub struct InFlight<'a> {
    metrics: &'a Metrics,
    kind: RequestKind,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.with(&[self.kind.label()], |gauge| gauge.add(-1));
    }
}

fn render_store(store: &SledStore, text: &mut Text) {
    use crate::store::Store;
    let report = store.report();
    let counters = [
        ("coracle_store_commits_total", "Transactions committed.", report.commits),
        ("coracle_store_groups_total", "Durable groups, each one sync of the journal.", report.groups),
        ("coracle_store_journal_bytes_total", "Bytes written to the journal.", report.journal_bytes_written),
        ("coracle_store_checkpoints_total", "Checkpoints written to sled.", report.checkpoints),
        ("coracle_store_checkpoint_failures_total", "Checkpoints that failed.", report.checkpoint_failures),
        ("coracle_store_snapshots_total", "Snapshots written.", report.snapshots),
    ];
    for (name, help, value) in counters {
        text.single(name, help, "counter", value);
    }
    let errors = report.incidents.iter().filter(|incident| incident.kind.is_error()).count() as u64;
    let gauges = [
        ("coracle_store_objects", "Keys in the store.", report.objects),
        (
            "coracle_store_history_revisions",
            "Commits that watches can resume from.",
            report.history_revisions,
        ),
        ("coracle_store_live_bytes", "Keys and values at the last checkpoint.", report.live_bytes),
        ("coracle_store_sled_bytes", "sled's files at the last checkpoint.", report.tree_bytes),
        ("coracle_store_incidents", "Damage, failures and refusals since the start.", errors),
        ("coracle_store_read_only", "1 while writes are refused.", u64::from(store.read_only().is_some())),
    ];
    for (name, help, value) in gauges {
        text.single(name, help, "gauge", value);
    }
}

static PROCESS: LazyLock<Metrics> = LazyLock::new(Metrics::default);

/// The metrics of the process's own server. Tests with several servers in one process give each its own.
pub fn global() -> &'static Metrics {
    &PROCESS
}

/// The page of [`global`].
pub fn render() -> String {
    PROCESS.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(page: &str, prefix: &str) -> Vec<String> {
        page.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
    }

    #[test]
    fn requests_are_counted_by_labels() {
        let metrics = Metrics::default();
        let get = Request {
            verb: "GET",
            version: "v1",
            resource: "pods",
            scope: "resource",
            component: "apiserver",
            ..Request::default()
        };
        for _ in 0..2 {
            metrics.request(get, http::StatusCode::OK, Some(Duration::from_millis(30)));
        }
        metrics.request(get, http::StatusCode::NOT_FOUND, Some(Duration::from_secs(90)));
        metrics.request(Request { verb: "WATCH", ..get }, http::StatusCode::OK, None);
        let page = metrics.render();
        let labels =
            r#"group="",version="v1",resource="pods",subresource="",scope="resource",component="apiserver""#;
        let totals = [
            format!(r#"apiserver_request_total{{verb="GET",{labels},code="200",dry_run=""}} 2"#),
            format!(r#"apiserver_request_total{{verb="GET",{labels},code="404",dry_run=""}} 1"#),
            format!(r#"apiserver_request_total{{verb="WATCH",{labels},code="200",dry_run=""}} 1"#),
        ];
        assert_eq!(samples(&page, "apiserver_request_total{"), totals);
        let duration =
            format!(r#"apiserver_request_duration_seconds_bucket{{verb="GET",{labels},dry_run="",le="#);
        let buckets = samples(&page, &duration);
        assert_eq!(buckets.len(), SECONDS.len() + 1);
        assert!(
            buckets[1].ends_with(r#"le="0.025"} 0"#) && buckets[2].ends_with(r#"le="0.05"} 2"#),
            "{buckets:?}"
        );
        assert!(
            buckets[22].ends_with(r#"le="60"} 2"#) && buckets[23].ends_with(r#"le="+Inf"} 3"#),
            "{buckets:?}"
        );
        assert!(samples(&page, "apiserver_request_duration_seconds_sum")[0].ends_with(" 90.06"));
    }

    #[test]
    fn requests_in_flight_come_and_go() {
        let metrics = Metrics::default();
        let line = |metrics: &Metrics| samples(&metrics.render(), "apiserver_current_inflight_requests{");
        let first = metrics.in_flight(RequestKind::Mutating);
        let second = metrics.in_flight(RequestKind::Mutating);
        assert_eq!(line(&metrics), [r#"apiserver_current_inflight_requests{request_kind="mutating"} 2"#]);
        drop((first, second));
        assert_eq!(line(&metrics), [r#"apiserver_current_inflight_requests{request_kind="mutating"} 0"#]);
    }

    /// Every family shows up once something is recorded in it.
    #[test]
    fn every_metric_is_rendered() {
        let dir = tempfile::TempDir::new().unwrap();
        let store = SledStore::open(dir.path(), Default::default()).unwrap();
        let metrics = Metrics::default();
        metrics.request(Request::default(), http::StatusCode::OK, Some(Duration::ZERO));
        drop(metrics.in_flight(RequestKind::ReadOnly));
        metrics.watch_events("apps", "v1", "deployments", 3);
        metrics.store_request("get", "", "pods", Duration::from_millis(1));
        metrics.objects("pods", 7);
        metrics.collect_store(std::sync::Arc::downgrade(&store));
        let page = metrics.render();
        for name in [
            "apiserver_request_total{",
            "apiserver_request_duration_seconds_count{",
            r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#,
            r#"apiserver_watch_events_total{group="apps",version="v1",resource="deployments"} 3"#,
            r#"etcd_request_duration_seconds_count{operation="get",group="",resource="pods"} 1"#,
            r#"apiserver_storage_objects{resource="pods"} 7"#,
            "coracle_store_commits_total 0",
            "coracle_store_read_only 0",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_virtual_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
            "process_start_time_seconds ",
        ] {
            assert_eq!(samples(&page, name).len(), 1, "{name}\n{page}");
        }
        drop(store);
        assert!(samples(&metrics.render(), "coracle_store").is_empty(), "it does not keep the store open");
    }

    #[test]
    fn a_label_without_bounds_is_bounded() {
        let metrics = Metrics::default();
        for index in 0..10_050 {
            metrics.objects(&index.to_string(), 1);
        }
        assert_eq!(samples(&metrics.render(), "apiserver_storage_objects{").len(), 10_001);
    }
}
