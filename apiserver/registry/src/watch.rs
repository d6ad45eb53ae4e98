//! GET of a collection with `watch`: initial events, then live ones, with bookmarks.

use super::list::parse_version;
use super::{ListOptions, Scope, store_error};
use coracle_api::ApiError;
use coracle_resources::cache::{Cache, CachedObject, Item, WatchError, Watcher};
use coracle_store::Revision;
use rand::Rng;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Between bookmarks, as upstream: often enough that a client resumes inside the history.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// The last bookmark comes so long before the end, as upstream, so that the next watch resumes where this one ends.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Shortest life of a watch whose client names none, as upstream's `--min-request-timeout`; the longest is twice
/// that.
const MIN_TIMEOUT_SECONDS: u64 = 1800;

/// What the stream carries next.
pub enum Message {
    /// An object of the initial state.
    Initial(Arc<CachedObject>),
    Event(Item),
    /// Everything up to this revision has been sent; the flag marks the end of the initial events.
    Bookmark(Revision, bool),
    /// The last message: the client must start again.
    Error(ApiError),
}

/// A running watch.
pub struct Watch {
    cache: Arc<Cache>,
    watcher: Watcher,
    initial: std::vec::IntoIter<Arc<CachedObject>>,
    past: VecDeque<Item>,
    /// Announced after the initial events.
    initial_end: Option<Revision>,
    /// Events up to here are not for this client.
    after: Revision,
    bookmark_at: Option<Instant>,
    ends_at: Instant,
    /// One timer for the whole watch: the next bookmark, or the end.
    timer: Pin<Box<Sleep>>,
    done: bool,
}

impl Scope<'_> {
    /// Errors before the first event come back here; later ones are the stream's last message. So is a 410 or a 504
    /// for a revision that is gone or has not come, because clients look for them there.
    pub async fn watch(&self, options: &ListOptions) -> Result<Watch, ApiError> {
        let filter = self.filter(options)?;
        let asked = parse_version(&options.resource_version)
            .map_err(|error| ApiError::invalid(&self.resource.group, &self.resource.plural, "", &[error]))?;
        let wants_initial = options.send_initial_events.unwrap_or(matches!(asked, None | Some(Revision(0))));
        let storage = &*self.resource.storage.key;
        let cache = self.registry.cache.clone();
        if wants_initial {
            self.check_readable(&self.prefix(), |_| true)?;
            match asked {
                Some(asked) => self.reach(asked).await?,
                None => self.catch_up().await?,
            }
            let (snapshot, watcher) = cache.watch(storage, filter);
            let initial: Vec<_> = self
                .candidates(&snapshot, &watcher.filter, None)
                .filter(|object| watcher.filter.matches(object))
                .cloned()
                .collect();
            let announce = options.send_initial_events == Some(true) && options.bookmarks;
            let mut watch = Watch::new(cache, watcher, snapshot.revision, options);
            watch.done = self.is_outdated();
            watch.initial = initial.into_iter();
            watch.initial_end = announce.then_some(snapshot.revision);
            return Ok(watch);
        }
        let after = match asked {
            None | Some(Revision(0)) => cache.revision(),
            Some(after) => after,
        };
        match cache.watch_from(storage, filter, after).await {
            Ok((past, watcher)) => {
                let mut watch = Watch::new(cache, watcher, after, options);
                watch.done = self.is_outdated();
                watch.past = past.into();
                Ok(watch)
            }
            Err(WatchError::TooOld { asked, oldest }) => {
                Err(ApiError::expired(format!("too old resource version: {} ({})", asked.0, oldest.0)))
            }
            Err(WatchError::Store(error)) => Err(store_error(error)),
        }
    }
}

impl Scope<'_> {
    /// Whether the custom resource has been redefined since the request began: asked once the watcher stands, which
    /// nobody would end any more.
    fn is_outdated(&self) -> bool {
        self.strategy.custom().is_some_and(|custom| {
            let (definition, now) = (&custom.definition, self.registry.catalogue.snapshot());
            now.entry(&definition.key).is_none_or(|entry| entry.definition.serial != definition.serial)
        })
    }
}

