//! Where events go: written at once, or by a task behind a bounded queue.

use super::batch::{Batching, LAST_BATCH_TIMEOUT, Queue, Taker, Waiting};
use super::rotate::{Rotating, Rotation};
use super::truncate::{Truncation, fitting};
use bytes::Bytes;
use coracle_api::{Object, yaml};
use coracle_component_base::metrics::Counter;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Upstream's `--audit-log-path`.
#[derive(Clone, Debug)]
pub enum Target {
    /// `-`
    StandardOutput,
    File(PathBuf, Rotation),
}

impl Target {
    pub fn new(path: &str, rotation: Rotation) -> Self {
        if path == "-" { Self::StandardOutput } else { Self::File(path.into(), rotation) }
    }
}

/// Upstream's `--audit-log-mode` and `--audit-webhook-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Others write; events are lost while they are too slow.
    Batch,
    /// An event is written before its request goes on; one that cannot be written is lost.
    #[default]
    Blocking,
    /// As `Blocking`, and a request whose arrival cannot be written is refused.
    BlockingStrict,
}

impl Mode {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "batch" => Some(Self::Batch),
            "blocking" => Some(Self::Blocking),
            "blocking-strict" => Some(Self::BlockingStrict),
            _ => None,
        }
    }
}

/// An event as it is written.
pub(super) fn line(event: &Value) -> Vec<u8> {
    let mut line = event.to_string().into_bytes();
    line.push(b'\n');
    line
}

enum Output {
    Standard(io::Stdout),
    File(Rotating),
}

impl Output {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.write_all(line),
            Self::File(file) => file.write(line),
        }
    }
}

/// Lines that the task writes at once at most where none is to wait for others: enough that handing them to another thread
/// costs little beside, few enough that those behind them keep their room in the queue.
const AT_ONCE: usize = 256;

/// Lines are written one by one, so nobody sees how many are taken together, unless a throttle counts the batches.
fn together(batching: Batching) -> Batching {
    if !batching.max_wait.is_zero() || batching.throttle.is_some() {
        return batching;
    }
    Batching { batch: batching.batch.max(AT_ONCE), ..batching }
}

/// Takes events; those that cannot be written are counted.
pub struct Sink {
    mode: Mode,
    /// Writes what is not to wait.
    writer: Arc<Writer>,
    /// In the mode `batch`.
    queue: Option<Queue>,
    truncation: Option<Truncation>,
}

impl Sink {
    /// As [`batching`](Self::batching) with upstream's defaults.
    pub fn open(target: Target, mode: Mode) -> io::Result<Self> {
        Self::batching(target, mode, Batching::of_log())
    }

    /// Fails if the file cannot be opened. In the mode `batch` a task begins that writes.
    pub fn batching(target: Target, mode: Mode, batching: Batching) -> io::Result<Self> {
        let output = match target {
            Target::StandardOutput => Output::Standard(io::stdout()),
            Target::File(path, rotation) => Output::File(Rotating::open(path, rotation)?),
        };
        let batching = together(batching);
        let state = Arc::new(Mutex::new(State { output: Some(output), failing: false }));
        let writer = Arc::new(Writer { state, lost: Arc::default() });
        let queue = (mode == Mode::Batch).then(|| Queue::start(batching, None, writer.clone()));
        Ok(Self { mode, writer, queue, truncation: None })
    }

    /// Events that are too large lose parts.
    #[must_use]
    pub fn truncating(self, truncation: Option<Truncation>) -> Self {
        Self { truncation, ..self }
    }

    pub fn lost(&self) -> u64 {
        self.writer.lost.get()
    }

    /// Writes the event of a request's arrival. Whether the request may go on.
    pub(super) fn write_first(&self, event: &Value) -> bool {
        self.write(event) || self.mode != Mode::BlockingStrict
    }

    /// Whether the event was taken.
    pub(super) fn write(&self, event: &Value) -> bool {
        let line = fitting(event, self.truncation);
        if let (Some(line), None) = (&line, &self.queue) {
            return self.writer.write(line);
        }
        let taken = line.zip(self.queue.as_ref()).is_some_and(|(line, queue)| queue.offer(line));
        if !taken {
            self.writer.lost.add(1);
        }
        taken
    }

    /// Writes what is in the queue; later events are lost. A disk that hangs holds it up for some seconds, not for good.
    pub async fn close(&self) {
        self.close_within(LAST_BATCH_TIMEOUT).await;
    }

