//! Events that are posted to somebody else, as upstream's `--audit-webhook-*`.

use super::batch::{Batching, LAST_BATCH_TIMEOUT, Queue, Taker, Waiting};
use super::sink::Mode;
use super::truncate::{Truncation, fitting};
use bytes::Bytes;
use coracle_component_base::metrics::Counter;
use futures::future::BoxFuture;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Attempts for one batch, and by how much the pause between them grows: upstream's.
const ATTEMPTS: u32 = 5;
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// Whoever takes events.
pub trait Collector: Send + Sync + 'static {
    /// Posts an `EventList` of `audit.k8s.io/v1` in JSON; the error says why it was not taken. Bounds its own time.
    fn post(&self, list: Bytes) -> BoxFuture<'_, Result<(), String>>;
}

/// The defaults are upstream's.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub mode: Mode,
    /// The pause after the first attempt that failed.
    pub initial_backoff: Duration,
    pub batching: Batching,
    pub truncation: Option<Truncation>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Batch,
            initial_backoff: Duration::from_secs(10),
            batching: Batching::of_webhook(),
            truncation: None,
        }
    }
}

/// In the blocking modes a request waits until its arrival was taken. Its later events go through the queue in every
/// mode, because by then its answer is on its way.
pub struct Webhook {
    settings: Settings,
    post: Arc<Post>,
    queue: Queue,
}

impl Webhook {
    /// Starts the task that sends.
    pub fn start(settings: Settings, collector: impl Collector) -> Self {
        let post = Arc::new(Post {
            collector: Box::new(collector),
            initial_backoff: settings.initial_backoff,
            lost: Counter::default(),
            failing: AtomicBool::new(false),
        });
        let max_bytes = settings.truncation.map(|t| t.max_batch_bytes);
        let queue = Queue::start(settings.batching.clone(), max_bytes, post.clone());
        Self { settings, post, queue }
    }

    pub(super) fn lost(&self) -> u64 {
        self.post.lost.get()
    }

    /// Puts an event into the queue.
    pub(super) fn write(&self, event: &Value) {
        let line = fitting(event, self.settings.truncation);
        if !line.is_some_and(|line| self.queue.offer(line)) {
            self.post.lost.add(1);
        }
    }

    /// Likewise, or waits until it was taken, as the mode says. Whether the request may go on.
    pub(super) async fn write_first(&self, event: &Value) -> bool {
        if self.settings.mode == Mode::Batch {
            self.write(event);
            return true;
        }
        let taken = match fitting(event, self.settings.truncation) {
            Some(line) => self.post.send(&[line]).await,
            None => {
                self.post.lost.add(1);
                false
            }
        };
        taken || self.settings.mode != Mode::BlockingStrict
    }

    /// Sends what is in the queue, within a few seconds; later events are lost.
    pub(super) async fn close(&self) {
        self.queue.close(Instant::now() + LAST_BATCH_TIMEOUT).await;
    }
}

struct Post {
    collector: Box<dyn Collector>,
    initial_backoff: Duration,
    lost: Counter,
    /// Failures are logged once, not for every batch.
    failing: AtomicBool,
}

impl Post {
    /// Tries a few times, whatever the error, as upstream: hardly any is a reason to lose events.
    async fn send(&self, lines: &[Vec<u8>]) -> bool {
        let list = list(lines);
        let mut pause = self.initial_backoff;
        for attempt in 1..=ATTEMPTS {
            let Err(error) = self.collector.post(list.clone()).await else {
                self.failing.store(false, Ordering::Relaxed);
                return true;
            };
            if !self.failing.swap(true, Ordering::Relaxed) {
                tracing::error!(error, "posting audit events");
            }
            if attempt < ATTEMPTS {
                tokio::time::sleep(pause.mul_f64(1.0 + rand::random::<f64>() * JITTER)).await;
                pause = pause.mul_f64(GROWTH);
            }
        }
        self.lost.add(lines.len() as u64);
        false
    }
}

impl Taker for Post {
    fn take(&self, batch: Vec<Vec<u8>>, waiting: Arc<Waiting>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.send(&batch).await;
            waiting.settle(batch.len() as u64);
        })
    }

    fn lose(&self, count: u64) {
        self.lost.add(count);
    }
}

fn list(lines: &[Vec<u8>]) -> Bytes {
    let mut list = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    list.extend(lines.join(&b','));
    list.extend(b"]}");
    list.into()
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
