//! The checkpoint: the durable state as of one revision, in a sled tree.
//!
//! sled 0.34.7 is trusted with nothing: values over 4 KiB are cut into pieces so that it never writes a blob file
//! (which it does not sync), its files are synced from outside, every value carries its revisions and a checksum, and
//! the tree carries the number of its keys and a digest of what they hold, written in the same batch as the revision.
//! It is open only while it is read or written, so that between checkpoints its cache costs no memory. The threads of
//! its pool stay once it was used, and wake up once a second each; there is no way to end them.

use super::disk;
use super::record::{Input, put_u64};
use crate::item::{Item, Present};
use crate::{Revision, Value};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// sled keeps its pages' history in blob files beyond a certain size; values of 4 KiB never get there.
const PIECE: usize = 4096;
const CACHE_BYTES: u64 = 8 << 20;
/// sled's own lock outlives a closed tree until its threads have synced a file that they made shorter: seconds on a disk
/// that others keep busy. Nobody else can hold it, because this store's lock is held first.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Of the pieces written at a time when a tree is built anew, to bound what sled holds in memory.
const PART_BYTES: usize = 4 << 20;
/// Each frees up to 512 of the pages that sled has replaced; a batch replaces some thousands, and for what is not there
/// it takes no time.
const SWEEPS: usize = 2048;
/// Values that are read between two questions whether to stop: a millisecond's work.
const STOP_EVERY: u32 = 256;
/// Sorts before every key.
const META: &[u8] = b"\0meta";
const FORMAT: u64 = 1;

#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("sled")]
    Sled(#[source] ::sled::Error),
    #[error("file")]
    Io(#[from] io::Error),
    #[error("sled panicked: {0}")]
    Panic(String),
    #[error("{0}")]
    Disagrees(String),
    #[error("the store is being closed")]
    Stopped,
}

impl TreeError {
    pub fn is_full(&self) -> bool {
        match self {
            Self::Sled(::sled::Error::Io(error)) | Self::Io(error) => disk::is_full(error),
            Self::Panic(text) => panicked_of_full_disk(text),
            _ => false,
        }
    }
}

/// sled's threads unwrap the errors that they meet: what is left of one is its `Debug` form in the panic's text, with the
/// name of its [`io::ErrorKind`]. There is nothing else to tell a full disk from a broken one by.
fn panicked_of_full_disk(text: &str) -> bool {
    let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].map(|kind| format!("{kind:?}"));
    kinds.iter().any(|kind| text.contains(kind)) || text.contains("No space left")
}

impl From<::sled::Error> for TreeError {
    fn from(error: ::sled::Error) -> Self {
        Self::Sled(error)
    }
}

#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub present: Present,
    pub revision: Revision,
}

/// Reads the whole tree and checks all of it.
pub(super) fn load(dir: &Path) -> Result<Loaded, TreeError> {
    load_counted(dir, |_| {})
}

/// As [`load`]; `count` is told the bytes of keys and values.
pub(super) fn load_counted(dir: &Path, count: impl Fn(u64)) -> Result<Loaded, TreeError> {
    guarded(|| {
        let db = open(dir)?;
        read(&db, count)
    })
}

/// Reads and checks all of it, keeping nothing, until it is to stop.
pub(super) fn verify(dir: &Path, stop: impl Fn() -> bool) -> Result<(), TreeError> {
    guarded(|| {
        let mut count = 0_u32;
        let sink = |_: &str, _| {
            count += 1;
            if count.is_multiple_of(STOP_EVERY) && stop() { Err(TreeError::Stopped) } else { Ok(()) }
        };
        each(&open(dir)?, sink).map(drop)
    })
}

