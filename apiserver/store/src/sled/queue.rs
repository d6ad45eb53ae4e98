//! What the store's handle and its threads share, and what waits for the committer.

use super::jobs::Done;
use super::report::Reporter;
use crate::keyspace::KeySpace;
use crate::{Revision, StoreError, Txn};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

pub(super) type Reply = oneshot::Sender<Result<Revision, StoreError>>;

/// A transaction, and who waits for it.
pub(super) type Request = (Txn, Reply);

#[derive(Default)]
pub(super) struct Queue {
    pub requests: VecDeque<Request>,
    pub done: Option<Box<Done>>,
    /// The thread is to look at its deadlines again.
    pub due: bool,
    /// Stop, after a checkpoint if true.
    pub stop: Option<bool>,
    pub dead: bool,
}

/// What the committer woke up for.
pub(super) struct Work {
    pub requests: VecDeque<Request>,
    pub done: Option<Box<Done>>,
    pub stop: Option<bool>,
}

/// What the store's handle and its threads share.
pub(super) struct Shared {
    pub space: KeySpace,
    pub queue: Mutex<Queue>,
    pub wake: Condvar,
    pub read_only: Mutex<Option<String>>,
    pub reporter: Arc<Reporter>,
}

impl Shared {
    /// Sleeps until there is something to do, or the deadline has come.
    pub fn wait(&self, deadline: Option<Instant>) -> Work {
        let mut queue = self.queue.lock();
        while queue.requests.is_empty() && queue.done.is_none() && queue.stop.is_none() && !queue.due {
            match deadline {
                None => self.wake.wait(&mut queue),
                Some(deadline) => {
                    if self.wake.wait_until(&mut queue, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        queue.due = false;
        if queue.stop.is_some() {
            queue.dead = true;
        }
        Work { requests: std::mem::take(&mut queue.requests), done: queue.done.take(), stop: queue.stop }
    }
}
