//! How a watcher in the server's own process shares the stored bytes of objects instead of copying them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Put into the extensions of a watch request that is served in memory: the events of whole JSON objects may come as three
/// frames each, `{"type":"ADDED","object":{...,"metadata":{"resourceVersion":"7",`, then the rest of the object, which is
/// memory that the server keeps anyway, then `}` and a line break. Put together they are what any watcher gets. Extensions
/// do not travel over sockets, so such a server never says that it does it.
#[derive(Clone, Debug, Default)]
pub struct Pieces(Arc<AtomicBool>);

impl Pieces {
    /// The server's word, before its answer.
    pub fn promise(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn promised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