/// Brings the tree up to `revision`: `changes` are the keys that differ from what it holds, with what they hold now,
/// and `present` is the whole state, of which only the digest is taken. All in one batch.
pub(super) fn update<'a>(
    dir: &Path,
    changes: impl Iterator<Item = (&'a Arc<str>, Option<&'a Item>)>,
    present: &Present,
    revision: Revision,
) -> Result<(), TreeError> {
    guarded(|| {
        let db = open(dir)?;
        let mut batch = ::sled::Batch::default();
        for (key, item) in changes {
            change(&db, &mut batch, key, item)?;
        }
        batch.insert(META, Tally::of(present).meta(revision));
        db.apply_batch(batch)?;
        settle(&db, dir)
    })
}

/// Writes a whole new tree into an empty directory.
pub(super) fn build(dir: &Path, present: &Present, revision: Revision) -> Result<(), TreeError> {
    guarded(|| {
        let db = open(dir)?;
        let mut batch = ::sled::Batch::default();
        let mut bytes = 0;
        for (key, item) in present {
            for (name, piece) in pieces(key, item) {
                bytes += piece.len();
                batch.insert(name, piece);
            }
            if bytes > PART_BYTES {
                db.apply_batch(std::mem::take(&mut batch))?;
                sweep();
                bytes = 0;
            }
        }
        batch.insert(META, Tally::of(present).meta(revision));
        db.apply_batch(batch)?;
        settle(&db, dir)
    })
}

/// Bytes of keys and values.
pub(super) fn live_bytes(present: &Present) -> u64 {
    present.iter().map(|(key, item)| (key.len() + item.value.len()) as u64).sum()
}

fn guarded<T>(work: impl FnOnce() -> Result<T, TreeError>) -> Result<T, TreeError> {
    let done = catch_unwind(AssertUnwindSafe(work));
    sweep();
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(TreeError::Panic(text.unwrap_or_default()))
    })
}

fn open(dir: &Path) -> Result<::sled::Db, TreeError> {
    let fresh = !dir.join("db").exists();
    disk::create_dir(dir)?;
    let config = ::sled::Config::new()
        .path(dir)
        .cache_capacity(CACHE_BYTES)
        .mode(::sled::Mode::LowSpace)
        .flush_every_ms(None);
    wait_for_lock(dir)?;
    let db = config.open()?;
    if fresh {
        File::open(dir.join("conf"))?.sync_all()?;
        disk::sync_dir(dir)?;
    }
    Ok(db)
}

/// Waits for an earlier store of this process that is still being closed: nobody else gets this far, as the directory has a
/// lock of its own. sled would say that its file is locked by a text alone.
fn wait_for_lock(dir: &Path) -> Result<(), TreeError> {
    let begun = Instant::now();
    loop {
        let file = match File::open(dir.join("db")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_INTERVAL)
            }
            // Not there on this file system, or held for too long: sled says so itself.
            _ => return Ok(()),
        }
    }
}

/// Puts on stable storage what sled calls flushed.
fn settle(db: &::sled::Db, dir: &Path) -> Result<(), TreeError> {
    db.flush()?;
    File::open(dir.join("db"))?.sync_data()?;
    disk::sync_dir(dir)?;
    let blobs = std::fs::read_dir(dir.join("blobs")).map_or(0, Iterator::count);
    if blobs > 0 {
        return Err(TreeError::Disagrees(format!("{blobs} blob files, which sled does not sync")));
    }
    Ok(())
}

/// Frees what sled has replaced. It would free a little with every 128th access to a tree (crossbeam-epoch's pinnings)
/// and at no other time: without this a batch of 8 MiB leaves some 50 MiB behind until the next one.
fn sweep() {
    for _ in 0..SWEEPS {
        crossbeam_epoch::pin().flush();
    }
}

fn change(
    db: &::sled::Db,
    batch: &mut ::sled::Batch,
    key: &str,
    item: Option<&Item>,
) -> Result<(), TreeError> {
    let mut count = 0;
    for (name, piece) in item.into_iter().flat_map(|item| pieces(key, item)) {
        batch.insert(name, piece);
        count += 1;
    }
    // What a longer value before left behind.
    for old in db.range(name(key, count)..=name(key, u16::MAX)).keys() {
        batch.remove(old?);
    }
    Ok(())
}

