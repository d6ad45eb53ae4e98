//! What the store tells about itself, for metrics and events.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tokio::sync::watch;

/// Incidents kept; older ones are in the log.
const KEPT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// The journal had damage in front of its tail; the checkpoint or the snapshot covered it.
    JournalDamaged,
    /// What was being written when the process or the machine stopped was cut off the journal's end.
    TailCut,
    /// sled did not open, panicked or disagreed; it was set aside and rebuilt.
    CheckpointDamaged,
    /// The snapshot could not be read; nothing needed it.
    SnapshotDamaged,
    /// Bringing the checkpoint or the snapshot up to date failed; the journal has everything, and it is tried again.
    CheckpointFailed,
    /// Writes are refused.
    ReadOnly,
    /// Writes are accepted again.
    Writable,
}

impl IncidentKind {
    /// Good news needs no alarm, and neither does the usual end of a power cut.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Writable | Self::TailCut)
    }
}

#[derive(Clone, Debug)]
pub struct Incident {
    pub at: SystemTime,
    pub kind: IncidentKind,
    pub text: String,
}

/// A store's figures since it was opened, and its sizes now.
#[derive(Clone, Debug, Default)]
pub struct StoreReport {
    pub objects: u64,
    pub history_revisions: u64,
    pub commits: u64,
    /// Durable groups, each one fdatasync of the journal.
    pub groups: u64,
    pub journal_bytes_written: u64,
    pub checkpoints: u64,
    pub checkpoint_failures: u64,
    pub snapshots: u64,
    /// Times that everything that is kept was read again.
    pub verifications: u64,
    /// Of keys and values, when the last checkpoint was made.
    pub live_bytes: u64,
    /// Of sled's files, when the last checkpoint was made.
    pub tree_bytes: u64,
    pub incidents: Vec<Incident>,
}

#[derive(Default)]
pub(super) struct Counters {
    pub commits: AtomicU64,
    pub groups: AtomicU64,
    pub journal_bytes: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_failures: AtomicU64,
    pub snapshots: AtomicU64,
    pub verifications: AtomicU64,
    pub live_bytes: AtomicU64,
    pub tree_bytes: AtomicU64,
}

pub(super) struct Reporter {
    pub counters: Counters,
    incidents: Mutex<Vec<Incident>>,
    count: watch::Sender<u64>,
}

impl Default for Reporter {
    fn default() -> Self {
        Self { counters: Counters::default(), incidents: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl Reporter {
    pub fn incident(&self, kind: IncidentKind, text: String) {
        if kind.is_error() {
            tracing::error!(?kind, "store: {text}");
        } else {
            tracing::info!(?kind, "store: {text}");
        }
        let mut incidents = self.incidents.lock();
        if incidents.len() == KEPT {
            incidents.remove(0);
        }
        incidents.push(Incident { at: SystemTime::now(), kind, text });
        drop(incidents);
        self.count.send_modify(|count| *count += 1);
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    pub fn report(self: &Arc<Self>) -> StoreReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        StoreReport {
            objects: 0,
            history_revisions: 0,
            commits: of(&counters.commits),
            groups: of(&counters.groups),
            journal_bytes_written: of(&counters.journal_bytes),
            checkpoints: of(&counters.checkpoints),
            checkpoint_failures: of(&counters.checkpoint_failures),
            snapshots: of(&counters.snapshots),
            verifications: of(&counters.verifications),
            live_bytes: of(&counters.live_bytes),
            tree_bytes: of(&counters.tree_bytes),
            incidents: self.incidents.lock().clone(),
        }
    }
}
