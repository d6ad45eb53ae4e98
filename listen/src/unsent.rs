//! Answers that were made and that nobody took: how many bytes of them each connection holds, and all together.
//!
//! A client may ask for much and read nothing. What it asked for stays in memory then, so a connection that holds a lot gets
//! no more until it takes something, and when all together hold too much, the one goes that holds most and takes nothing.
//! A connection that holds nothing is never kept waiting, whatever others do.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// A client that takes nothing for so long may be one that never will. It counts only when memory is short.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// What all connections share.
pub(crate) trait Memory: Send + Sync {
    /// So much was made for a connection.
    fn unsent(&self, bytes: usize);

    /// So much of it was taken, or went with its connection.
    fn sent(&self, bytes: usize);

    /// Whether more may be made for those that hold something.
    fn has_memory(&self) -> bool;

    /// False if there is memory again. Otherwise the connection is woken when there is.
    fn waits_for_memory(&self, id: u64, unsent: &Arc<Unsent>) -> bool;
}

/// Of one connection.
pub(crate) struct Unsent {
    /// Of its place.
    id: u64,
    /// More than this is not made for a connection that holds something.
    most: usize,
    memory: Arc<dyn Memory>,
    state: Mutex<State>,
}

struct State {
    bytes: usize,
    /// The client took something last, or there was nothing to take.
    since: Instant,
    /// Who waits for the client to take something.
    waiting: Vec<Waker>,
}

/// Bytes of an answer, from when they are made to when they have gone to the socket.
pub(crate) struct Held {
    unsent: Arc<Unsent>,
    bytes: usize,
}

impl Unsent {
    pub fn new(id: u64, most: usize, memory: Arc<dyn Memory>) -> Arc<Self> {
        let state = State { bytes: 0, since: Instant::now(), waiting: Vec::new() };
        Arc::new(Self { id, most, memory, state: Mutex::new(state) })
    }

    pub fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        let mut state = self.state.lock();
        if state.bytes == 0 {
            state.since = Instant::now();
        }
        state.bytes += bytes;
        drop(state);
        self.memory.unsent(bytes);
        Held { unsent: self.clone(), bytes }
    }

    /// More may be made for this connection.
    pub fn has_room(&self) -> bool {
        let bytes = self.state.lock().bytes;
        bytes == 0 || (bytes < self.most && self.memory.has_memory())
    }

    /// Ready when more may be made for this connection.
    pub fn poll_room(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.bytes == 0 {
            return Poll::Ready(());
        }
        let is_full = state.bytes >= self.most;
        if !is_full && self.memory.has_memory() {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        drop(state);
        let waits = is_full || self.memory.waits_for_memory(self.id, self);
        if waits { Poll::Pending } else { Poll::Ready(()) }
    }

    pub fn wake(&self) {
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// How much is held of which the client has taken nothing for a while.
    pub fn untaken(&self, now: Instant) -> usize {
        let state = self.state.lock();
        if now - state.since >= WAIT_TIMEOUT { state.bytes } else { 0 }
    }
}

impl Held {
    /// These bytes, which are part of what is held, counted until the last of them is dropped.
    pub fn part(&mut self, bytes: Bytes) -> Bytes {
        let part = bytes.len().min(self.bytes);
        self.bytes -= part;
        let held = Self { unsent: self.unsent.clone(), bytes: part };
        Bytes::from_owner(Counted { bytes, _held: held })
    }

    /// These bytes, counted until the last of them is dropped.
    pub fn whole(unsent: &Arc<Unsent>, bytes: Bytes) -> Bytes {
        let held = unsent.hold(bytes.len());
        Bytes::from_owner(Counted { bytes, _held: held })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut state = self.unsent.state.lock();
        state.bytes -= self.bytes;
        state.since = Instant::now();
        let has_room = state.bytes < self.unsent.most;
        drop(state);
        self.unsent.memory.sent(self.bytes);
        if has_room {
            self.unsent.wake();
        }
    }
}

struct Counted {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
