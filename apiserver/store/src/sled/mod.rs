//! The embedded backend: a journal that makes writes durable, and a sled tree as its checkpoint.
//!
//! ```text
//! format                which layout this is
//! lock                  held by the one process that has the store open
//! journal-<n>           segments of the journal (.tmp: not begun yet); spare-<n>: used ones that wait to be used again
//! sled/                 the durable state as of some revision (sled.bad-<time>: set aside because it was damaged)
//! history-<revision>    what history needs from before that checkpoint
//! snapshot              the whole state, should sled be lost; the journal is kept from there on
//! witness               the newest commit that the journal was known to hold
//! reserve               disk space for the day there is none
//! scrubbed              the mark of the last scrubbing
//! before-repair-<time>  what a repair replaced
//! before-format-<n>     the store as it was before it got layout n (.new: not whole)
//! ```

mod commits;
mod committer;
mod direct;
mod disk;
mod dump;
mod format;
mod jobs;
mod journal;
mod journaled;
mod lift;
mod maintain;
mod meter;
mod picture;
mod queue;
mod record;
mod recover;
mod repair;
mod replay;
mod report;
mod scrub;
mod segment;
#[cfg(test)]
mod tests;
mod tree;
mod verify;
mod witness;

pub use commits::{CommitWriter, StoredCommit, read_commits};
pub use journaled::Missed;
pub use meter::{Doing, Step, Watch};
pub use picture::{Picture, Playback, inspect, make, make_watched, restore};
pub use repair::{
    Compacted, Examination, Part, Repaired, check, check_watched, compact, compact_watched, repair, salvage,
};
pub use report::{Incident, IncidentKind, Incidents, Refusal, StoreReport};
pub use scrub::MARK;

use super::history::Limits;
use super::keyspace::KeySpace;
use super::{Commit, Follower, KeyValue, Listing, Packer, Range, Revision, Store, StoreError, Txn};
use committer::Committer;
use parking_lot::Mutex;
use queue::Shared;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// Revisions by which a repaired store is ahead of what was found, so that no revision that a client saw after that means
/// something else.
const RESTORE_JUMP: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Options {
    pub history: Limits,
    /// By when a batched commit is on stable storage.
    pub batch_delay: Duration,
    /// A checkpoint is due after so much journal or time.
    pub checkpoint_bytes: u64,
    pub checkpoint_delay: Duration,
    /// A snapshot is due after so much journal, or twice the live data if that is more.
    pub snapshot_bytes: u64,
    /// sled is rebuilt beyond this size, or eight times the live data if that is more.
    pub tree_bytes: u64,
    /// Revisions reserved at a time for commits that are not in the journal when they are acknowledged. A crash skips
    /// what is left of them; a full disk leaves so many for heartbeats.
    pub reserve_block: u64,
    /// How long after the last synced commit a note outside of the journal says that it was durable. Until then damage to it
    /// cannot be told from a write that was torn.
    pub vouch_delay: Duration,
    /// How long after the start, and how often then, everything that is kept is read again to find damage. Flash loses bits
    /// within months; a start and a day are soon enough, and a few megabytes read.
    pub verify_delay: Duration,
    pub verify_interval: Duration,
    /// Revisions up to which somebody has everything: what the journal tells of commits after the newest of them that it has
    /// seen is kept for [`SledStore::take_missed`].
    pub since: BTreeSet<Revision>,
    /// Whether a store of an earlier layout is copied before it is changed, and not opened without room for that.
    pub copy_before_lift: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: Limits::default(),
            batch_delay: Duration::from_secs(10),
            checkpoint_bytes: 8 << 20,
            checkpoint_delay: Duration::from_secs(600),
            snapshot_bytes: 32 << 20,
            tree_bytes: 64 << 20,
            reserve_block: 1 << 16,
            vouch_delay: Duration::from_secs(2),
            verify_delay: Duration::from_secs(60),
            verify_interval: Duration::from_secs(24 * 3600),
            since: BTreeSet::new(),
            copy_before_lift: true,
        }
    }
}

