//! Where events go: a bounded queue, and a thread that writes.

use super::rotate::{Rotating, Rotation};
use crate::metrics::Counter;
use bytes::Bytes;
use coracle_api::Object;
use parking_lot::Mutex;
use serde_json::Value;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
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

/// Takes events without waiting; they are lost, and counted, while the queue is full or the disk is.
pub struct Sink {
    queue: Mutex<Option<SyncSender<Vec<u8>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    lost: Arc<Counter>,
}

impl Sink {
    /// Fails if the file cannot be opened.
    pub fn open(target: Target) -> io::Result<Self> {
        let output = match target {
            Target::StandardOutput => Output::Standard(io::stdout()),
            Target::File(path, rotation) => Output::File(Rotating::open(path, rotation)?),
        };
        let (sender, receiver) = sync_channel(QUEUE);
        let lost = Arc::new(Counter::default());
        let counter = lost.clone();
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(output, &receiver, &counter))?;
        Ok(Self { queue: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), lost })
    }

    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    pub(super) fn write(&self, event: &Value) {
        let mut line = event.to_string().into_bytes();
        line.push(b'\n');
        let taken = self.queue.lock().as_ref().is_some_and(|queue| queue.try_send(line).is_ok());
        if !taken {
            self.lost.add(1);
        }
    }

    /// Writes what is in the queue; later events are lost.
    pub fn close(&self) {
        self.queue.lock().take();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the audit log's thread panicked");
        }
    }
}

fn write_all(mut output: Output, queue: &Receiver<Vec<u8>>, lost: &Counter) {
    let mut failing = false;
    while let Ok(line) = queue.recv() {
        match output.write(&line) {
            Ok(()) => failing = false,
            Err(error) => {
                lost.add(1);
                // Once, not for every event.
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!(%error, "writing the audit log");
                }
            }
        }
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
