//! What the server counts, under the names that Kubernetes gives it
//! (<https://kubernetes.io/docs/reference/instrumentation/metrics/>).

mod access;
mod build;
mod cached;
mod descriptors;
mod gone;
mod process;
mod requests;
mod security;
#[cfg(test)]
mod tests;

pub use cached::Figures;
pub use coracle_metrics::{CONTENT_TYPE, Counter, Family, Gauge, Histogram, Metric, Text, stability};
pub use process::process_started;
pub use requests::{Answered, Request};

use access::Access;
use parking_lot::RwLock;
use requests::{Requests, SECONDS};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Upstream's buckets of watch events, in bytes.
const EVENT_BYTES: &[f64] = &[1024.0, 2048.0, 4096.0, 8192.0, 16_384.0, 32_768.0, 65_536.0, 131_072.0];

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

/// The figures of the watches of one resource.
#[derive(Clone)]
pub struct WatchMetrics {
    events: Arc<Counter>,
    bytes: Arc<Histogram>,
}

impl WatchMetrics {
    /// An event of so many bytes is sent to a watcher.
    pub fn sent(&self, bytes: usize) {
        self.events.add(1);
        self.bytes.observe_number(bytes as u64);
    }
}

type Collector = Box<dyn Fn(&mut Text) + Send + Sync>;

/// One server's metrics.
pub struct Metrics {
    requests: Requests,
    access: Access,
    /// Reads, then writes.
    in_flight: [Arc<Gauge>; 2],
    watch_events: Family<Counter>,
    watch_event_bytes: Family<Histogram>,
    store_requests: Family<Histogram>,
    objects: Family<Gauge>,
    resource_objects: Family<Gauge>,
    collectors: RwLock<BTreeMap<String, Collector>>,
    /// By their paths.
    pages: RwLock<BTreeMap<&'static str, Collector>>,
    gone: gone::Gone,
    cache: cached::Cached,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Requests::default(),
            access: Access::default(),
            in_flight: Default::default(),
            watch_events: Family::new(
                "apiserver_watch_events_total",
                "Events sent to watchers.",
                &["group", "version", "resource"],
                Counter::default,
            ),
            watch_event_bytes: Family::new(
                "apiserver_watch_events_sizes",
                "Bytes of the events sent to watchers.",
                &["group", "version", "resource"],
                || Histogram::new(EVENT_BYTES),
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
            resource_objects: Family::new(
                "apiserver_resource_objects",
                "Objects of each resource in the store.",
                &["group", "resource"],
                Gauge::default,
            ),
            collectors: RwLock::default(),
            pages: RwLock::default(),
            gone: gone::Gone::default(),
            cache: cached::Cached::default(),
        }
    }
}

impl Metrics {
    /// A request was answered to the end.
    pub fn answered(&self, request: Request<'_>, answered: Answered) {
        self.requests.answered(request, answered);
    }

    /// A client did not wait for its answer.
    pub fn aborted(&self, request: Request<'_>) {
        self.requests.aborted(request);
    }

    /// A watch or a stream began (1) or ended (-1).
    pub fn lasting(&self, request: Request<'_>, by: i64) {
        self.requests.lasting(request, by);
    }

    /// Counts a request as being served until the guard is dropped.
    pub fn in_flight(&self, kind: RequestKind) -> InFlight {
        let gauge = self.in_flight[kind as usize].clone();
        gauge.add(1);
        InFlight { gauge }
    }

    /// Authentication took so long; `None` where nobody was found.
    pub fn authenticated(&self, user: Option<&str>, duration: Duration) {
        self.access.authenticated(user, duration);
    }

    pub fn authorized(&self, allowed: bool, duration: Duration) {
        self.access.authorized(allowed, duration);
    }

    /// One admission plugin was asked. Operations are upstream's (`CREATE`, `UPDATE`, `DELETE`, `CONNECT`), types
    /// `admit` and `validate`.
    pub fn admission_plugin(
        &self,
        name: &str,
        operation: &str,
        kind: &str,
        rejected: bool,
        duration: Duration,
    ) {
        self.access.plugin(name, operation, kind, rejected, duration);
    }

    /// Where [`admission_plugin`](Self::admission_plugin) counts what was not rejected, for who counts often.
    pub fn admission_plugin_times(&self, name: &str, operation: &str, kind: &str) -> Arc<Histogram> {
        self.access.plugin_times(name, operation, kind)
    }

    /// All plugins of a type were asked.
    pub fn admission_step(&self, operation: &str, kind: &str, rejected: bool, duration: Duration) {
        self.access.step(operation, kind, rejected, duration);
    }