pub struct SledStore {
    dir: PathBuf,
    shared: Arc<Shared>,
    committer: Arc<Mutex<Committer>>,
    thread: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    /// Why nothing may be written, heartbeats neither; every commit holds it for reading.
    frozen: tokio::sync::RwLock<Option<String>>,
    missed: Mutex<Option<Missed>>,
}

impl SledStore {
    /// Opens the store in `dir`, which is created if need be. Blocks for as long as reading the checkpoint takes.
    ///
    /// # Errors
    /// `Io` if the directory cannot be used, another process has it open, or there is no room for the copy that is made before
    /// its layout is changed; `Damaged` if acknowledged data is lost.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Arc<Self>, StoreError> {
        let dir = dir.as_ref();
        disk::create_dir(dir).map_err(disk::at(dir))?;
        let lock = disk::lock(dir)?;
        let reporter = Arc::new(report::Reporter::default());
        lift::tidy_copies(dir).map_err(disk::at(dir))?;
        lift::prepare(dir, options.copy_before_lift)?;
        let mut recovered = recover::recover(dir, &reporter)?;
        // What damage took out of the journal may be in the state nevertheless.
        let asked = !options.since.is_empty() && !recovered.renew;
        let missed = if asked { journaled::since(dir, &options.since)? } else { None };
        if let Err(error) = disk::make_reserve(dir) {
            tracing::warn!(%error, "cannot set disk space aside");
        }
        let journal =
            journal::Journal::resume(dir, std::mem::take(&mut recovered.resume)).map_err(disk::at(dir))?;
        if let Err(error) = format::Format::settle(dir).and_then(|()| lift::done(dir)) {
            tracing::warn!(%error, "the store's layout cannot be noted; the next start tries again");
        }
        let present = std::mem::take(&mut recovered.present);
        let mut history = std::mem::take(&mut recovered.history);
        history.trim(&options.history, std::time::Instant::now());
        let shared = Arc::new(Shared {
            space: KeySpace::new(present, recovered.revision, history, options.history.clone()),
            queue: Mutex::default(),
            wake: parking_lot::Condvar::new(),
            read_only: Mutex::default(),
            reporter,
        });
        let committer = Committer::new(shared.clone(), options, dir.to_owned(), journal, recovered);
        let committer = Arc::new(Mutex::new(committer));
        let (run, own) = (shared.clone(), committer.clone());
        let thread = std::thread::Builder::new()
            .name("store-committer".into())
            .spawn(move || {
                let dead = Dead(run);
                let result = committer::run(&dead.0, &own);
                drop(lock);
                result
            })
            .map_err(disk::at(dir))?;
        let thread = Mutex::new(Some(thread));
        let dir = dir.to_owned();
        let frozen = tokio::sync::RwLock::default();
        Ok(Arc::new(Self { dir, shared, committer, thread, frozen, missed: Mutex::new(missed) }))
    }

    /// Figures and incidents since the store was opened.
    pub fn report(&self) -> StoreReport {
        let (present, _) = self.shared.space.present();
        StoreReport {
            objects: present.len() as u64,
            history_revisions: self.shared.space.history_len() as u64,
            ..self.shared.reporter.report()
        }
    }

    /// Bytes of memory that only history keeps.
    pub fn history_bytes(&self) -> usize {
        self.shared.space.history_bytes()
    }

    /// Bytes of all its files as they are now: journal, checkpoint, snapshot, and the space set aside for a full disk.
    /// Looks at a handful of files.
    pub fn disk_bytes(&self) -> u64 {
        disk::dir_bytes(&self.dir) + disk::dir_bytes(&self.dir.join(recover::TREE))
    }

    /// The incidents of the start, and those to come.
    pub fn incidents(&self) -> Incidents {
        self.shared.reporter.subscribe()
    }

    /// The present, to be written somewhere while commits go on.
    pub fn picture(&self) -> Picture {
        let (present, revision) = self.shared.space.present();
        Picture { present, revision, handed_out: revision }
    }

    /// The durable commits after one of [`Options::since`] that were there when the store was opened; `None` where the journal
    /// has seen none of those revisions, or they were taken before.
    pub fn take_missed(&self) -> Option<Missed> {
        self.missed.lock().take()
    }

    /// The newest commit on stable storage. Blocks while one is being written.
    pub fn durable(&self) -> Revision {
        self.committer.lock().journal.newest()
    }

    /// From now on nothing is written, and writes are told why; `None` takes that back. What is under way is waited for, so
    /// that a [`picture`](Self::picture) afterwards is the last.
    pub async fn freeze(&self, why: Option<String>) {
        *self.frozen.write().await = why;
    }

    fn stop(&self, checkpoint: bool) {
        self.shared.queue.lock().stop.get_or_insert(checkpoint);
        self.shared.wake.notify_one();
    }
}

