//! Taking old values off the disk: after it no file of the store holds anything but the present, and what came since.
//!
//! ```text
//! asked -> history ends here, a new segment -> a new tree and snapshot -> old segments, trees and copies go -> mark
//! ```
//! What the file system does with the blocks of files that were removed is its own affair.

use super::committer::Committer;
use super::direct::wake;
use super::disk;
use super::lift;
use super::queue::Shared;
use super::recover::TREE_BAD;
use super::repair;
use crate::{Revision, StoreError};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use tokio::sync::oneshot;

/// File with the mark of the last scrubbing.
pub const MARK: &str = "scrubbed";

type ScrubRequest = (String, oneshot::Sender<()>);

/// Those who wait for a scrubbing.
#[derive(Default)]
pub(super) struct Scrubs {
    asked: Vec<ScrubRequest>,
    running: Vec<ScrubRequest>,
}

impl Scrubs {
    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The checkpoint at hand is a scrubbing's.
    pub fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// What was running has failed, and is tried with the next checkpoint.
    pub fn again(&mut self) {
        self.asked.append(&mut self.running);
    }
}

/// Returns when it is done, which a failing disk puts off.
pub(super) async fn ask(shared: &Shared, committer: &Mutex<Committer>, mark: &str) -> Result<(), StoreError> {
    let (done, waiting) = oneshot::channel();
    committer.lock().scrubs.asked.push((mark.to_owned(), done));
    wake(shared);
    // Either the committer's end forgets who asked, or it was over before.
    if shared.queue.lock().dead {
        return Err(StoreError::Closed);
    }
    waiting.await.map_err(|_| StoreError::Closed)
}

/// The mark of the last scrubbing; empty where there was none.
pub(super) fn mark(dir: &Path) -> String {
    std::fs::read_to_string(dir.join(MARK)).unwrap_or_default()
}

impl Committer {
    /// Before a checkpoint: makes it a scrubbing's if somebody has asked. False if the disk refuses.
    pub(super) fn begin_scrub(&mut self) -> bool {
        if !self.scrubs.is_asked() {
            return true;
        }
        // The checkpoint would save what history needs from before it.
        if self.shared.space.compact(self.shared.space.revision()).is_err() {
            return false;
        }
        let reserved = self.journal.reserved();
        let begun = self.journal.start_afresh().and_then(|()| {
            self.batch.reserve(reserved, self.newest);
            self.write(reserved)
        });
        if let Err(error) = begun {
            self.batch.clear();
            self.refuse(&error);
            return false;
        }
        self.rebuild = true;
        self.renew = true;
        self.scrubs.running.append(&mut self.scrubs.asked);
        true
    }

    /// After a checkpoint whose journal was trimmed up to `upto`.
    pub(super) fn end_scrub(&mut self, upto: Revision) {
        if !self.scrubs.is_running() {
            return;
        }
        // A snapshot that failed keeps its journal.
        if self.journal.begins_after() < upto || self.renew {
            return self.scrubs.again();
        }
        let last = self.scrubs.running.last().map(|(mark, _)| mark.clone()).unwrap_or_default();
        if let Err(error) = leave(&self.dir, &last) {
            tracing::warn!(%error, "old values are not off the disk yet");
            return self.scrubs.again();
        }
        for (_, done) in self.scrubs.running.drain(..) {
            let _ = done.send(());
        }
    }
}

fn leave(dir: &Path, mark: &str) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let aside =
            |name: &str| [TREE_BAD, repair::ASIDE, lift::COPY].iter().any(|prefix| name.starts_with(prefix));
        if entry.file_name().to_str().is_some_and(aside) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    disk::replace(&dir.join(MARK), |file| io::Write::write_all(file, mark.as_bytes()))
}
