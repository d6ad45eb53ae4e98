//! Remembers accepted tokens for a moment, because checking a signature costs a third of a millisecond.

use super::TokenUser;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// As upstream's `--authentication-token-webhook-cache-ttl` for successes: a revoked token works so much longer.
const TTL: Duration = Duration::from_secs(10);
/// One entry is about 1 KiB; a busy cluster has a few hundred service accounts at work. When it is full it is emptied,
/// which costs each of them one signature.
const CAPACITY: usize = 1024;

type Key = [u8; 32];

/// Keyed by a digest, so that no token lies in memory longer than its request. Refusals are not remembered: a service
/// account may appear in the next moment.
pub(super) struct TokenCache {
    entries: Mutex<HashMap<Key, (Instant, TokenUser)>>,
}

impl TokenCache {
    pub fn new() -> Self {
        Self { entries: Mutex::new(HashMap::new()) }
    }

    pub fn get(&self, token: &str, audiences: &[String]) -> Option<TokenUser> {
        let mut entries = self.entries.lock();
        let key = key(token, audiences);
        let (at, found) = entries.get(&key)?;
        if at.elapsed() < TTL {
            return Some(found.clone());
        }
        entries.remove(&key);
        None
    }

    pub fn put(&self, token: &str, audiences: &[String], user: &TokenUser) {
        let mut entries = self.entries.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, (at, _)| at.elapsed() < TTL);
        }
        if entries.len() >= CAPACITY {
            entries.clear();
        }
        entries.insert(key(token, audiences), (Instant::now(), user.clone()));
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

fn key(token: &str, audiences: &[String]) -> Key {
    let mut hash = Sha256::new();
    hash.update(token);
    for audience in audiences {
        hash.update([0]);
        hash.update(audience);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_api::UserInfo;

    #[test]
    fn is_bounded_and_keeps_audiences_apart() {
        let cache = TokenCache::new();
        let user = TokenUser { user: UserInfo::authenticated("a", &[]), audiences: vec![] };
        cache.put("t", &["x".to_owned()], &user);
        assert!(cache.get("t", &["x".to_owned()]).is_some());
        assert!(cache.get("t", &[]).is_none());
        assert!(cache.get("u", &["x".to_owned()]).is_none());
        for i in 0..3 * CAPACITY {
            cache.put(&i.to_string(), &[], &user);
            assert!(cache.len() <= CAPACITY);
        }
    }
}