/// How long the watch may last. A negative number of seconds ends it at once, as upstream.
fn lifetime(options: &ListOptions) -> Duration {
    match options.timeout_seconds {
        None | Some(0) => {
            Duration::from_secs(rand::rng().random_range(MIN_TIMEOUT_SECONDS..MIN_TIMEOUT_SECONDS * 2))
        }
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
    }
}

/// A client may name any number of seconds; a clock cannot tell all of them.
const ENDLESS_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl Watch {
    fn new(cache: Arc<Cache>, watcher: Watcher, after: Revision, options: &ListOptions) -> Self {
        let ends_at = Instant::now() + lifetime(options).min(ENDLESS_TIMEOUT);
        let mut watch = Self {
            cache,
            watcher,
            initial: Vec::new().into_iter(),
            past: VecDeque::new(),
            initial_end: None,
            after,
            bookmark_at: options.bookmarks.then(|| next_bookmark(ends_at)),
            ends_at,
            timer: Box::pin(tokio::time::sleep_until(ends_at)),
            done: false,
        };
        watch.set_timer();
        watch
    }

    fn set_timer(&mut self) {
        let wake = self.bookmark_at.map_or(self.ends_at, |at| at.min(self.ends_at));
        self.timer.as_mut().reset(wake);
    }

    /// What is there without waiting.
    pub fn ready(&mut self) -> Option<Message> {
        if let Some(object) = self.initial.next() {
            return Some(Message::Initial(object));
        }
        if let Some(revision) = self.initial_end.take() {
            return Some(Message::Bookmark(revision, true));
        }
        if let Some(item) = self.past.pop_front() {
            self.after = self.after.max(item.1.revision);
            return Some(Message::Event(item));
        }
        while let Some(item) = self.watcher.try_next() {
            if item.1.revision > self.after {
                return Some(Message::Event(item));
            }
        }
        None
    }

    /// The next message; `None` when the watch is over.
    pub async fn next(&mut self) -> Option<Message> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for bodies that are polled: nothing is set up or torn down between two messages.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        loop {
            if self.done {
                return Poll::Ready(None);
            }
            if let Some(message) = self.ready() {
                return Poll::Ready(Some(message));
            }
            match self.watcher.poll_next(cx) {
                Poll::Ready(Some(item)) if item.1.revision > self.after => {
                    return Poll::Ready(Some(Message::Event(item)));
                }
                Poll::Ready(Some(_)) => continue,
                Poll::Ready(None) => return Poll::Ready(self.lost()),
                Poll::Pending => {}
            }
            ready!(self.timer.as_mut().poll(cx));
            if let Some(message) = self.on_time() {
                return Poll::Ready(Some(message));
            }
        }
    }

    fn lost(&mut self) -> Option<Message> {
        self.done = true;
        self.watcher
            .overflowed()
            .then(|| Message::Error(ApiError::expired("too old resource version: the watcher was too slow")))
    }

    fn on_time(&mut self) -> Option<Message> {
        if Instant::now() >= self.ends_at {
            self.done = true;
            return None;
        }
        self.bookmark_at = self.bookmark_at.map(|_| next_bookmark(self.ends_at));
        self.set_timer();
        // Everything up to this revision is in the queue, if it is for this watcher; so an empty queue means sent.
        let revision = self.cache.revision();
        self.ready().or(Some(Message::Bookmark(revision.max(self.after), false)))
    }
}

/// About a minute from now, or shortly before the end if that comes first.
fn next_bookmark(ends_at: Instant) -> Instant {
    let now = Instant::now();
    let next = now + BOOKMARK_INTERVAL.mul_f64(rand::rng().random_range(0.95..1.05));
    match ends_at.checked_sub(BOOKMARK_BEFORE_END) {
        Some(last) if last > now => next.min(last),
        _ => next,
    }
}
