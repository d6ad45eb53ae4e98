//! A value in memory: as it was written, or packed while nobody reads it.
//!
//! ```text
//!          pack: two looks without a reader in between
//! plain ---------------------------------------------> packed
//!   ^                                                    |
//!   +------------------- bytes: a reader ----------------+
//! ```

use bytes::Bytes;
use parking_lot::{RwLock, RwLockUpgradableReadGuard};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Shared by all who hold it: the store, its history and the watch cache keep one. Cloning is cheap.
#[derive(Clone)]
pub struct Value(Arc<Shared>);

struct Shared {
    held: RwLock<Held>,
    /// How many looks have found it at rest since it was read, or [`UNFIT`].
    looks: AtomicU8,
}

enum Held {
    Plain(Bytes),
    Packed(Packed),
}

/// What takes the place of a value's bytes, and gives them back.
pub(super) struct Packed {
    /// Length of the plain bytes in four bytes, then what LZ4 makes of them with the dictionary.
    pub bytes: Box<[u8]>,
    pub dictionary: Arc<Dictionary>,
}

/// Text that values begin from: what stands in it is a reference of a few bytes in them.
#[derive(Default)]
pub(super) struct Dictionary(pub Box<[u8]>);

/// A value is packed at the second look: what is written in a burst is mostly read or written again at once.
const RESTED: u8 = 2;

/// Of what does not get smaller, and is not tried again.
const UNFIT: u8 = u8::MAX;

impl Value {
    /// Keeps `bytes` as they are; what they are a part of stays in memory, too.
    pub fn new(bytes: Bytes) -> Self {
        Self(Arc::new(Shared { held: RwLock::new(Held::Plain(bytes)), looks: AtomicU8::new(0) }))
    }

    /// In memory of its own, of its own size: what the caller built it in is mostly twice as large, and values stay for
    /// long.
    pub fn compact(bytes: &[u8]) -> Self {
        Self::new(Bytes::copy_from_slice(bytes))
    }

    /// The bytes. Who reads a value reads it again, so it stays unpacked until it has rested.
    pub fn bytes(&self) -> Bytes {
        self.note_reader();
        if let Held::Plain(bytes) = &*self.0.held.read() {
            return bytes.clone();
        }
        self.unpack()
    }

    /// As [`bytes`](Self::bytes), for who needs them during `read` only: nothing is counted. `read` must be quick, and must not
    /// ask the value for anything.
    pub fn read<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        self.note_reader();
        if let Held::Plain(bytes) = &*self.0.held.read() {
            return read(bytes);
        }
        read(&self.unpack())
    }

    fn note_reader(&self) {
        let looks = &self.0.looks;
        if !matches!(looks.load(Relaxed), 0 | UNFIT) {
            looks.store(0, Relaxed);
        }
    }

    fn unpack(&self) -> Bytes {
        let mut held = self.0.held.write();
        let bytes = held.plain();
        *held = Held::Plain(bytes.clone());
        bytes
    }

    /// The bytes, for who reads everything once: a packed value stays packed.
    pub fn peek(&self) -> Bytes {
        self.0.held.read().plain()
    }

    /// Length of the bytes, packed or not.
    pub fn len(&self) -> usize {
        match &*self.0.held.read() {
            Held::Plain(bytes) => bytes.len(),
            Held::Packed(packed) => packed.plain_len(),
        }
    }

    /// Bytes that it takes in memory, beside the dictionary.
    pub fn held_len(&self) -> usize {
        match &*self.0.held.read() {
            Held::Plain(bytes) => bytes.len(),
            Held::Packed(packed) => packed.bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn starts_with(&self, start: &[u8]) -> bool {
        match &*self.0.held.read() {
            Held::Plain(bytes) => bytes.starts_with(start),
            packed @ Held::Packed(_) => packed.plain().starts_with(start),
        }
    }

    pub fn is_packed(&self) -> bool {
        matches!(&*self.0.held.read(), Held::Packed(_))
    }

    /// Notes that it was looked at; says whether it has rested for long enough to be packed.
    pub(super) fn look(&self) -> bool {
        let looks = self.0.looks.load(Relaxed);
        if looks < RESTED {
            self.0.looks.store(looks + 1, Relaxed);
        }
        (RESTED - 1..UNFIT).contains(&looks) && !self.is_packed()
    }

    /// Packs it, unless others have its bytes in their hands: they would be in memory twice. `pack` says `None` where it
    /// is not worth it; nobody asks again then. Returned is how many bytes were looked at.
    pub(super) fn pack(&self, pack: impl FnOnce(&[u8]) -> Option<Packed>) -> usize {
        let held = self.0.held.upgradable_read();
        let Held::Plain(bytes) = &*held else { return 0 };
        if !bytes.is_unique() {
            return 0;
        }
        let len = bytes.len();
        match pack(bytes) {
            None => self.0.looks.store(UNFIT, Relaxed),
            Some(packed) if self.0.looks.load(Relaxed) >= RESTED => {
                *RwLockUpgradableReadGuard::upgrade(held) = Held::Packed(packed);
            }
            // Read meanwhile.
            Some(_) => {}
        }
        len
    }
}

impl Held {
    fn plain(&self) -> Bytes {
        match self {
            Self::Plain(bytes) => bytes.clone(),
            Self::Packed(packed) => packed.unpack().into(),
        }
    }
}

impl Packed {
    pub fn plain_len(&self) -> usize {
        let len = self.bytes.first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len));
        // 32 bits are never too many for `usize` here.
        len as usize
    }

    /// # Panics
    /// If the bytes are not what they were: packing unpacks once to see that they can be.
    pub fn unpack(&self) -> Vec<u8> {
        self.try_unpack().expect("a value in memory is not what was packed")
    }

    pub fn try_unpack(&self) -> Option<Vec<u8>> {
        let mut plain = vec![0; self.plain_len()];
        let packed = self.bytes.get(4..)?;
        let len = lz4_flex::block::decompress_into_with_dict(packed, &mut plain, &self.dictionary.0).ok()?;
        (len == plain.len()).then_some(plain)
    }
}

