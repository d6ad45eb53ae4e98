//! Remembers for a moment what tokens were found to say, because checking costs: a signature a third of a millisecond, a
//! webhook a round trip.

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// One entry is about 1 KiB; a busy cluster has a few hundred service accounts at work. When it is full it is emptied,
/// which costs each of them one check.
const CAPACITY: usize = 1024;

/// A digest, so that no token lies in memory longer than its request.
pub(super) type Key = [u8; 32];

/// The key of these parts. Each goes in with its length, so that no two lists of parts have the same key, whatever
/// bytes they are made of.
pub(super) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Bounded. What is kept must be true for as long as it is kept, and for everybody who shows the same token: whatever can
/// change (times, audiences, objects) is judged again by those who ask.
pub(super) struct TokenCache<T> {
    /// `None`: until there is no room.
    ttl: Option<Duration>,
    entries: Mutex<HashMap<Key, (Instant, T)>>,
}

impl<T: Clone> TokenCache<T> {
    pub fn new(ttl: Option<Duration>) -> Self {
        Self { ttl, entries: Mutex::new(HashMap::new()) }
    }

    fn is_fresh(&self, at: Instant) -> bool {
        self.ttl.is_none_or(|ttl| at.elapsed() < ttl)
    }

    pub fn get(&self, key: &Key) -> Option<T> {
        let mut entries = self.entries.lock();
        let (at, found) = entries.get(key)?;
        if self.is_fresh(*at) {
            return Some(found.clone());
        }
        entries.remove(key);
        None
    }

    pub fn put(&self, key: Key, value: T) {
        let mut entries = self.entries.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, (at, _)| self.is_fresh(*at));
        }
        if entries.len() >= CAPACITY {
            entries.clear();
        }
        entries.insert(key, (Instant::now(), value));
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_bounded() {
        let cache = TokenCache::new(None);
        for i in 0..3 * CAPACITY {
            cache.put(key([i.to_string().as_str()]), i);
            assert!(cache.len() <= CAPACITY);
            assert_eq!(cache.get(&key([i.to_string().as_str()])), Some(i));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_gone() {
        let cache = TokenCache::new(Some(Duration::from_secs(10)));
        cache.put(key(["t"]), 1);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(cache.get(&key(["t"])), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(&key(["t"])), None);
    }

    proptest! {
        #[test]
        fn parts_are_kept_apart(a in prop::collection::vec("[a\\x00]{0,4}", 0..4), b in prop::collection::vec("[a\\x00]{0,4}", 0..4)) {
            let of = |parts: &[String]| key(parts.iter().map(String::as_str));
            prop_assert_eq!(a == b, of(&a) == of(&b));
        }
    }
}