    pub(super) async fn close_within(&self, limit: Duration) {
        let until = Instant::now() + limit;
        if let Some(queue) = &self.queue {
            queue.close(until).await;
        }
        let state = self.writer.state.clone();
        let closed = tokio::task::spawn_blocking(move || {
            state.try_lock_until(until.into_std()).map(|mut state| state.output = None).is_some()
        });
        if !closed.await.unwrap_or_default() {
            tracing::error!("the audit log was not closed: a write hangs");
        }
    }
}

struct Writer {
    /// Locked for as long as a write takes.
    state: Arc<Mutex<State>>,
    lost: Arc<Counter>,
}

struct State {
    /// `None` after the end.
    output: Option<Output>,
    /// Failures are logged once, not for every event.
    failing: bool,
}

impl Writer {
    fn write(&self, line: &[u8]) -> bool {
        let written = self.state.lock().write(line);
        self.lost.add(u64::from(!written));
        written
    }
}

impl State {
    fn write(&mut self, line: &[u8]) -> bool {
        let Some(outcome) = self.output.as_mut().map(|output| output.write(line)) else { return false };
        let was_failing = std::mem::replace(&mut self.failing, outcome.is_err());
        if let (Err(error), false) = (&outcome, was_failing) {
            tracing::error!(%error, "writing the audit log");
        }
        outcome.is_ok()
    }
}

/// Lines on their way to the file; those that nobody came to, because a write panicked, are lost.
struct Lines {
    left: VecDeque<Vec<u8>>,
    waiting: Arc<Waiting>,
    lost: Arc<Counter>,
}

impl Lines {
    /// One by one, so that a file that is full ends with a whole line. A write that hangs cannot be stopped, but none
    /// begins after the end gave the lines up.
    fn write(mut self, state: &Mutex<State>) {
        let mut state = state.lock();
        while let Some(line) = self.left.front()
            && self.waiting.open()
        {
            let written = state.write(line);
            self.left.pop_front();
            if self.waiting.settle(1) && !written {
                self.lost.add(1);
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let count = self.left.len() as u64;
        if self.waiting.settle(count) {
            self.lost.add(count);
        }
    }
}

impl Taker for Writer {
    /// A disk takes its time: not that of a thread which serves requests.
    fn take(&self, batch: Vec<Vec<u8>>, waiting: Arc<Waiting>) -> BoxFuture<'_, ()> {
        let state = self.state.clone();
        let lines = Lines { left: batch.into(), waiting, lost: self.lost.clone() };
        Box::pin(async move {
            let writing = tokio::task::spawn_blocking(move || lines.write(&state));
            if let Err(error) = writing.await {
                tracing::error!(%error, "writing the audit log");
            }
        })
    }

    fn lose(&self, count: u64) {
        self.lost.add(count);
    }
}

/// A body as an object; `None` if it is none, or in a form that is not understood.
pub(super) fn decode(content_type: &str, bytes: &Bytes) -> Option<Object> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    match kind {
        "application/vnd.kubernetes.protobuf" => coracle_api::protobuf::decode(bytes, None).ok(),
        "application/yaml" | "application/apply-patch+yaml" => {
            yaml::document(bytes).ok().map(|document| document.value)
        }
        _ => serde_json::from_slice(bytes).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_nobody_came_to_are_lost_once() {
        let lines = |waiting: &Arc<Waiting>, lost: &Arc<Counter>| {
            waiting.add();
            waiting.add();
            Lines { left: vec![vec![1], vec![2]].into(), waiting: waiting.clone(), lost: lost.clone() }
        };
        let (waiting, lost) = (Arc::<Waiting>::default(), Arc::<Counter>::default());
        drop(lines(&waiting, &lost));
        assert_eq!((lost.get(), waiting.open()), (2, false));
        let given_up = lines(&waiting, &lost);
        assert_eq!(waiting.give_up(), 2);
        drop(given_up);
        assert_eq!(lost.get(), 2, "the end counts them");
    }

    #[test]
    fn lines_that_do_not_wait_are_taken_together() {
        assert_eq!(together(Batching::of_log()).batch, AT_ONCE);
        for seen in [
            Batching { max_wait: Duration::from_secs(1), ..Batching::of_log() },
            Batching { throttle: Batching::of_webhook().throttle, ..Batching::of_log() },
        ] {
            assert_eq!(together(seen.clone()), seen);
        }
    }
}
