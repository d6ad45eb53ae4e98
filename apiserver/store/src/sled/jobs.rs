//! What the committer has done on other threads: checkpoints, snapshots, and reading again what is kept.

use super::committer::{Committer, RETRY};
use super::maintain::{self, Checkpointed, Job};
use super::report::IncidentKind;
use super::verify::{self, Damage};
use crate::history::rewind;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// What came of a job.
pub(super) enum Done {
    Checkpoint(Checkpointed),
    Verification(Damage),
}

impl Committer {
    pub(super) fn start_checkpoint(&mut self) {
        if !self.flush() || !self.begin_scrub() {
            self.retry = Some(Instant::now() + RETRY);
            return;
        }
        let job = self.job();
        if !self.start(move || Done::Checkpoint(maintain::run(job))) {
            // The keys went with the job that never ran: only a whole new tree has them for certain.
            self.rebuild = true;
            self.retry = Some(Instant::now() + RETRY);
        }
    }

    /// Reads again everything that is kept.
    pub(super) fn start_verification(&mut self) {
        self.verify_at = Instant::now() + self.options.verify_interval;
        let (dir, shared) = (self.dir.clone(), self.shared.clone());
        let stop = move || shared.queue.lock().stop.is_some();
        self.start(move || Done::Verification(verify::run(&dir, stop)));
    }

    /// Runs a job on a thread of its own, which wakes the committer when it is done; says whether there was one.
    fn start(&mut self, work: impl FnOnce() -> Done + Send + 'static) -> bool {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("store-maintenance".into()).spawn(move || {
            let done = Box::new(work());
            shared.queue.lock().done = Some(done);
            shared.wake.notify_one();
        });
        match thread {
            Ok(thread) => self.job = Some(thread),
            Err(error) => tracing::error!(%error, "no thread for the store's maintenance"),
        }
        self.job.is_some()
    }

    pub(super) fn job(&mut self) -> Job {
        let (present, handed) = self.shared.space.present();
        self.dirty_since = None;
        self.dirty_bytes = 0;
        Job {
            dir: self.dir.clone(),
            present: rewind(&present, self.shadow.clone()),
            revision: self.newest,
            handed,
            dirty: std::mem::take(&mut self.dirty),
            history: self.shared.space.history(),
            rebuild: self.rebuild,
            journal_bytes: self.journal.bytes_since(self.snapshot),
            renew: self.renew,
            snapshot_bytes: self.options.snapshot_bytes,
            tree_bytes: self.options.tree_bytes,
        }
    }

    pub(super) fn job_done(&mut self, done: Done) {
        if let Some(job) = self.job.take() {
            let _ = job.join();
        }
        match done {
            Done::Checkpoint(done) => self.checkpoint_done(done),
            Done::Verification(found) => self.verified(found),
        }
    }

    fn verified(&mut self, found: Damage) {
        for (kind, text) in found.parts {
            self.rebuild |= kind == IncidentKind::CheckpointDamaged;
            self.renew |= kind != IncidentKind::CheckpointDamaged;
            let text = format!("{text}; nothing is lost, it is written anew from what is in memory");
            self.shared.reporter.incident(kind, text);
        }
        self.shared.reporter.counters.verifications.fetch_add(1, Relaxed);
    }

    pub(super) fn checkpoint_done(&mut self, done: Checkpointed) {
        let counters = &self.shared.reporter.counters;
        counters.live_bytes.store(done.live_bytes, Relaxed);
        counters.tree_bytes.store(done.tree_bytes, Relaxed);
        self.retry = None;
        if let Err(error) = done.tree {
            self.failed(&error);
            self.rebuild |= !error.is_full();
            self.dirty.extend(done.dirty);
            self.dirty_since.get_or_insert_with(Instant::now);
            self.scrubs.again();
            return;
        }
        counters.checkpoints.fetch_add(1, Relaxed);
        self.rebuild = false;
        self.batch.checkpoint(done.revision, self.newest);
        match done.snapshot {
            Some(Ok(())) => {
                counters.snapshots.fetch_add(1, Relaxed);
                self.snapshot = done.revision;
                if std::mem::take(&mut self.renew) {
                    // Begins a segment, so that the damaged one is the last no more and can go.
                    self.flush();
                }
            }
            Some(Err(error)) => self.failed(&error),
            None => {}
        }
        let upto = self.snapshot.min(done.floor);
        self.journal.trim(upto, !self.scrubs.is_running());
        self.end_scrub(upto);
    }

    fn failed(&mut self, error: &(dyn std::error::Error + 'static)) {
        self.shared.reporter.counters.checkpoint_failures.fetch_add(1, Relaxed);
        let text = format!("checkpoint: {}; the journal goes on", super::recover::chain(error));
        self.shared.reporter.incident(IncidentKind::CheckpointFailed, text);
        self.retry = Some(Instant::now() + RETRY);
    }
}
