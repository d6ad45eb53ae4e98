//! Where events go: written at once, or by a thread behind a bounded queue.

use super::rotate::{Rotating, Rotation};
use super::truncate::{Truncation, fitting};
use crate::metrics::Counter;
use bytes::Bytes;
use coracle_api::Object;
use parking_lot::Mutex;
use serde_json::Value;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Events that may wait to be written, as upstream's batch mode.
const QUEUE: usize = 10_000;

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

enum Way {
    Direct(Writer),
    Queued { queue: SyncSender<Vec<u8>>, thread: JoinHandle<()> },
}

/// Takes events; those that cannot be written are counted.
pub struct Sink {
    mode: Mode,
    /// `None` after the end.
    way: Mutex<Option<Way>>,
    lost: Arc<Counter>,
    truncation: Option<Truncation>,
}

impl Sink {
    /// Fails if the file cannot be opened.
    pub fn open(target: Target, mode: Mode) -> io::Result<Self> {
        let output = match target {
            Target::StandardOutput => Output::Standard(io::stdout()),
            Target::File(path, rotation) => Output::File(Rotating::open(path, rotation)?),
        };
        let lost = Arc::new(Counter::default());
        let mut writer = Writer { output, lost: lost.clone(), failing: false };
        let way = if mode == Mode::Batch {
            let (queue, receiver) = sync_channel::<Vec<u8>>(QUEUE);
            let work = move || {
                while receiver.recv().is_ok_and(|line| {
                    writer.write(&line);
                    true
                }) {}
            };
            let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(work)?;
            Way::Queued { queue, thread }
        } else {
            Way::Direct(writer)
        };
        Ok(Self { mode, way: Mutex::new(Some(way)), lost, truncation: None })
    }

    /// Events that are too large lose parts.
    #[must_use]
    pub fn truncating(self, truncation: Option<Truncation>) -> Self {
        Self { truncation, ..self }
    }

    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Writes the event of a request's arrival. Whether the request may go on.
    pub(super) fn write_first(&self, event: &Value) -> bool {
        self.write(event) || self.mode != Mode::BlockingStrict
    }

    /// Whether the event was taken.
    pub(super) fn write(&self, event: &Value) -> bool {
        let Some(line) = fitting(event, self.truncation) else {
            self.lost.add(1);
            return false;
        };
        let taken = match &mut *self.way.lock() {
            Some(Way::Direct(writer)) => return writer.write(&line),
            Some(Way::Queued { queue, .. }) => queue.try_send(line).is_ok(),
            None => false,
        };
        if !taken {
            self.lost.add(1);
        }
        taken
    }

    /// Writes what is in the queue; later events are lost.
    pub fn close(&self) {
        let way = self.way.lock().take();
        if let Some(Way::Queued { queue, thread }) = way {
            drop(queue);
            if thread.join().is_err() {
                tracing::error!("the audit log's thread panicked");
            }
        }
    }
}

struct Writer {
    output: Output,
    lost: Arc<Counter>,
    /// Failures are logged once, not for every event.
    failing: bool,
}

impl Writer {
    fn write(&mut self, line: &[u8]) -> bool {
        let outcome = self.output.write(line);
        let was_failing = std::mem::replace(&mut self.failing, outcome.is_err());
        if let Err(error) = &outcome {
            self.lost.add(1);
            if !was_failing {
                tracing::error!(%error, "writing the audit log");
            }
        }
        outcome.is_ok()
    }
}

/// A body as an object; `None` if it is none, or in a form that is not understood.
pub(super) fn decode(content_type: &str, bytes: &Bytes) -> Option<Object> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    match kind {
        "application/vnd.kubernetes.protobuf" => coracle_api::protobuf::decode(bytes, None).ok(),
        "application/yaml" | "application/apply-patch+yaml" => {
            serde_saphyr::from_str(std::str::from_utf8(bytes).ok()?).ok()
        }
        _ => serde_json::from_slice(bytes).ok(),
    }
}