impl<T: Into<Bytes>> From<T> for Value {
    fn from(bytes: T) -> Self {
        Self::new(bytes.into())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.peek() == other.peek()
    }
}

impl Eq for Value {}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.peek() == other
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_no_more_room_than_the_bytes_handle_and_its_counters() {
        assert!(size_of::<Shared>() + 2 * size_of::<usize>() <= 64, "{}", size_of::<Shared>());
        assert_eq!(size_of::<Option<Value>>(), size_of::<usize>());
    }

    fn packed(plain: &[u8]) -> Option<Packed> {
        let dictionary = Arc::<Dictionary>::default();
        let len = u32::try_from(plain.len()).unwrap();
        let bytes = [&len.to_le_bytes()[..], &lz4_flex::block::compress(plain)].concat().into();
        Some(Packed { bytes, dictionary })
    }

    #[test]
    fn it_is_packed_when_it_rests_and_unpacked_when_it_is_read() {
        let text = "a".repeat(1000);
        let value = Value::compact(text.as_bytes());
        assert!(!value.look(), "it may be read again at once");
        assert_eq!(value.bytes(), text);
        assert!(!value.look() && value.look());
        assert_eq!(value.pack(packed), 1000);
        assert!(value.is_packed() && !value.look());
        assert_eq!((value.peek(), value.len(), value.starts_with(b"aa")), (text.clone().into(), 1000, true));
        assert!(value.is_packed(), "who only looks leaves it");
        assert!(value == Value::compact(text.as_bytes()) && value.is_packed());
        assert_eq!(value.bytes(), text);
        assert!(!value.is_packed() && !value.look() && value.look());
    }

    #[test]
    fn what_somebody_holds_or_reads_meanwhile_or_does_not_shrink_stays() {
        let value = Value::compact(&[b'a'; 1000]);
        let held = value.bytes();
        assert!(!value.look() && value.look());
        assert_eq!((value.pack(packed), value.is_packed()), (0, false));
        drop(held);
        let reader = value.clone();
        value.pack(|plain| {
            reader.bytes();
            packed(plain)
        });
        assert!(!value.is_packed(), "it was read while it was packed");
        assert!(!value.look() && value.look());
        value.pack(|_| None);
        assert!(!value.is_packed() && !value.look() && !value.look() && !value.look(), "nobody tries again");
        assert_eq!(value.bytes().len(), 1000);
    }
}
