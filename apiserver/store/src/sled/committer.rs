//! The one writer: a thread that makes a durable group of whatever waits. What need not wait is committed without it
//! ([`direct`](super::direct)).
//!
//! ```text
//! requests -> stage on a draft -> one write, one fdatasync -> publish -> answer
//!                |                       | fails
//!                | guard fails           v
//!                v                 read-only: refuse all but volatile ones, try every two seconds
//!             answer
//! ```
//! It sleeps until something waits or a deadline comes: ten seconds after the first batched commit, ten minutes after
//! the first that the checkpoint lacks. With neither there is no wake-up at all.

use super::Options;
use super::journal::Journal;
use super::maintain;
use super::queue::{Reply, Request, Shared, Work};
use super::record::Batch;
use super::replay::wall_millis;
use super::report::{IncidentKind, Refusal};
use super::scrub::Scrubs;
use super::{disk, recover::Recovered, witness};
use crate::item::Item;
use crate::keyspace::Draft;
use crate::{Commit, Durability, Revision, StoreError, Txn};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A group that is larger gains nothing from being one, and its writers wait longer.
const GROUP_BYTES: u64 = 1 << 20;
/// Batched commits that wait are written when they come to this, whatever the time.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// While writes are refused, how often it is tried whether they could be accepted.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Writes are accepted again when this much is free: a segment, the reserve, and some air.
const FREE_BYTES: u64 = 16 << 20;
/// After a checkpoint that failed.
pub(super) const RETRY: Duration = Duration::from_secs(60);

/// Runs until the store is told to stop; the error is what a last write met.
pub(super) fn run(shared: &Shared, committer: &Mutex<Committer>) -> Result<(), StoreError> {
    loop {
        let deadline = committer.lock().next_deadline();
        let Work { mut requests, done, stop } = shared.wait(deadline);
        let mut committer = committer.lock();
        if committer.busy {
            return Err(StoreError::Damaged("a commit broke off".to_owned()));
        }
        if let Some(done) = done {
            committer.job_done(*done);
        }
        while !requests.is_empty() {
            committer.group(&mut requests);
        }
        if let Some(checkpoint) = stop {
            return committer.finish(checkpoint);
        }
        committer.timers();
    }
}

pub(super) struct Committer {
    /// A commit is being made; still so afterwards if it broke off by a panic.
    pub(super) busy: bool,
    /// Requests in the last group.
    pub(super) last_group: usize,
    /// What a group takes to be durable, smoothed.
    pub(super) sync_time: Option<Duration>,
    /// Until when the thread sleeps at most.
    asleep_until: Option<Instant>,
    pub(super) shared: Arc<Shared>,
    pub(super) options: Options,
    pub(super) dir: PathBuf,
    pub(super) journal: Journal,
    /// Encoded, not yet in the journal.
    pub(super) batch: Batch,
    batch_since: Option<Instant>,
    /// Newest commit in the journal or the batch.
    pub(super) newest: Revision,
    /// What the keys whose present value is volatile hold durably.
    pub(super) shadow: imbl::OrdMap<Arc<str>, Option<Item>>,
    pub(super) dirty: HashSet<Arc<str>>,
    pub(super) dirty_since: Option<Instant>,
    pub(super) dirty_bytes: u64,
    pub(super) job: Option<JoinHandle<()>>,
    pub(super) retry: Option<Instant>,
    probed: Option<Instant>,
    /// Why writes are refused.
    refusal: Option<Refusal>,
    /// When the last synced commit was written, if it is not noted yet.
    unvouched: Option<Instant>,
    /// When everything that is kept is read again, to find damage before it is needed.
    pub(super) verify_at: Instant,
    pub(super) snapshot: Revision,
    pub(super) rebuild: bool,
    pub(super) renew: bool,
    pub(super) scrubs: Scrubs,
}

impl Committer {
    pub fn new(
        shared: Arc<Shared>,
        options: Options,
        dir: PathBuf,
        journal: Journal,
        recovered: Recovered,
    ) -> Self {
        let dirty = recovered.dirty;
        let verify_at = Instant::now() + options.verify_delay;
        Self {
            busy: false,
            last_group: 0,
            sync_time: None,
            asleep_until: None,
            shared,
            options,
            dir,
            newest: recovered.newest,
            journal,
            batch: Batch::default(),
            batch_since: None,
            shadow: imbl::OrdMap::new(),
            dirty_since: (!dirty.is_empty()).then(Instant::now),
            dirty,
            dirty_bytes: 0,
            job: None,
            retry: None,
            probed: None,
            refusal: None,
            unvouched: None,
            verify_at,
            snapshot: recovered.snapshot,
            rebuild: recovered.rebuild,
            renew: recovered.renew,
            scrubs: Scrubs::default(),
        }
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        self.asleep_until = self.deadline();
        self.asleep_until
    }

