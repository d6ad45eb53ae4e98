//! Values that say which write they come from, and cost nothing to make.

use crate::lines::{Held, Number};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use ring::digest::{SHA256, digest};

/// Bytes that do not compress, from which values are cut at random places.
const POOL: usize = 1 << 20;

pub struct Values {
    pool: Vec<u8>,
}

impl Values {
    pub fn new() -> Self {
        let mut pool = vec![0; POOL];
        SmallRng::seed_from_u64(1).fill_bytes(&mut pool);
        Self { pool }
    }

    pub fn make(&self, key: &str, number: Number, uid: u64, len: usize, rng: &mut SmallRng) -> (Bytes, Held) {
        let mut value = format!("{key} {number} {uid}\n").into_bytes();
        let rest = len.saturating_sub(value.len());
        let at = rng.random_range(0..POOL - rest);
        value.extend_from_slice(&self.pool[at..at + rest]);
        let held = Held { number, uid, digest: digest_of(&value) };
        (value.into(), held)
    }
}

fn digest_of(value: &[u8]) -> u64 {
    digest(&SHA256, value).as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Number and UID as a value tells them; zeroes where it does not belong to the key.
pub fn head(key: &str, value: &[u8]) -> (Number, u64) {
    let head = value.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = std::str::from_utf8(head).unwrap_or_default().split(' ');
    let fits = words.next() == Some(key);
    let mut number = || words.next().and_then(|word| word.parse().ok()).filter(|_| fits).unwrap_or(0);
    (number(), number())
}

pub fn held(key: &str, value: &[u8]) -> Held {
    let (number, uid) = head(key, value);
    Held { number, uid, digest: digest_of(value) }
}
