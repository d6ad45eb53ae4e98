//! GET of a collection with `watch`: initial events, then live ones, with bookmarks.

use super::list::parse_version;
use super::options::{VersionMatch, invalid_options};
use super::{ListOptions, Scope, store_error};
use crate::cache::{Cache, CachedObject, Item, WatchError, Watcher, within};
use crate::store::Revision;
use coracle_api::{ApiError, FieldError};
use rand::Rng;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between bookmarks, as upstream: often enough that a client resumes inside the history.
const BOOKMARK_SECONDS: u64 = 60;

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
    done: bool,
}

impl Scope<'_> {
    /// Errors before the first event come back here; later ones are the stream's last message.
    pub async fn watch(&self, options: &ListOptions) -> Result<Watch, ApiError> {
        check(options)?;
        let filter = self.filter(options)?;
        let asked = parse_version(&options.resource_version)?;
        let wants_initial = options.send_initial_events.unwrap_or(matches!(asked, None | Some(Revision(0))));
        let storage = &*self.resource.storage.key;
        let cache = self.registry.cache.clone();
        if wants_initial {
            match asked {
                Some(asked) => self.reach(asked).await?,
                None => {
                    cache.wait_for(self.registry.store.revision(), Duration::from_secs(3)).await;
                }
            }
            let (snapshot, watcher) = cache.watch(storage, filter);
            let initial: Vec<_> = within(&snapshot.objects, storage, self.namespace, None)
                .filter(|object| watcher.filter.matches(object))
                .cloned()
                .collect();
            let announce = options.send_initial_events == Some(true) && options.bookmarks;
            let mut watch = Watch::new(cache, watcher, snapshot.revision, options);
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

fn check(options: &ListOptions) -> Result<(), ApiError> {
    let refuse = |error| Err(invalid_options("ListOptions", error));
    if options.send_initial_events.is_some() && options.version_match != Some(VersionMatch::NotOlderThan) {
        return refuse(FieldError::forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if options.send_initial_events.is_none() && options.version_match.is_some() {
        return refuse(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ));
    }
    Ok(())
}

impl Watch {
    fn new(cache: Arc<Cache>, watcher: Watcher, after: Revision, options: &ListOptions) -> Self {
        let seconds = options
            .timeout_seconds
            .filter(|s| *s > 0)
            .unwrap_or_else(|| rand::rng().random_range(MIN_TIMEOUT_SECONDS..MIN_TIMEOUT_SECONDS * 2));
        Self {
            cache,
            watcher,
            initial: Vec::new().into_iter(),
            past: VecDeque::new(),
            initial_end: None,
            after,
            bookmark_at: options.bookmarks.then(next_bookmark),
            ends_at: Instant::now() + Duration::from_secs(seconds),
            done: false,
        }
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
        loop {
            if self.done {
                return None;
            }
            if let Some(message) = self.ready() {
                return Some(message);
            }
            let wake = self.bookmark_at.map_or(self.ends_at, |at| at.min(self.ends_at));
            tokio::select! {
                biased;
                item = self.watcher.next() => match item {
                    Some(item) if item.1.revision > self.after => return Some(Message::Event(item)),
                    Some(_) => {}
                    None => return self.lost(),
                },
                () = tokio::time::sleep_until(wake) => {
                    if let Some(message) = self.on_time() {
                        return Some(message);
                    }
                }
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
        let now = Instant::now();
        if now >= self.ends_at {
            self.done = true;
            return None;
        }
        self.bookmark_at = self.bookmark_at.map(|_| next_bookmark());
        // Everything up to this revision is in the queue, if it is for this watcher; so an empty queue means sent.
        let revision = self.cache.revision();
        match self.ready() {
            Some(message) => Some(message),
            None if revision > self.after => Some(Message::Bookmark(revision, false)),
            None => None,
        }
    }
}

fn next_bookmark() -> Instant {
    let jitter = rand::rng().random_range(0..BOOKMARK_SECONDS * 100);
    Instant::now() + Duration::from_secs(BOOKMARK_SECONDS - 3) + Duration::from_millis(jitter)
}
