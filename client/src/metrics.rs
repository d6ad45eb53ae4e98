//! What work queues and clients of this process count, under upstream's names (`workqueue_*`, `rest_client_*`).
//!
//! Whoever serves a metrics page has [`render`] write all of it there.

use coracle_metrics::{Counter, Family, Histogram, Text};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Upstream's buckets of queues, in seconds: powers of ten from ten nanoseconds.
const QUEUE_SECONDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];
/// Upstream's buckets of requests, in seconds.
const REQUEST_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Where requests of this process go: upstream has the server's address there.
const HOST: &str = "in-process";

/// How much work is under way in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub depth: usize,
    /// The time that all keys being worked on have taken so far, and the longest of those.
    pub unfinished: Duration,
    pub longest: Duration,
}

type CurrentLoad = Box<dyn Fn() -> Load + Send>;

/// The figures of all queues of one name; a controller that is started again goes on with them.
pub(crate) struct QueueMetrics {
    adds: Arc<Counter>,
    retries: Arc<Counter>,
    waited: Arc<Histogram>,
    worked: Arc<Histogram>,
}

impl QueueMetrics {
    pub fn added(&self) {
        self.adds.add(1);
    }

    pub fn retried(&self) {
        self.retries.add(1);
    }

    /// How long a key waited before somebody took it.
    pub fn taken(&self, waited: Duration) {
        self.waited.observe(waited);
    }

    pub fn done(&self, worked: Duration) {
        self.worked.observe(worked);
    }
}

struct All {
    adds: Family<Counter>,
    retries: Family<Counter>,
    waited: Family<Histogram>,
    worked: Family<Histogram>,
    /// By the queue's name.
    loads: Mutex<BTreeMap<&'static str, CurrentLoad>>,
    requests: Family<Counter>,
    request_durations: Family<Histogram>,
    unreadable: Family<Counter>,
}

impl Default for All {
    fn default() -> Self {
        let counter = |name, help, labels| Family::new(name, help, labels, Counter::default);
        let queue_histogram =
            |name, help| Family::new(name, help, &["name"], || Histogram::new(QUEUE_SECONDS));
        Self {
            adds: counter("workqueue_adds_total", "Keys added to a work queue.", &["name"]),
            retries: counter("workqueue_retries_total", "Keys added again after a failure.", &["name"]),
            waited: queue_histogram(
                "workqueue_queue_duration_seconds",
                "Time from adding a key until somebody takes it.",
            ),
            worked: queue_histogram("workqueue_work_duration_seconds", "Time of the work on a key."),
            loads: Mutex::default(),
            requests: counter(
                "rest_client_requests_total",
                "Requests of this process' own clients.",
                &["code", "host", "method"],
            ),
            request_durations: Family::new(
                "rest_client_request_duration_seconds",
                "Time of the requests of this process' own clients, to the head of the answer.",
                &["host", "verb"],
                || Histogram::new(REQUEST_SECONDS),
            ),
            unreadable: counter(
                "coracle_unreadable_objects_total",
                "Objects that a watch brought and that could not be read.",
                &["resource"],
            ),
        }
    }
}

/// Of the process, as client-go's are: queues, folds and clients are made in some sixty places by whoever needs one, told apart
/// by name, and asked about by one page. Handed in, they would be an argument of every controller and every follower.
static ALL: LazyLock<All> = LazyLock::new(All::default);

/// The figures under this name; `load` tells of the newest queue that has it.
pub(crate) fn queue(name: &'static str, load: impl Fn() -> Load + Send + 'static) -> QueueMetrics {
    ALL.loads.lock().insert(name, Box::new(load));
    let name = [name];
    QueueMetrics {
        adds: ALL.adds.handle(&name),
        retries: ALL.retries.handle(&name),
        waited: ALL.waited.handle(&name),
        worked: ALL.worked.handle(&name),
    }
}

fn known(method: &http::Method) -> &'static str {
    const METHODS: [&str; 6] = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"];
    METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// A request was answered, as far as its head; `code` is 0 where there was no answer.
pub(crate) fn requested(method: &http::Method, code: u16, duration: Duration) {
    let method = known(method);
    let code = http::StatusCode::from_u16(code);
    let code = code.as_ref().map_or("<error>", http::StatusCode::as_str);
    ALL.requests.with(&[code, HOST, method], |counter| counter.add(1));
    ALL.request_durations.with(&[HOST, method], |histogram| histogram.observe(duration));
}

/// An object of this resource came by a watch and could not be read.
pub(crate) fn unreadable(resource: &str) {
    ALL.unreadable.with(&[resource], |counter| counter.add(1));
}

/// Writes everything.
pub fn render(text: &mut Text) {
    ALL.adds.render(text);
    ALL.retries.render(text);
    render_loads(text);
    ALL.waited.render(text);
    ALL.worked.render(text);
    ALL.requests.render(text);
    ALL.request_durations.render(text);
    ALL.unreadable.render_with_head(text);
}

fn render_loads(text: &mut Text) {
    let loads: Vec<(&str, Load)> = ALL.loads.lock().iter().map(|(name, load)| (*name, load())).collect();
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Load) -> f64| {
        text.head(name, help, "gauge");
        for (queue, load) in &loads {
            text.sample(name, &[("name", queue)], value(load));
        }
    };
    #[allow(clippy::cast_precision_loss, reason = "so many keys no queue holds")]
    gauge("workqueue_depth", "Keys that wait at this moment.", &|load| load.depth as f64);
    let help = "Time that the keys being worked on have taken so far.";
    gauge("workqueue_unfinished_work_seconds", help, &|load| load.unfinished.as_secs_f64());
    let help = "Time that the key being worked on the longest has taken so far.";
    gauge("workqueue_longest_running_processor_seconds", help, &|load| load.longest.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::WorkQueue;

    fn rendered() -> String {
        let mut text = Text::default();
        render(&mut text);
        text.finish()
    }

    #[tokio::test(start_paused = true)]
    async fn queues_tell_how_much_they_do() {
        let queue = WorkQueue::named("metrics-test");
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let key = queue.next().await;
        queue.retry(key);
        tokio::time::advance(Duration::from_secs(3)).await;
        let page = rendered();
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
        let page = rendered();
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
        let page = rendered();
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
