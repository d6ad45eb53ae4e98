//! Events that wait for others and are then taken together: the modes `batch` of the log and of the webhook.

use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long the end of the process waits for what is left; longer, and a disk or a collector that hangs would keep it.
pub(super) const LAST_BATCH_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// Settles every event, and counts by itself what it loses of those that it settled. Dropped where the end does not
    /// wait any longer: what goes on nevertheless stops before the next event that is not [`open`](Waiting::open).
    fn take(&self, batch: Vec<Vec<u8>>, waiting: Arc<Waiting>) -> BoxFuture<'_, ()>;
    /// Counts what it was not asked to take, or did not settle.
    fn lose(&self, count: u64);
}

/// Events that are in the queue or being taken. The end counts those that are left as lost, all at once; whoever holds one
/// of them learns it here.
#[derive(Debug, Default)]
pub(super) struct Waiting(AtomicU64);

impl Waiting {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an event that the caller holds is still to be taken; otherwise it counts as lost already.
    pub fn open(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Takes `count` events off those that wait, because they were written or lost. False if [`give_up`](Self::give_up) has
    /// counted them as lost already.
    pub fn settle(&self, count: u64) -> bool {
        let less = |waiting: u64| waiting.checked_sub(count);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// How many are left; none is open any more.
    pub fn give_up(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// The way to the task that hands batches on.
struct Way {
    events: Sender<Vec<u8>>,
    /// Nobody waits any more once this is dropped.
    open: watch::Sender<()>,
    task: JoinHandle<()>,
}

/// A bounded queue before a [`Taker`].
pub(super) struct Queue {
    /// `None` after the end.
    way: Mutex<Option<Way>>,
    taker: Arc<dyn Taker>,
    waiting: Arc<Waiting>,
}

impl Queue {
    /// Starts the task that hands batches on; those larger than `max_bytes` are divided.
    pub fn start(batching: Batching, max_bytes: Option<usize>, taker: Arc<dyn Taker>) -> Self {
        let (events, queued) = channel(batching.buffer.max(1));
        let (open, closing) = watch::channel(());
        let waiting = Arc::<Waiting>::default();
        let bucket = batching.throttle.map(Bucket::new);
        let run =
            Run { batching, max_bytes, bucket, closing, taker: taker.clone(), waiting: waiting.clone() };
        let task = tokio::spawn(run.run(queued));
        Self { way: Mutex::new(Some(Way { events, open, task })), taker, waiting }
    }

    /// Whether there was room for it.
    pub fn offer(&self, event: Vec<u8>) -> bool {
        let way = self.way.lock();
        let Some(Ok(room)) = way.as_ref().map(|way| way.events.try_reserve()) else { return false };
        self.waiting.add();
        room.send(event);
        true
    }

    /// Hands on what is in the queue without further waiting; what cannot be by `until` is lost and counted. Nothing
    /// is taken any more.
    pub async fn close(&self, until: Instant) {
        let way = self.way.lock().take();
        let Some(Way { events, open, mut task }) = way else { return };
        drop((events, open));
        match tokio::time::timeout_at(until, &mut task).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::error!(%error, "the task that hands audit events on failed"),
            Err(_) => {
                task.abort();
                // Its end, so that it asks for nothing more.
                let _ = task.await;
            }
        }
        let left = self.waiting.give_up();
        tracing::error!(left, "audit events were lost at the end");
        self.taker.lose(left);
    }
}

/// The task that hands batches on.
struct Run {
    batching: Batching,
    max_bytes: Option<usize>,
    bucket: Option<Bucket>,
    closing: watch::Receiver<()>,
    taker: Arc<dyn Taker>,
    waiting: Arc<Waiting>,
}

impl Run {
    async fn run(mut self, mut events: Receiver<Vec<u8>>) {
        let most = self.batching.batch.max(1);
        while let Some(first) = events.recv().await {
            let mut batch = vec![first];
            self.gather(&mut batch, most, &mut events).await;
            for part in parts(batch, self.max_bytes) {
                self.hand_on(part).await;
            }
        }
    }

    /// Fills the batch with events until it has `most` or the longest wait of a batch is over; with a wait of zero it takes only
    /// events that are queued.
    async fn gather(&self, batch: &mut Vec<Vec<u8>>, most: usize, events: &mut Receiver<Vec<u8>>) {
        if self.batching.max_wait.is_zero() {
            while batch.len() < most
                && let Ok(event) = events.try_recv()
            {
                batch.push(event);
            }
            return;
        }
        let until = Instant::now() + self.batching.max_wait;
        while batch.len() < most {
            let room = most - batch.len();
            match tokio::time::timeout_at(until, events.recv_many(batch, room)).await {
                Ok(count) if count > 0 => {}
                // Late, or the end.
                _ => break,
            }
        }
    }

    /// As soon as the throttle allows it, at the end at once.
    async fn hand_on(&mut self, part: Vec<Vec<u8>>) {
        if let Some(bucket) = &mut self.bucket {
            tokio::select! {
                _ = self.closing.changed() => {}
                () = bucket.take() => {}
            }
        }
        self.taker.take(part, self.waiting.clone()).await;
    }
}

/// Parts of a batch that are no larger than allowed.
pub(super) fn parts(batch: Vec<Vec<u8>>, most: Option<usize>) -> Vec<Vec<Vec<u8>>> {
    let Some(most) = most else { return vec![batch] };
    let (mut all, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for event in batch {
        if !part.is_empty() && bytes + event.len() > most {
            all.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += event.len();
        part.push(event);
    }
    all.push(part);
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