fn name(key: &str, piece: u16) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len() + 3);
    name.extend_from_slice(key.as_bytes());
    name.push(0);
    name.extend_from_slice(&piece.to_be_bytes());
    name
}

/// A value as sled gets it: created, modified, length, checksum and the bytes, cut into pieces.
fn pieces(key: &str, item: &Item) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let mut whole = Vec::with_capacity(item.value.len() + 24);
    put_u64(&mut whole, item.created.0);
    put_u64(&mut whole, item.modified.0);
    let value = item.value.peek();
    put_u64(&mut whole, u64::from(checksum(key, item, &value)));
    whole.extend_from_slice(&value);
    let parts: Vec<Vec<u8>> = whole.chunks(PIECE).map(<[u8]>::to_vec).collect();
    let names: Vec<Vec<u8>> = (0u16..).take(parts.len()).map(|piece| name(key, piece)).collect();
    names.into_iter().zip(parts)
}

fn checksum(key: &str, item: &Item, value: &[u8]) -> u32 {
    let mut crc = crc32c::crc32c(key.as_bytes());
    for revision in [item.created, item.modified] {
        crc = crc32c::crc32c_append(crc, &revision.0.to_le_bytes());
    }
    crc32c::crc32c_append(crc, value)
}

/// The number of keys, and a sum over all of them that two different states practically never share: it names every key's
/// revision, and one revision of a key has one value only.
#[derive(Default)]
struct Tally {
    count: u64,
    digest: u64,
}

impl Tally {
    fn of(present: &Present) -> Self {
        let mut tally = Self::default();
        for (key, item) in present {
            tally.add(key, item.modified);
        }
        tally
    }

    fn add(&mut self, key: &str, modified: Revision) {
        let low = crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), &modified.0.to_le_bytes());
        let high = crc32c::crc32c_append(crc32c::crc32c(&modified.0.to_be_bytes()), key.as_bytes());
        let of_key = (u64::from(high) << 32 | u64::from(low)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.count += 1;
        self.digest = self.digest.wrapping_add(of_key);
    }

    fn meta(&self, revision: Revision) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(40);
        for field in [FORMAT, revision.0, self.count, self.digest] {
            put_u64(&mut bytes, field);
        }
        let crc = crc32c::crc32c(&bytes);
        put_u64(&mut bytes, u64::from(crc));
        bytes
    }
}

fn read(db: &::sled::Db, count: impl Fn(u64)) -> Result<Loaded, TreeError> {
    let mut present = Present::new();
    let revision = each(db, |key, item| {
        count((key.len() + item.value.len()) as u64);
        present.insert(Arc::from(key), item);
        Ok(())
    })?;
    Ok(Loaded { present, revision })
}

/// Hands over all that the tree holds, one by one, and checks all of it; returns as of which revision it is. What was handed
/// over counts for nothing if it fails.
fn each(
    db: &::sled::Db,
    mut sink: impl FnMut(&str, Item) -> Result<(), TreeError>,
) -> Result<Revision, TreeError> {
    let mut value: Option<(String, Pieces)> = None;
    let (mut expected, mut tally) = (None, Tally::default());
    let mut whole = |value: Option<(String, Pieces)>| -> Result<(), TreeError> {
        let Some((key, pieces)) = value else { return Ok(()) };
        let item = finish(&key, &pieces)?;
        tally.add(&key, item.modified);
        sink(&key, item)
    };
    for entry in db.iter() {
        let (name, piece) = entry?;
        if &*name == META {
            expected = Some(piece.to_vec());
            continue;
        }
        let (key, index) = split(&name).ok_or_else(|| TreeError::Disagrees("a strange key".into()))?;
        match &mut value {
            Some((current, pieces)) if current == key => pieces.add(index, &piece)?,
            _ if index > 0 => {
                return Err(TreeError::Disagrees("the first piece of a value is missing".into()));
            }
            _ => whole(value.replace((key.to_owned(), Pieces::One(piece))))?,
        }
    }
    whole(value)?;
    let Some(expected) = expected else {
        return Err(TreeError::Disagrees("it does not say as of which revision it is".into()));
    };
    let revision = Input(expected.get(8..).unwrap_or_default()).u64().map(Revision).unwrap_or_default();
    if tally.meta(revision) != expected {
        return Err(TreeError::Disagrees("it does not hold what it says it holds".into()));
    }
    Ok(revision)
}