    /// One admission webhook was called, or not reached. Types and operations as those of plugins.
    pub fn admission_webhook(
        &self,
        name: &str,
        operation: &str,
        kind: &str,
        rejected: bool,
        duration: Duration,
    ) {
        self.access.webhook(name, operation, kind, rejected, duration);
    }

    /// An admission webhook was called; `code` is its answer's status, 0 where there is none.
    pub fn webhook_answered(&self, name: &str, operation: &str, kind: &str, rejected: bool, code: u16) {
        self.access.webhook_answered(name, operation, kind, rejected, code);
    }

    /// Match conditions kept a request from an admission webhook.
    pub fn webhook_excluded(&self, name: &str, operation: &str, kind: &str) {
        self.access.webhook_excluded(name, operation, kind);
    }

    /// A match condition of an admission webhook could not be evaluated.
    pub fn webhook_condition_failed(&self, name: &str, operation: &str, kind: &str) {
        self.access.webhook_condition_failed(name, operation, kind);
    }

    /// A webhook could not be asked, and its failure policy let the request through.
    pub fn webhook_failed_open(&self, name: &str, kind: &str) {
        self.access.failed_open(name, kind);
    }

    /// A webhook refused the request, or failed where its policy is to refuse. Error types are upstream's:
    /// `no_error`, `calling_webhook_error`, `apiserver_internal_error`.
    pub fn webhook_rejected(&self, name: &str, operation: &str, kind: &str, error_type: &str, code: u16) {
        self.access.rejected(name, operation, kind, error_type, code);
    }

    /// An expression of CEL was compiled.
    pub fn cel_compiled(&self, duration: Duration) {
        self.access.cel_compilation.observe(duration);
    }

    /// An expression of CEL was evaluated.
    pub fn cel_evaluated(&self, duration: Duration) {
        self.access.cel_evaluation.observe(duration);
    }

    /// A validating policy was asked about a request. Actions are upstream's: `deny`, `warn`, `audit`, `allow`; error
    /// types `no_error`, `compile_error`, `invalid_expression_error`, `out_of_budget`.
    pub fn policy_checked(
        &self,
        policy: &str,
        binding: &str,
        action: &str,
        error_type: &str,
        duration: Duration,
    ) {
        self.access.policy(policy, binding, action, error_type, duration);
    }

    /// A pod, or what makes pods, was judged by the Pod Security Standards. Labels: `allow` or `deny`, level, version,
    /// mode, operation in lower case, `pod` or `controller`, subresource.
    pub fn pod_security(&self, labels: [&str; 7]) {
        self.access.pod_security.judged(labels);
    }

    /// A request was exempt from them. Labels: operation, `pod` or `controller`, subresource.
    pub fn pod_security_exempt(&self, labels: [&str; 3]) {
        self.access.pod_security.exempt(labels);
    }

    /// A namespace's labels could not be read. Labels as those of exemptions.
    pub fn pod_security_error(&self, labels: [&str; 3]) {
        self.access.pod_security.failed(labels);
    }

    /// A pod's token was checked; `stale` past the time at which it was to be renewed.
    pub fn pod_token(&self, stale: bool) {
        self.access.credentials.pod_token(stale);
    }

    /// A client did not finish its TLS handshake.
    pub fn handshake_failed(&self) {
        self.access.credentials.handshake_failed();
    }

    /// A connection was ended from this side; `reason` is of a small set.
    pub fn connection_ended(&self, reason: &str) {
        self.access.credentials.connection_ended(reason);
    }

    /// Somebody authenticated by a certificate that is good for so long yet; once a connection.
    pub fn certificate_left(&self, left: Duration) {
        self.access.credentials.certificate_left(left);
    }

    /// A request for a certificate with a duration has got one; `honored` with about that duration. `signer` is
    /// Kubernetes' own, or `other`.
    pub fn certificate_issued(&self, signer: &str, honored: bool) {
        self.access.credentials.certificate_issued(signer, honored);
    }

    /// Somebody asked for a resource that is deprecated.
    pub fn deprecated(&self, group: &str, version: &str, resource: &str, subresource: &str) {
        self.access.deprecated(group, version, resource, subresource);
    }

    /// What one watch counts in, so that its events look up no labels.
    pub fn watching(&self, group: &str, version: &str, resource: &str) -> WatchMetrics {
        let labels = [group, version, resource];
        WatchMetrics {
            events: self.watch_events.handle(&labels),
            bytes: self.watch_event_bytes.handle(&labels),
        }
    }

    /// The store answered. Operations are etcd's as upstream names them: get, list, create, update, delete.
    pub fn store_request(&self, operation: &str, group: &str, resource: &str, duration: Duration) {
        self.store_requests.with(&[operation, group, resource], |histogram| histogram.observe(duration));
    }