    /// Whether the thread has to wake up earlier than it means to.
    pub(super) fn is_due_earlier(&mut self) -> bool {
        let Some(deadline) = self.deadline() else { return false };
        let earlier = self.asleep_until.is_none_or(|until| deadline < until);
        if earlier {
            self.asleep_until = Some(deadline);
        }
        earlier
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.batch.len()
    }

    fn deadline(&self) -> Option<Instant> {
        let read_only = self.shared.read_only.lock().is_some();
        let probe =
            read_only.then(|| self.probed.map_or_else(Instant::now, |probed| probed + PROBE_INTERVAL));
        let batch = self.batch_since.filter(|_| !read_only).map(|since| since + self.options.batch_delay);
        let verify = self.job.is_none().then_some(self.verify_at);
        let vouch = self.vouch_at().filter(|_| !read_only);
        [probe, batch, vouch, self.checkpoint_at(), verify].into_iter().flatten().min()
    }

    /// When the next checkpoint is due.
    fn checkpoint_at(&self) -> Option<Instant> {
        if self.job.is_some() {
            return None;
        }
        let now = self.scrubs.is_asked()
            || self.renew
            || self.rebuild
            || self.dirty_bytes >= self.options.checkpoint_bytes;
        let due = if now {
            Some(Instant::now())
        } else {
            self.dirty_since.map(|s| s + self.options.checkpoint_delay)
        };
        due.map(|due| self.retry.map_or(due, |retry| retry.max(due)))
    }

    fn vouch_at(&self) -> Option<Instant> {
        self.unvouched.map(|since| since + self.options.vouch_delay)
    }

    fn timers(&mut self) {
        let read_only = self.shared.read_only.lock().is_some();
        if read_only {
            self.heal();
        } else if self.vouch_at().is_some_and(|at| at <= Instant::now()) {
            self.vouch();
        } else if self.batch_since.is_some_and(|since| since.elapsed() >= self.options.batch_delay)
            || self.batch.len() > BATCH_BYTES
        {
            self.flush();
        }
        if self.checkpoint_at().is_some_and(|at| at <= Instant::now()) {
            self.start_checkpoint();
        } else if self.job.is_none() && self.verify_at <= Instant::now() {
            self.start_verification();
        }
    }

    // ---- groups

    pub(super) fn group(&mut self, requests: &mut VecDeque<Request>) {
        let (mark, newest) = (self.batch.len(), self.newest);
        let room = usize::try_from(self.journal.room().min(GROUP_BYTES)).unwrap_or(usize::MAX);
        let mut draft = self.shared.space.draft();
        let mut staged = Vec::new();
        let (mut sync, mut unsure) = (false, false);
        while let Some((txn, reply)) = requests.pop_front() {
            let before = draft.revision;
            let outcome = self.stage(&mut draft, &txn);
            if draft.revision > before {
                sync |= txn.durability == Durability::Synced;
                unsure |= txn.durability != Durability::Synced;
            }
            staged.push((txn, reply, outcome));
            if self.batch.len() >= room {
                break;
            }
        }
        self.last_group = staged.len();
        let mut reserved = self.journal.reserved();
        if unsure && draft.revision > reserved {
            reserved = Revision(draft.revision.0 + self.options.reserve_block);
            self.batch.reserve(reserved, self.newest);
            sync = true;
        }
        if sync && let Err(error) = self.write(reserved) {
            self.batch.truncate(mark);
            self.newest = newest;
            self.refuse(&error);
            return self.without_disk(staged);
        }
        if !sync && self.batch.len() > mark {
            self.batch_since.get_or_insert_with(Instant::now);
        }
        if sync && self.newest > newest {
            self.unvouched = Some(Instant::now());
        }
        self.publish(draft);
        for (_, reply, outcome) in staged {
            let _ = reply.send(outcome);
        }
    }

    fn stage(&mut self, draft: &mut Draft, txn: &Txn) -> Result<Revision, StoreError> {
        let volatile = txn.durability == Durability::Volatile;
        if let Some(why) = self.shared.read_only.lock().clone()
            && (!volatile || self.journal.end_is_unsure() || draft.revision >= self.journal.reserved())
        {
            return Err(StoreError::ReadOnly(why));
        }
        if let Some(commit) = draft.stage(txn, !volatile)?
            && !volatile
        {
            self.batch.commit(&commit, wall_millis(), self.newest);
            self.newest = commit.revision;
        }
        Ok(draft.revision)
    }

    /// What of a group can be had although it could not be made durable: its volatile transactions.
    fn without_disk(&mut self, staged: Vec<(Txn, Reply, Result<Revision, StoreError>)>) {
        let mut draft = self.shared.space.draft();
        let outcomes: Vec<_> = staged
            .into_iter()
            .map(|(txn, reply, _)| {
                let outcome = self.stage(&mut draft, &txn);
                (reply, outcome)
            })
            .collect();
        self.publish(draft);
        for (reply, outcome) in outcomes {
            let _ = reply.send(outcome);
        }
    }

