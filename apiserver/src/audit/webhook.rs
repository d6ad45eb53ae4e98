//! Events that are posted to somebody else, as upstream's `--audit-webhook-*`.

use super::sink::Mode;
use super::truncate::{Truncation, fitting};
use crate::metrics::Counter;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Attempts for one batch, and by how much the pause between them grows: upstream's.
const ATTEMPTS: u32 = 5;
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;
/// How long the end of the process waits for what is left.
const LAST_WITHIN: Duration = Duration::from_secs(5);

/// Whoever takes events.
pub trait Collector: Send + Sync + 'static {
    /// Posts an `EventList` of `audit.k8s.io/v1` in JSON; the error says why it was not taken. Bounds its own time.
    fn post(&self, list: Bytes) -> BoxFuture<'_, Result<(), String>>;
}

/// Batches that are sent at most: so many a second, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    pub per_second: f64,
    pub burst: u32,
}

/// The defaults are upstream's.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub mode: Mode,
    /// The pause after the first attempt that failed.
    pub initial_backoff: Duration,
    /// Events that may wait; beyond, they are lost and counted.
    pub buffer: usize,
    pub batch: usize,
    /// How long an event waits for others at most.
    pub max_wait: Duration,
    pub throttle: Option<Throttle>,
    pub truncation: Option<Truncation>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Batch,
            initial_backoff: Duration::from_secs(10),
            buffer: 10_000,
            batch: 400,
            max_wait: Duration::from_secs(30),
            throttle: Some(Throttle { per_second: 10.0, burst: 15 }),
            truncation: None,
        }
    }
}

/// In the blocking modes a request waits until its arrival was taken. Its later events go through the queue in every
/// mode, because by then its answer is on its way.
pub struct Webhook {
    settings: Settings,
    post: Arc<Post>,
    /// `None` after the end.
    way: Mutex<Option<Way>>,
}

/// To the task that sends, and the task.
type Way = (Sender<Vec<u8>>, JoinHandle<()>);

impl Webhook {
    /// Starts the task that sends.
    pub fn start(settings: Settings, collector: impl Collector) -> Self {
        let (queue, events) = channel(settings.buffer.max(1));
        let post = Arc::new(Post {
            collector: Box::new(collector),
            initial_backoff: settings.initial_backoff,
            lost: Counter::default(),
            failing: AtomicBool::new(false),
        });
        let task = tokio::spawn(run(events, settings.clone(), post.clone()));
        Self { settings, post, way: Mutex::new(Some((queue, task))) }
    }

    pub(super) fn lost(&self) -> u64 {
        self.post.lost.get()
    }

    /// Puts an event into the queue.
    pub(super) fn write(&self, event: &Value) {
        let taken = fitting(event, self.settings.truncation).is_some_and(|line| {
            self.way.lock().as_ref().is_some_and(|(queue, _)| queue.try_send(line).is_ok())
        });
        if !taken {
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
        let way = self.way.lock().take();
        let Some((queue, mut task)) = way else { return };
        drop(queue);
        match tokio::time::timeout(LAST_WITHIN, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the task that posts audit events failed"),
            Err(_) => {
                task.abort();
                tracing::error!("audit events were left unsent at the end");
            }
        }
    }
}

async fn run(mut events: Receiver<Vec<u8>>, settings: Settings, post: Arc<Post>) {
    let mut bucket = settings.throttle.map(Bucket::new);
    let most = settings.batch.max(1);
    while let Some(first) = events.recv().await {
        let mut batch = vec![first];
        let until = Instant::now() + settings.max_wait;
        while batch.len() < most {
            let room = most - batch.len();
            match tokio::time::timeout_at(until, events.recv_many(&mut batch, room)).await {
                Ok(count) if count > 0 => {}
                // Late, or the end.
                _ => break,
            }
        }
        for part in parts(&batch, settings.truncation.map(|t| t.max_batch_bytes)) {
            if let Some(bucket) = &mut bucket {
                bucket.take().await;
            }
            post.send(part).await;
        }
    }
}

/// Parts of a batch that are no larger than allowed.
fn parts(batch: &[Vec<u8>], most: Option<usize>) -> Vec<&[Vec<u8>]> {
    let Some(most) = most else { return vec![batch] };
    let (mut all, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, event) in batch.iter().enumerate() {
        if at > begin && bytes + event.len() > most {
            all.push(&batch[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += event.len();
    }
    all.push(&batch[begin..]);
    all
}

/// What is left to send at once, and when that was so.
struct Bucket {
    throttle: Throttle,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new(throttle: Throttle) -> Self {
        Self { throttle, tokens: f64::from(throttle.burst), at: Instant::now() }
    }

    async fn take(&mut self) {
        let now = Instant::now();
        let gained = (now - self.at).as_secs_f64() * self.throttle.per_second;
        self.tokens = (self.tokens + gained).min(f64::from(self.throttle.burst)) - 1.0;
        self.at = now;
        if self.tokens < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.tokens / self.throttle.per_second)).await;
        }
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

fn list(lines: &[Vec<u8>]) -> Bytes {
    let mut list = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    list.extend(lines.join(&b','));
    list.extend(b"]}");
    list.into()
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