    /// `resource` as upstream writes it: the plural, and the group behind a dot if there is one.
    pub fn objects(&self, resource: &str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.objects.with(&[resource], |gauge| gauge.set(count));
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        self.resource_objects.with(&[group, plural], |gauge| gauge.set(count));
    }

    /// What the watch cache holds is told anew, resource by resource: of those that are not named it holds nothing.
    pub fn begin_cached(&self) {
        let gauges = self.cache.all().into_iter().chain([&self.objects, &self.resource_objects]);
        gauges.for_each(|family| family.each(|_, gauge| gauge.set(0)));
    }

    /// What the watch cache holds of a resource, named as for [`objects`](Self::objects).
    pub fn cached(&self, resource: &str, figures: Figures) {
        self.objects(resource, figures.objects);
        self.cache.set(resource, figures);
    }

    /// A resource, `<plural>.<group>`, is served no more: nothing is told of it any longer.
    pub fn resource_gone(&self, resource: &str) {
        let name = gone::Name::of(resource);
        self.drop_resources(std::slice::from_ref(&name));
        self.gone.add(name, Instant::now());
    }

    /// A resource that may have gone before is served.
    pub fn resource_served(&self, resource: &str) {
        self.gone.remove(&gone::Name::of(resource));
    }

    fn drop_resources(&self, gone: &[gone::Name]) {
        if gone.is_empty() {
            return;
        }
        self.requests.drop_resources(gone);
        gone::drop_from(&self.watch_events, (0, 2), gone);
        gone::drop_from(&self.watch_event_bytes, (0, 2), gone);
        gone::drop_from(&self.store_requests, (1, 2), gone);
        gone::drop_from(&self.resource_objects, (0, 1), gone);
        let is_kept = |values: &[Box<str>]| !gone.contains(&gone::Name::of(&values[0]));
        self.objects.retain(is_kept);
        self.cache.retain(is_kept);
    }

    /// Adds something that writes its figures at the time they are asked for.
    pub fn collect(&self, collector: impl Fn(&mut Text) + Send + Sync + 'static) {
        let mut all = self.collectors.write();
        let name = format!("{:08}", all.len());
        all.insert(name, Box::new(collector));
    }

    /// As [`collect`](Self::collect), in the place of an earlier one of that name.
    pub fn collect_as(&self, name: &str, collector: impl Fn(&mut Text) + Send + Sync + 'static) {
        self.collectors.write().insert(name.to_owned(), Box::new(collector));
    }

    /// Serves a page of its own, beside `/metrics`, whose figures are written when somebody asks for them.
    pub fn serve_at(&self, path: &'static str, write: impl Fn(&mut Text) + Send + Sync + 'static) {
        self.pages.write().insert(path, Box::new(write));
    }

    /// The page that is served at this path.
    pub fn page(&self, path: &str) -> Option<String> {
        let pages = self.pages.read();
        let mut text = Text::default();
        pages.get(path)?(&mut text);
        Some(text.finish())
    }

    /// The paths of all such pages.
    pub fn page_paths(&self) -> Vec<&'static str> {
        self.pages.read().keys().copied().collect()
    }

    /// Everything, in Prometheus' text format ([`CONTENT_TYPE`]).
    pub fn render(&self) -> String {
        self.drop_resources(&self.gone.names(Instant::now()));
        let mut text = Text::default();
        self.requests.render(&mut text);
        let name = "apiserver_current_inflight_requests";
        text.head(name, "Requests being served at this moment.", "gauge");
        for kind in [RequestKind::Mutating, RequestKind::ReadOnly] {
            text.sample(name, &[("request_kind", kind.label())], self.in_flight[kind as usize].get());
        }
        self.access.render(&mut text);
        self.watch_events.render(&mut text);
        self.watch_event_bytes.render(&mut text);
        self.store_requests.render(&mut text);
        self.objects.render(&mut text);
        self.resource_objects.render(&mut text);
        self.cache.render(&mut text);
        build::render(&mut text);
        for collector in self.collectors.read().values() {
            collector(&mut text);
        }
        process::render(&mut text);
        stability::render(&mut text);
        text.finish()
    }
}

/// A request being served.
pub struct InFlight {
    gauge: Arc<Gauge>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.gauge.add(-1);
    }
}

/// What any server of this process tells of it: its resources, what it is a build of, and its clients' requests.
pub fn render_process(clients: impl Fn(&mut Text)) -> String {
    let mut text = Text::default();
    build::render(&mut text);
    clients(&mut text);
    process::render(&mut text);
    text.finish()
}
