//! A watcher's end of the cache: a filter, and a bounded queue.

use super::event::{Event, Seen};
use super::object::CachedObject;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Events a watcher may be behind before it is dropped. At 2 KiB an event that is shared anyway, the queue itself
/// costs 16 KiB; a burst of 500 pods with three updates each must fit.
pub const QUEUE_EVENTS: usize = 2048;

type Predicate = Box<dyn Fn(&CachedObject) -> bool + Send + Sync>;

/// Which objects of a resource a request is about.
#[derive(Default)]
pub struct Filter {
    /// `None`: all namespaces.
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// Label and field selectors.
    pub selects: Option<Predicate>,
}

impl Filter {
    pub fn matches(&self, object: &CachedObject) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == object.namespace())
            && self.name.as_deref().is_none_or(|n| n == object.name())
            && self.selects.as_ref().is_none_or(|f| f(object))
    }

    /// Whether the filter looks at more than the namespace.
    pub fn is_selective(&self) -> bool {
        self.name.is_some() || self.selects.is_some()
    }

    /// What somebody with this filter sees of the event, if anything.
    pub fn view(&self, event: &Event) -> Option<Seen> {
        let now = event.current.as_ref().is_some_and(|o| self.matches(o));
        let before = event.previous.as_ref().is_some_and(|o| self.matches(o));
        match (before, now) {
            (false, true) => Some(Seen::Added),
            (true, true) => Some(Seen::Modified),
            (true, false) => Some(Seen::Deleted),
            (false, false) => None,
        }
    }
}

pub type Item = (Seen, Arc<Event>);

/// The cache's side.
pub(super) struct Handle {
    filter: Arc<Filter>,
    queue: mpsc::Sender<Item>,
    overflow: Arc<AtomicBool>,
}

impl Handle {
    /// False when the watcher is gone or too slow, and to be forgotten.
    pub(super) fn offer(&self, event: &Arc<Event>) -> bool {
        if self.queue.is_closed() {
            return false;
        }
        let Some(seen) = self.filter.view(event) else { return true };
        match self.queue.try_send((seen, event.clone())) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.overflow.store(true, Ordering::Release);
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

/// The request's side. Dropping it ends the watch.
pub struct Watcher {
    pub filter: Arc<Filter>,
    queue: mpsc::Receiver<Item>,
    overflow: Arc<AtomicBool>,
}

impl Watcher {
    pub(super) fn pair(filter: Arc<Filter>) -> (Handle, Self) {
        let (sender, receiver) = mpsc::channel(QUEUE_EVENTS);
        let overflow = Arc::new(AtomicBool::new(false));
        let handle = Handle { filter: filter.clone(), queue: sender, overflow: overflow.clone() };
        (handle, Self { filter, queue: receiver, overflow })
    }

    /// The next event; `None` when the cache has closed or has dropped this watcher.
    pub async fn next(&mut self) -> Option<Item> {
        self.queue.recv().await
    }

    pub fn try_next(&mut self) -> Option<Item> {
        self.queue.try_recv().ok()
    }

    /// After [`next`](Self::next) returned `None`: whether that was because this watcher was too slow.
    pub fn overflowed(&self) -> bool {
        self.overflow.load(Ordering::Acquire)
    }
}
