//! Commits that need no thread: who finds nobody else writing makes the group itself. That saves two changes of thread,
//! which on a small machine cost more than the commit.

use super::committer::{BATCH_BYTES, Committer};
use super::queue::{Request, Shared};
use crate::{Durability, Txn};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::runtime::Handle;

/// A disk that takes longer is not waited for where other requests are served. Flash with a journal of its own takes
/// less than a millisecond, SD cards take ten and more.
const QUICK_DURATION: Duration = Duration::from_micros(1500);

/// Commits and answers, or gives back what has to wait in the queue.
pub(super) fn commit(shared: &Shared, committer: &Mutex<Committer>, request: Request) -> Result<(), Request> {
    let Some(mut committer) = committer.try_lock() else { return Err(request) };
    if committer.busy || !suits(&committer, &request.0) || !is_free(shared) {
        return Err(request);
    }
    let alarm = Alarm(shared);
    committer.busy = true;
    committer.group(&mut VecDeque::from([request]));
    committer.busy = false;
    drop(alarm);
    if committer.is_due_earlier() {
        wake(shared);
    }
    Ok(())
}

/// Nobody waits, and the store is open.
fn is_free(shared: &Shared) -> bool {
    let queue = shared.queue.lock();
    queue.requests.is_empty() && queue.stop.is_none() && !queue.dead
}

/// Whether it takes so little time that the thread it runs on can be spared. Writers that are many gain more by being
/// one group.
fn suits(committer: &Committer, txn: &Txn) -> bool {
    if committer.shared.read_only.lock().is_some() {
        return false;
    }
    match txn.durability {
        Durability::Volatile | Durability::Batched => committer.waiting() <= BATCH_BYTES,
        Durability::Synced => {
            committer.last_group <= 1
                && committer.sync_time.is_some_and(|time| time < QUICK_DURATION)
                && Handle::try_current().is_ok_and(|runtime| runtime.metrics().num_workers() > 1)
        }
    }
}

pub(super) fn wake(shared: &Shared) {
    shared.queue.lock().due = true;
    shared.wake.notify_one();
}

/// Lets the committer's thread see a commit that broke off: it ends the store.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            wake(self.0);
        }
    }
}
