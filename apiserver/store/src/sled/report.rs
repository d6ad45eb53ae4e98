//! What the store tells about itself, for metrics and events.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tokio::sync::watch;

/// Incidents kept; older ones are in the log.
const KEPT: usize = 64;

/// Why writes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    DiskFull,
    NoInodes,
    QuotaExceeded,
    ReadOnlyFileSystem,
    WriteFailed,
}

impl Refusal {
    /// As a condition's reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::DiskFull => "DiskFull",
            Self::NoInodes => "NoInodesLeft",
            Self::QuotaExceeded => "DiskQuotaExceeded",
            Self::ReadOnlyFileSystem => "FileSystemReadOnly",
            Self::WriteFailed => "WriteFailed",
        }
    }
}

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
    ReadOnly(Refusal),
    /// Writes are accepted again.
    Writable,
}

impl IncidentKind {
    /// One of each, to count them by.
    pub const ALL: [Self; 7] = [
        Self::JournalDamaged,
        Self::TailCut,
        Self::CheckpointDamaged,
        Self::SnapshotDamaged,
        Self::CheckpointFailed,
        Self::ReadOnly(Refusal::WriteFailed),
        Self::Writable,
    ];

    /// Good news needs no alarm, and neither does the usual end of a power cut.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Writable | Self::TailCut)
    }

    /// As an event's reason and a metric's label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::JournalDamaged => "StoreJournalDamaged",
            Self::TailCut => "StoreTailCut",
            Self::CheckpointDamaged => "StoreCheckpointDamaged",
            Self::SnapshotDamaged => "StoreSnapshotDamaged",
            Self::CheckpointFailed => "StoreCheckpointFailed",
            Self::ReadOnly(_) => "StoreReadOnly",
            Self::Writable => "StoreWritable",
        }
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
    /// The newest ones.
    pub incidents: Vec<Incident>,
    /// How many there were of each kind.
    pub incident_totals: Vec<(IncidentKind, u64)>,
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
    log: Mutex<Log>,
    /// How many incidents there were.
    count: watch::Sender<u64>,
}

#[derive(Default)]
struct Log {
    newest: VecDeque<Incident>,
    totals: BTreeMap<&'static str, u64>,
}

impl Default for Reporter {
    fn default() -> Self {
        Self { counters: Counters::default(), log: Mutex::default(), count: watch::Sender::new(0) }
    }
}

/// What happens to a store, from its opening on.
pub struct Incidents {
    reporter: Arc<Reporter>,
    count: watch::Receiver<u64>,
    told: u64,
}

impl Incidents {
    /// Waits for the next one; of a storm only the last 64 come. May be dropped at any time without losing one.
    pub async fn next(&mut self) -> Incident {
        loop {
            if let Some(incident) = self.reporter.after(&mut self.told) {
                return incident;
            }
            let told = self.told;
            // Who could end it is held here.
            let _ = self.count.wait_for(|count| *count > told).await;
        }
    }
}

impl Reporter {
    pub fn incident(&self, kind: IncidentKind, text: String) {
        if kind.is_error() {
            tracing::error!(?kind, "store: {text}");
        } else {
            tracing::info!(?kind, "store: {text}");
        }
        let mut log = self.log.lock();
        if log.newest.len() == KEPT {
            log.newest.pop_front();
        }
        log.newest.push_back(Incident { at: SystemTime::now(), kind, text });
        *log.totals.entry(kind.reason()).or_default() += 1;
        // While the log is held, so that the count is never behind or ahead of it.
        self.count.send_modify(|count| *count += 1);
    }

    pub fn subscribe(self: &Arc<Self>) -> Incidents {
        Incidents { reporter: self.clone(), count: self.count.subscribe(), told: 0 }
    }

    /// The first incident after so many, which are then one more.
    fn after(&self, told: &mut u64) -> Option<Incident> {
        let log = self.log.lock();
        let forgotten = *self.count.borrow() - log.newest.len() as u64;
        let index = told.saturating_sub(forgotten);
        let incident = log.newest.get(usize::try_from(index).ok()?)?.clone();
        *told = forgotten + index + 1;
        Some(incident)
    }

    pub fn report(self: &Arc<Self>) -> StoreReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, log) = (&self.counters, self.log.lock());
        let total = |kind: IncidentKind| (kind, log.totals.get(kind.reason()).copied().unwrap_or(0));
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
            incidents: log.newest.iter().cloned().collect(),
            incident_totals: IncidentKind::ALL.map(total).to_vec(),
        }
    }
}
