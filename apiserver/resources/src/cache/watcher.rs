//! A watcher's end of the cache: a filter, and a bounded queue.

use super::event::{Event, Seen};
use super::object::CachedObject;
use super::routes::{Registration, Route};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Events a watcher may be behind before it is dropped. At 2 KiB an event that is shared anyway, the queue itself
/// costs 32 KiB; a burst of 500 pods with three updates each must fit.
pub const QUEUE_EVENTS: usize = 2048;

/// An emptied queue that has grown beyond this gives its memory back.
const KEPT_EVENTS: usize = 64;

type Predicate = Box<dyn Fn(&CachedObject) -> bool + Send + Sync>;

/// Which objects of a resource a request is about.
#[derive(Default)]
pub struct Filter {
    /// `None`: all namespaces.
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// A selectable field that must have this value, not empty. `selects` asks for it too; here it tells where to look.
    pub field: Option<(String, String)>,
    /// Whether the request came with selectors.
    pub selective: bool,
    /// What the selectors ask beyond namespace and name.
    pub selects: Option<Predicate>,
}

impl Filter {
    pub fn matches(&self, object: &CachedObject) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == object.namespace())
            && self.name.as_deref().is_none_or(|n| n == object.name())
            && self.selects.as_ref().is_none_or(|f| f(object))
    }

    /// Whether every object of the namespace matches.
    pub fn takes_all(&self) -> bool {
        self.name.is_none() && self.selects.is_none()
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

    pub(super) fn route(&self) -> Route {
        match (&self.namespace, &self.name, &self.field) {
            (Some(namespace), Some(name), _) => Route::Object(format!("{namespace}/{name}")),
            (None, Some(name), _) => Route::Name(name.clone()),
            (_, None, Some((field, value))) => Route::Field(field.clone(), value.clone()),
            (Some(namespace), None, None) => Route::Namespace(namespace.clone()),
            (None, None, None) => Route::All,
        }
    }
}

pub type Item = (Seen, Arc<Event>);

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    waker: Option<Waker>,
    closed: bool,
    overflow: bool,
}

/// What the two ends share.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

impl Queue {
    fn close(&self, overflow: bool) {
        let waker = {
            let mut state = self.0.lock();
            state.closed = true;
            state.overflow |= overflow;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The cache's side. Dropping it ends the watch, after what is queued.
pub(super) struct Handle {
    pub id: u64,
    filter: Arc<Filter>,
    queue: Arc<Queue>,
}

impl Handle {
    /// Queues what this watcher sees of the event. Whoever waits for it is added to `wake`, so that all are woken once,
    /// after everybody's queue is filled. False when the watcher is too slow, and to be forgotten.
    pub(super) fn offer(&self, event: &Arc<Event>, wake: &mut Vec<Waker>) -> bool {
        let Some(seen) = self.filter.view(event) else { return true };
        let mut state = self.queue.0.lock();
        if state.items.len() >= QUEUE_EVENTS {
            state.overflow = true;
            return false;
        }
        state.items.push_back((seen, event.clone()));
        wake.extend(state.waker.take());
        true
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close(false);
    }
}

/// The request's side. Dropping it ends the watch.
pub struct Watcher {
    pub filter: Arc<Filter>,
    queue: Arc<Queue>,
    _registration: Registration,
}

impl Watcher {
    pub(super) fn new(filter: Arc<Filter>, queue: Arc<Queue>, registration: Registration) -> Self {
        Self { filter, queue, _registration: registration }
    }

    pub(super) fn handle(id: u64, filter: Arc<Filter>, queue: Arc<Queue>) -> Handle {
        Handle { id, filter, queue }
    }

    /// The next event; `None` when the cache has closed or has dropped this watcher.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut state = self.queue.0.lock();
        match state.take() {
            Some(item) => Poll::Ready(Some(item)),
            None if state.closed => Poll::Ready(None),
            None => {
                if !state.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    state.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    pub async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn try_next(&mut self) -> Option<Item> {
        self.queue.0.lock().take()
    }

    /// After [`next`](Self::next) returned `None`: whether that was because this watcher was too slow.
    pub fn overflowed(&self) -> bool {
        self.queue.0.lock().overflow
    }
}

impl State {
    fn take(&mut self) -> Option<Item> {
        let item = self.items.pop_front();
        if self.items.is_empty() && self.items.capacity() > KEPT_EVENTS {
            self.items = VecDeque::new();
        }
        item
    }
}