    fn publish(&mut self, draft: Draft) {
        for commit in &draft.commits {
            self.account(commit);
        }
        self.shared.reporter.counters.commits.fetch_add(draft.commits.len() as u64, Relaxed);
        self.shared.space.publish(draft);
    }

    fn account(&mut self, commit: &Commit) {
        for change in &commit.changes {
            if commit.durable {
                self.shadow.remove(&change.key);
                self.dirty.insert(change.key.clone());
                self.dirty_since.get_or_insert_with(Instant::now);
            } else if !self.shadow.contains_key(&change.key) {
                self.shadow.insert(change.key.clone(), change.previous.as_ref().map(Item::from));
            }
        }
    }

    pub(super) fn write(&mut self, reserved: Revision) -> std::io::Result<()> {
        let (before, begun) = (self.journal.written, Instant::now());
        self.journal.write(&mut self.batch, self.newest, reserved)?;
        let took = begun.elapsed();
        self.sync_time = Some(self.sync_time.map_or(took, |time| (time * 7 + took) / 8));
        let written = self.journal.written - before;
        self.dirty_bytes += written;
        self.batch.clear();
        self.batch_since = None;
        let counters = &self.shared.reporter.counters;
        counters.groups.fetch_add(1, Relaxed);
        counters.journal_bytes.fetch_add(written, Relaxed);
        Ok(())
    }

    /// Notes that the last commit was durable. A note that cannot be written is only an insurance less.
    fn vouch(&mut self) {
        self.unvouched = None;
        if let Err(error) = witness::write(&self.dir, self.journal.newest()) {
            tracing::debug!(%error, "the newest commit cannot be noted");
        }
    }

    /// Makes durable what waits; says whether it is.
    pub(super) fn flush(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        match self.write(self.journal.reserved()) {
            Ok(()) => true,
            Err(error) => {
                self.refuse(&error);
                false
            }
        }
    }

    // ---- read-only

    pub(super) fn refuse(&mut self, error: &std::io::Error) {
        let full = disk::is_full(error);
        let (refusal, why) = disk::explain(error, &self.dir, FREE_BYTES);
        let before = self.refusal.replace(refusal);
        *self.shared.read_only.lock() = Some(why.clone());
        if before == Some(refusal) {
            return;
        }
        self.shared.reporter.incident(IncidentKind::ReadOnly(refusal), why);
        if full {
            // Revisions for the heartbeats of the time to come; there is room for this much.
            let upto = Revision(self.shared.space.revision().0 + self.options.reserve_block);
            let mut batch = Batch::default();
            batch.reserve(upto, self.journal.newest());
            if let Err(error) = self.journal.write(&mut batch, Revision(0), upto) {
                tracing::warn!(%error, "no revisions could be reserved");
            }
        }
    }

    fn heal(&mut self) {
        // Refused requests wake the committer too.
        if self.probed.is_some_and(|probed| probed.elapsed() < PROBE_INTERVAL) {
            return;
        }
        self.probed = Some(Instant::now());
        if disk::free(&self.dir).map_or(true, |free| free < FREE_BYTES) {
            return;
        }
        let mark = self.batch.len();
        let upto = Revision(self.shared.space.revision().0 + self.options.reserve_block);
        self.batch.reserve(upto, self.newest);
        self.journal.abandon_segment();
        if let Err(error) = self.write(upto) {
            tracing::debug!(%error, "the journal can still not be written");
            self.batch.truncate(mark);
            return self.refuse(&error);
        }
        *self.shared.read_only.lock() = None;
        self.refusal = None;
        let text = "writes are accepted again".to_owned();
        self.shared.reporter.incident(IncidentKind::Writable, text);
        if let Err(error) = disk::make_reserve(&self.dir) {
            tracing::warn!(%error, "cannot set disk space aside");
        }
    }

    // ---- the end

    fn finish(&mut self, checkpoint: bool) -> Result<(), StoreError> {
        if let Some(job) = self.job.take() {
            let _ = job.join();
            let done = self.shared.queue.lock().done.take();
            if let Some(done) = done {
                self.job_done(*done);
            }
        }
        self.scrubs = Scrubs::default();
        if !checkpoint {
            self.flush();
            return Ok(());
        }
        let flushed = self.flush();
        if flushed && (!self.dirty.is_empty() || self.rebuild || self.renew) {
            let job = self.job();
            self.checkpoint_done(maintain::run(job));
        }
        let revision = self.shared.space.revision();
        self.batch.close(revision, self.newest);
        self.write(self.journal.reserved()).map_err(disk::at(&self.dir))
    }
}