/// What is left of a damaged tree.
#[derive(Default)]
pub(super) struct Salvaged {
    /// Values that are whole, which need not be of one time.
    pub present: Present,
    /// What is not, in words.
    pub lost: Vec<String>,
}

/// Reads value by value what is intact.
pub(super) fn salvage(dir: &Path) -> Salvaged {
    let (mut values, mut expected) = (BTreeMap::<String, Vec<(u16, ::sled::IVec)>>::new(), None);
    let read = guarded(|| {
        for entry in open(dir)?.iter() {
            let (name, piece) = entry?;
            if &*name == META {
                expected = Input(piece.get(16..).unwrap_or_default()).u64();
            } else if let Some((key, index)) = split(&name) {
                values.entry(key.to_owned()).or_default().push((index, piece));
            }
        }
        Ok(())
    });
    let mut found = Salvaged::default();
    if let Err(error) = read {
        found.lost.push(format!("what sled has no more ({error})"));
    }
    for (key, parts) in values {
        match joined(&key, parts) {
            Ok(item) => drop(found.present.insert(Arc::from(key), item)),
            Err(error) => found.lost.push(error.to_string()),
        }
    }
    let left = found.present.len() as u64;
    match expected {
        Some(count) if count <= left => {}
        Some(count) => found.lost.push(format!("{} of {count} objects of the checkpoint", count - left)),
        None => found
            .lost
            .push(format!("the checkpoint but for {left} objects; it no longer says how many it had")),
    }
    found
}

fn joined(key: &str, parts: Vec<(u16, ::sled::IVec)>) -> Result<Item, TreeError> {
    let mut parts = parts.into_iter();
    let Some((0, first)) = parts.next() else {
        return Err(TreeError::Disagrees(format!("{key}: its first piece is missing")));
    };
    let mut pieces = Pieces::One(first);
    for (index, piece) in parts {
        pieces.add(index, &piece)?;
    }
    finish(key, &pieces)
}

/// What was read of a value. Most have one piece, which is copied once only.
enum Pieces {
    One(::sled::IVec),
    Many(Vec<u8>),
}

impl Pieces {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::One(piece) => piece,
            Self::Many(bytes) => bytes,
        }
    }

    fn add(&mut self, index: u16, piece: &[u8]) -> Result<(), TreeError> {
        if self.bytes().len() != usize::from(index) * PIECE {
            return Err(TreeError::Disagrees("a piece of a value is missing".into()));
        }
        match self {
            Self::One(first) => *self = Self::Many([&**first, piece].concat()),
            Self::Many(bytes) => bytes.extend_from_slice(piece),
        }
        Ok(())
    }
}

fn split(name: &[u8]) -> Option<(&str, u16)> {
    let (key, tail) = name.split_at_checked(name.len().checked_sub(3)?)?;
    let key = std::str::from_utf8(key).ok()?;
    (tail[0] == 0).then_some((key, u16::from_be_bytes([tail[1], tail[2]])))
}

fn finish(key: &str, pieces: &Pieces) -> Result<Item, TreeError> {
    let mut input = Input(pieces.bytes());
    let (Some(created), Some(modified), Some(crc)) = (input.u64(), input.u64(), input.u64()) else {
        return Err(TreeError::Disagrees(format!("{key} is cut short")));
    };
    let item =
        Item { value: Value::compact(input.0), created: Revision(created), modified: Revision(modified) };
    if u64::from(checksum(key, &item, input.0)) != crc {
        return Err(TreeError::Disagrees(format!("{key} is damaged")));
    }
    Ok(item)
}