/// Answers nobody any more, however the committer ended.
struct Dead(Arc<Shared>);

impl Drop for Dead {
    fn drop(&mut self) {
        self.0.space.close();
        let mut queue = self.0.queue.lock();
        queue.dead = true;
        queue.requests.clear();
    }
}

impl Drop for SledStore {
    /// What was acknowledged is made durable; the checkpoint is left to the next start. `close` does both.
    fn drop(&mut self) {
        self.stop(false);
        let Some(thread) = self.thread.lock().take() else { return };
        // A follower may be the last who knows the store; then this is the thread itself.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

#[async_trait::async_trait]
impl Store for SledStore {
    fn revision(&self) -> Revision {
        self.shared.space.revision()
    }

    fn oldest(&self) -> Revision {
        self.shared.space.oldest()
    }

    fn compaction_floor(&self) -> Revision {
        self.shared.space.compaction_floor()
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.shared.space.get(key)
    }

    async fn range(&self, range: Range) -> Result<Listing, StoreError> {
        self.shared.space.range(&range)
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, StoreError> {
        let frozen = self.frozen.read().await;
        if let Some(why) = &*frozen {
            return Err(StoreError::ReadOnly(why.clone()));
        }
        let (reply, mut outcome) = oneshot::channel();
        let Err(request) = direct::commit(&self.shared, &self.committer, (txn, reply)) else {
            return outcome.try_recv().unwrap_or(Err(StoreError::Closed));
        };
        {
            let mut queue = self.shared.queue.lock();
            if queue.dead || queue.stop.is_some() {
                return Err(StoreError::Closed);
            }
            queue.requests.push_back(request);
        }
        self.shared.wake.notify_one();
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<UnboundedReceiver<Arc<Commit>>, StoreError> {
        self.shared.space.watch(prefix, after)
    }

    fn follow(&self, after: Revision, follower: Follower) -> Result<(), StoreError> {
        self.shared.space.follow(after, follower)
    }

    async fn compact(&self, at: Revision) -> Result<(), StoreError> {
        self.shared.space.compact(at)
    }

    fn pack_history(&self, packer: &mut Packer) {
        self.shared.space.pack_history(packer);
    }

    fn read_only(&self) -> Option<String> {
        let frozen = self.frozen.try_read().ok().and_then(|why| why.clone());
        frozen.or_else(|| self.shared.read_only.lock().clone())
    }

    async fn scrub(&self, mark: &str) -> Result<(), StoreError> {
        scrub::ask(&self.shared, &self.committer, mark).await
    }

    fn scrubbed(&self) -> Option<String> {
        Some(scrub::mark(&self.committer.lock().dir))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.stop(true);
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        match joined {
            Ok(Ok(result)) => result,
            _ => Err(StoreError::Damaged("the store's committer panicked".to_owned())),
        }
    }
}
