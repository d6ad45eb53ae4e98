//! All durable commits of a store, from its opening on.

use super::pieces;
use crate::scheduled::Plan;
use coracle_apiserver::store::sled::{Missed, StoredCommit};
use coracle_apiserver::store::{Commit, Revision, SledStore, Store, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// Bytes of keys and values that are not kept waiting for the interval's end.
const LARGE: usize = 8 << 20;
/// Bytes that may wait while nothing can be written.
pub const MOST: usize = 64 << 20;

/// All durable commits from the store's opening on, and those before it that were not archived.
pub struct Tap {
    /// Everything after this revision is here.
    pub after: Revision,
    /// What was archived before reaches up to there.
    pub continues: bool,
    pub missed: Vec<StoredCommit>,
    /// With what each counts among the bytes that wait.
    commits: UnboundedReceiver<(usize, StoredCommit)>,
    limit: Arc<Limit>,
}

/// Of what waits.
#[derive(Default)]
struct Limit {
    /// Bytes in the channel.
    waiting: AtomicUsize,
    /// There was more, or something was not heard; what came after that is not known.
    exceeded: AtomicBool,
}

impl Limit {
    /// Whether one more of so many bytes may wait.
    fn admits(&self, bytes: usize) -> bool {
        let admitted = self.waiting.fetch_add(bytes, Relaxed) <= MOST;
        if !admitted {
            self.exceeded.store(true, Relaxed);
        }
        admitted
    }
}

impl Tap {
    /// Up to which revisions files of this node reach. The store says which of them it has seen: others may be of another past.
    pub fn since(plan: &Plan, node: &str) -> BTreeSet<Revision> {
        let found = pieces(&plan.places.directory, Some(node)).unwrap_or_default();
        found.iter().map(|piece| Revision(piece.upto)).collect()
    }

    /// Has to be opened before the store takes its first commit.
    pub fn open(store: &SledStore) -> Self {
        let tap = Self::fresh(store);
        match store.take_missed() {
            Some(Missed { after, commits }) => Self { after, continues: true, missed: commits, ..tap },
            None => tap,
        }
    }

    /// From now on.
    pub fn fresh(store: &SledStore) -> Self {
        let (send, commits) = unbounded_channel();
        let limit = Arc::<Limit>::default();
        let (after, limiting) = (store.revision(), limit.clone());
        let follower = move |commits: &[Arc<Commit>]| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            let told = commits.iter().filter(|commit| commit.durable && !commit.changes.is_empty());
            for commit in told.map(|commit| StoredCommit::of(commit, millis)) {
                let bytes = commit.held_len();
                if !limiting.admits(bytes) || send.send((bytes, commit)).is_err() {
                    return false;
                }
            }
            true
        };
        match store.follow(after, Box::new(follower)) {
            Ok(()) | Err(StoreError::Closed) => {}
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "commits cannot be followed");
                limit.exceeded.store(true, Relaxed);
            }
        }
        Self { after, continues: false, missed: Vec::new(), commits, limit }
    }

    pub fn has_overflowed(&self) -> bool {
        self.limit.exceeded.load(Relaxed)
    }

    /// Something was lost on the way.
    pub fn give_up(&self) {
        self.limit.exceeded.store(true, Relaxed);
    }

    /// Waits for commits: until so long after the first that waits, or there is much of them. False when no more will come.
    pub async fn gather(
        &mut self,
        pending: &mut Vec<StoredCommit>,
        interval: Duration,
        retry: Option<Instant>,
    ) -> bool {
        let mut deadline = retry.or_else(|| (!pending.is_empty()).then(|| Instant::now() + interval));
        let mut bytes: usize = pending.iter().map(StoredCommit::held_len).sum();
        let before = bytes;
        while retry.is_some() || bytes < before + LARGE {
            let next = match deadline {
                None => self.commits.recv().await,
                Some(at) => match timeout_at(at, self.commits.recv()).await {
                    Ok(next) => next,
                    Err(_) => return true,
                },
            };
            let Some((waited, commit)) = next else { return false };
            deadline.get_or_insert_with(|| Instant::now() + interval);
            self.limit.waiting.fetch_sub(waited, Relaxed);
            bytes += waited;
            pending.push(commit);
            if bytes > MOST + LARGE {
                self.give_up();
                return true;
            }
        }
        true
    }
}
