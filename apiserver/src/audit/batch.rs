//! Events that wait for others and are then taken together: the modes `batch` of the log and of the webhook.

use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long the end of the process waits for what is left.
const LAST_WITHIN: Duration = Duration::from_secs(5);

/// Batches that are taken at most: so many a second, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    pub per_second: f64,
    pub burst: u32,
}

/// Upstream's `--audit-log-batch-*` and `--audit-webhook-batch-*`.
#[derive(Clone, Debug, PartialEq)]
pub struct Batching {
    /// Events that may wait; beyond, they are lost and counted.
    pub buffer: usize,
    /// Events that are taken together at most.
    pub batch: usize,
    /// How long an event waits for others at most.
    pub max_wait: Duration,
    pub throttle: Option<Throttle>,
}

impl Batching {
    /// Upstream's defaults for the log: each event at once.
    pub fn of_log() -> Self {
        Self { buffer: 10_000, batch: 1, max_wait: Duration::ZERO, throttle: None }
    }

    /// Upstream's defaults for the webhook.
    pub fn of_webhook() -> Self {
        Self {
            buffer: 10_000,
            batch: 400,
            max_wait: Duration::from_secs(30),
            throttle: Some(Throttle { per_second: 10.0, burst: 15 }),
        }
    }
}

/// Whoever takes batches, one at a time.
pub(super) trait Taker: Send + Sync + 'static {
    /// Counts by itself what it loses.
    fn take<'a>(&'a self, batch: &'a [Vec<u8>]) -> BoxFuture<'a, ()>;
}

/// To the task that hands batches on, and the task.
type Way = (Sender<Vec<u8>>, JoinHandle<()>);

/// A bounded queue before a [`Taker`].
pub(super) struct Queue {
    /// `None` after the end.
    way: Mutex<Option<Way>>,
}

impl Queue {
    /// Starts the task that hands batches on; those larger than `max_bytes` are divided.
    pub fn start(batching: Batching, max_bytes: Option<usize>, taker: Arc<dyn Taker>) -> Self {
        let (queue, events) = channel(batching.buffer.max(1));
        let task = tokio::spawn(run(events, batching, max_bytes, taker));
        Self { way: Mutex::new(Some((queue, task))) }
    }

    /// Whether there was room for it.
    pub fn offer(&self, event: Vec<u8>) -> bool {
        self.way.lock().as_ref().is_some_and(|(queue, _)| queue.try_send(event).is_ok())
    }

    /// Hands on what is in the queue, within a few seconds; nothing is taken any more.
    pub async fn close(&self) {
        let way = self.way.lock().take();
        let Some((queue, mut task)) = way else { return };
        drop(queue);
        match tokio::time::timeout(LAST_WITHIN, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the task that hands audit events on failed"),
            Err(_) => {
                task.abort();
                tracing::error!("audit events were left in the queue at the end");
            }
        }
    }
}

async fn run(
    mut events: Receiver<Vec<u8>>,
    batching: Batching,
    max_bytes: Option<usize>,
    taker: Arc<dyn Taker>,
) {
    let mut bucket = batching.throttle.map(Bucket::new);
    let most = batching.batch.max(1);
    while let Some(first) = events.recv().await {
        let mut batch = vec![first];
        let until = Instant::now() + batching.max_wait;
        while batch.len() < most {
            let room = most - batch.len();
            match tokio::time::timeout_at(until, events.recv_many(&mut batch, room)).await {
                Ok(count) if count > 0 => {}
                // Late, or the end.
                _ => break,
            }
        }
        for part in parts(&batch, max_bytes) {
            if let Some(bucket) = &mut bucket {
                bucket.take().await;
            }
            taker.take(part).await;
        }
    }
}

/// Parts of a batch that are no larger than allowed.
pub(super) fn parts(batch: &[Vec<u8>], most: Option<usize>) -> Vec<&[Vec<u8>]> {
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

/// What is left to take at once, and when that was so.
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
