//! What work queues and clients of this process count, under upstream's names (`workqueue_*`, `rest_client_*`).
//!
//! [`render`] writes all of it in Prometheus' text format; whoever serves a metrics page adds that to it.

pub mod families;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Upstream's buckets of queues, in seconds: powers of ten from ten nanoseconds.
const QUEUE_SECONDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];
/// Upstream's buckets of requests, in seconds.
const REQUEST_SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Where requests of this process go: upstream has the server's address there.
const HOST: &str = "in-process";

/// Durations in buckets.
struct Durations<const N: usize> {
    bounds: &'static [f64; N],
    buckets: [AtomicU64; N],
    above: AtomicU64,
    sum_nanos: AtomicU64,
}

impl<const N: usize> Durations<N> {
    fn new(bounds: &'static [f64; N]) -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { bounds, buckets, above: AtomicU64::new(0), sum_nanos: AtomicU64::new(0) }
    }

    fn observe(&self, duration: Duration) {
        let at = self.bounds.partition_point(|bound| *bound < duration.as_secs_f64());
        self.buckets.get(at).unwrap_or(&self.above).fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// `labels` without braces.
    fn render(&self, name: &str, labels: &str, page: &mut String) {
        let mut total = 0;
        for (bound, held) in self.bounds.iter().zip(&self.buckets) {
            total += held.load(Relaxed);
            line(page, format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {total}"));
        }
        total += self.above.load(Relaxed);
        line(page, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {total}"));
        let sum = Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64();
        line(page, format_args!("{name}_sum{{{labels}}} {sum}"));
        line(page, format_args!("{name}_count{{{labels}}} {total}"));
    }
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{text}");
}

fn head(page: &mut String, name: &str, help: &str, kind: &str) {
    line(page, format_args!("# HELP {name} [ALPHA] {help}\n# TYPE {name} {kind}"));
}

/// How much work is under way in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub depth: usize,
    /// The time that all keys being worked on have taken so far, and the longest of those.
    pub unfinished: Duration,
    pub longest: Duration,
}

/// The figures of all queues of one name; a controller that is started again goes on with them.
pub(crate) struct QueueMetrics {
    adds: AtomicU64,
    retries: AtomicU64,
    waited: Durations<10>,
    worked: Durations<10>,
    load: Mutex<Box<dyn Fn() -> Load + Send>>,
}

impl QueueMetrics {
    fn new() -> Self {
        Self {
            adds: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            waited: Durations::new(&QUEUE_SECONDS),
            worked: Durations::new(&QUEUE_SECONDS),
            load: Mutex::new(Box::new(Load::default)),
        }
    }

    pub fn added(&self) {
        self.adds.fetch_add(1, Relaxed);
    }

    pub fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// How long a key waited before somebody took it.
    pub fn taken(&self, waited: Duration) {
        self.waited.observe(waited);
    }

    pub fn done(&self, worked: Duration) {
        self.worked.observe(worked);
    }
}

/// The figures under this name; `load` tells of the newest queue that has it.
pub(crate) fn queue(name: &'static str, load: impl Fn() -> Load + Send + 'static) -> Arc<QueueMetrics> {
    let metrics = ALL.queues.lock().entry(name).or_insert_with(|| Arc::new(QueueMetrics::new())).clone();
    *metrics.load.lock() = Box::new(load);
    metrics
}

/// Of requests with one method.
struct Requests {
    codes: BTreeMap<u16, u64>,
    durations: Durations<12>,
}

#[derive(Default)]
struct All {
    queues: Mutex<BTreeMap<&'static str, Arc<QueueMetrics>>>,
    requests: Mutex<BTreeMap<&'static str, Requests>>,
    /// By resource.
    unreadable: Mutex<BTreeMap<String, u64>>,
}

static ALL: LazyLock<All> = LazyLock::new(All::default);

fn known(method: &http::Method) -> &'static str {
    const METHODS: [&str; 6] = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"];
    METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// A request was answered, as far as its head; `code` is 0 where there was no answer.
pub(crate) fn requested(method: &http::Method, code: u16, duration: Duration) {
    let mut all = ALL.requests.lock();
    let new = || Requests { codes: BTreeMap::new(), durations: Durations::new(&REQUEST_SECONDS) };
    let requests = all.entry(known(method)).or_insert_with(new);
    *requests.codes.entry(code).or_default() += 1;
    requests.durations.observe(duration);
}

/// An object of this resource came by a watch and could not be read.
pub(crate) fn unreadable(resource: &str) {
    let mut all = ALL.unreadable.lock();
    match all.get_mut(resource) {
        Some(count) => *count += 1,
        None => drop(all.insert(resource.to_owned(), 1)),
    }
}

/// Everything, in Prometheus' text format.
pub fn render() -> String {
    let mut page = String::new();
    render_queues(&mut page);
    render_requests(&mut page);
    render_unreadable(&mut page);
    page
}

fn render_queues(page: &mut String) {
    let queues = ALL.queues.lock().clone();
    let loads: Vec<Load> = queues.values().map(|q| q.load.lock()()).collect();
    let mut single = |name: &str, help: &str, kind: &str, value: &dyn Fn(&QueueMetrics, &Load) -> String| {
        head(page, name, help, kind);
        for ((queue, metrics), load) in queues.iter().zip(&loads) {
            line(page, format_args!("{name}{{name=\"{queue}\"}} {}", value(metrics, load)));
        }
    };
    let text = |seconds: Duration| seconds.as_secs_f64().to_string();
    single("workqueue_adds_total", "Keys added to a work queue.", "counter", &|q, _| {
        q.adds.load(Relaxed).to_string()
    });
    single("workqueue_retries_total", "Keys added again after a failure.", "counter", &|q, _| {
        q.retries.load(Relaxed).to_string()
    });
    single("workqueue_depth", "Keys that wait at this moment.", "gauge", &|_, l| l.depth.to_string());
    let help = "Time that the keys being worked on have taken so far.";
    single("workqueue_unfinished_work_seconds", help, "gauge", &|_, l| text(l.unfinished));
    let help = "Time that the key being worked on the longest has taken so far.";
    single("workqueue_longest_running_processor_seconds", help, "gauge", &|_, l| text(l.longest));
    let name = "workqueue_queue_duration_seconds";
    head(page, name, "Time from adding a key until somebody takes it.", "histogram");
    for (queue, metrics) in &queues {
        metrics.waited.render(name, &format!("name=\"{queue}\""), page);
    }
    let name = "workqueue_work_duration_seconds";
    head(page, name, "Time of the work on a key.", "histogram");
    for (queue, metrics) in &queues {
        metrics.worked.render(name, &format!("name=\"{queue}\""), page);
    }
}

fn render_requests(page: &mut String) {
    let all = ALL.requests.lock();
    let name = "rest_client_requests_total";
    head(page, name, "Requests of this process' own clients.", "counter");
    for (method, requests) in all.iter() {
        for (code, count) in &requests.codes {
            let code = if *code == 0 { "<error>".to_owned() } else { code.to_string() };
            let labels = format!("code=\"{code}\",host=\"{HOST}\",method=\"{method}\"");
            line(page, format_args!("{name}{{{labels}}} {count}"));
        }
    }
    let name = "rest_client_request_duration_seconds";
    head(
        page,
        name,
        "Time of the requests of this process' own clients, to the head of the answer.",
        "histogram",
    );
    for (method, requests) in all.iter() {
        requests.durations.render(name, &format!("host=\"{HOST}\",verb=\"{method}\""), page);
    }
}

fn render_unreadable(page: &mut String) {
    let name = "coracle_unreadable_objects_total";
    head(page, name, "Objects that a watch brought and that could not be read.", "counter");
    for (resource, count) in ALL.unreadable.lock().iter() {
        line(page, format_args!("{name}{{resource=\"{resource}\"}} {count}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::WorkQueue;

    #[tokio::test(start_paused = true)]
    async fn queues_tell_how_much_they_do() {
        let queue = WorkQueue::named("metrics-test");
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let key = queue.next().await;
        queue.retry(key);
        tokio::time::advance(Duration::from_secs(3)).await;
        let page = render();
        for sample in [
            "workqueue_adds_total{name=\"metrics-test\"} 2",
            "workqueue_retries_total{name=\"metrics-test\"} 1",
            "workqueue_depth{name=\"metrics-test\"} 1",
            "workqueue_unfinished_work_seconds{name=\"metrics-test\"} 3",
            "workqueue_longest_running_processor_seconds{name=\"metrics-test\"} 3",
            "workqueue_queue_duration_seconds_count{name=\"metrics-test\"} 1",
            "workqueue_work_duration_seconds_count{name=\"metrics-test\"} 0",
        ] {
            assert!(page.lines().any(|line| line == sample), "{sample}\n{page}");
        }
        queue.done(&key);
        drop(queue);
        let page = render();
        assert!(
            page.contains("workqueue_work_duration_seconds_bucket{name=\"metrics-test\",le=\"10\"} 1"),
            "{page}"
        );
        assert!(page.contains("workqueue_depth{name=\"metrics-test\"} 0"), "gone with the queue: {page}");
    }

    #[test]
    fn requests_are_counted_by_method_and_code() {
        requested(&http::Method::HEAD, 200, Duration::from_millis(7));
        requested(&http::Method::HEAD, 0, Duration::from_secs(90));
        let page = render();
        for sample in [
            "rest_client_requests_total{code=\"200\",host=\"in-process\",method=\"HEAD\"} 1",
            "rest_client_requests_total{code=\"<error>\",host=\"in-process\",method=\"HEAD\"} 1",
            "rest_client_request_duration_seconds_bucket{host=\"in-process\",verb=\"HEAD\",le=\"0.005\"} 0",
            "rest_client_request_duration_seconds_bucket{host=\"in-process\",verb=\"HEAD\",le=\"60\"} 1",
            "rest_client_request_duration_seconds_bucket{host=\"in-process\",verb=\"HEAD\",le=\"+Inf\"} 2",
        ] {
            assert!(page.lines().any(|line| line == sample), "{sample}\n{page}");
        }
    }
}
