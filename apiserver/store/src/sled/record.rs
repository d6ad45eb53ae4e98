//! What the journal is made of: records of one transaction or one note each, in the order they happened.
//!
//! On disk a record is a header of 16 bytes (mark, payload length, CRC32C, durable offset) and its payload, padded to
//! eight bytes. The checksum is seeded with the segment's number, so what an earlier use of a recycled segment left
//! behind never passes for a record. The durable offset says up to where the segment was known to be on stable
//! storage when the record was written: damage in front of it hit acknowledged data, damage behind it is a torn write.
//! Behind the last record of a group stands a mark of the end, which the next group overwrites: where neither a record nor
//! the mark is found, something was there.

use crate::{Commit, Revision};
use bytes::Bytes;
use std::sync::Arc;

const MARK: u32 = 0x4a72_436f;
pub(super) const HEADER: usize = 16;
const END_MARK: u32 = 0xb51d_3c90;
/// Bytes of the mark of the end.
pub(super) const END: usize = 8;
pub(super) const ALIGN: usize = 8;

/// As earlier versions wrote them: without the newest commit before.
const OLD_COMMIT: u8 = 1;
const OLD_RESERVE: u8 = 2;
const OLD_CHECKPOINT: u8 = 3;
const OLD_CLOSE: u8 = 4;
const CHECKPOINT: u8 = 5;
const CLOSE: u8 = 6;
const COMMIT: u8 = 7;
const RESERVE: u8 = 8;
/// How many earlier uses of a recycled segment's bytes are looked for: 2 GiB of journal. Segments are recycled much sooner.
const EARLIER_USES: u64 = 512;

/// An operation as replayed: a deletion has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replay {
    pub key: Arc<str>,
    pub value: Option<(Revision, Bytes)>,
}

/// A transaction or a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub body: Body,
    /// The newest commit in front of this record; `None` where an earlier version wrote it.
    pub before: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// A durable transaction, with the wall clock in milliseconds since 1970 (only to tell how old history is).
    Commit { revision: Revision, millis: u64, ops: Vec<Replay> },
    /// Revisions up to this one may have been used by transactions that are not in the journal.
    Reserve(Revision),
    /// The tree holds the state as of this revision.
    Checkpoint(Revision),
    /// A clean stop at this revision; nothing after it was used.
    Close(Revision),
}

impl Record {
    /// The revision of a commit.
    pub fn revision(&self) -> Option<Revision> {
        match &self.body {
            Body::Commit { revision, .. } => Some(*revision),
            _ => None,
        }
    }

    /// Every commit in front of this record has this revision or an earlier one, as far as the record tells.
    pub fn bound(&self) -> Option<Revision> {
        match &self.body {
            _ if self.before.is_some() => self.before,
            Body::Commit { revision, .. } => Some(Revision(revision.0.saturating_sub(1))),
            Body::Close(at) => Some(*at),
            Body::Checkpoint(_) | Body::Reserve(_) => None,
        }
    }
}

/// Encoded records that wait for their place in a segment.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
}

impl Batch {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Empties the batch, and gives memory back that only an unusual group needed.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(256 << 10);
    }

    /// `before` is the newest commit in front of what is added, here and below.
    pub fn commit(&mut self, commit: &Commit, millis: u64, before: Revision) {
        self.record(COMMIT, commit.revision, before, |out| {
            put_u64(out, millis);
            put_len(out, commit.changes.len());
            for change in &commit.changes {
                put_bytes(out, change.key.as_bytes());
                match &change.value {
                    None => out.push(0),
                    Some(value) => {
                        out.push(1);
                        put_u64(out, change.created.0);
                        put_bytes(out, &value.peek());
                    }
                }
            }
        });
    }

    pub fn reserve(&mut self, upto: Revision, before: Revision) {
        self.record(RESERVE, upto, before, |_| {});
    }

    pub fn checkpoint(&mut self, tree: Revision, before: Revision) {
        self.record(CHECKPOINT, tree, before, |_| {});
    }

    pub fn close(&mut self, at: Revision, before: Revision) {
        self.record(CLOSE, at, before, |_| {});
    }

    fn record(&mut self, kind: u8, of: Revision, before: Revision, rest: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.resize(start + HEADER, 0);
        self.bytes.push(kind);
        put_u64(&mut self.bytes, of.0);
        put_u64(&mut self.bytes, before.0);
        rest(&mut self.bytes);
        let len = self.bytes.len() - start - HEADER;
        set_u32(&mut self.bytes, start, MARK);
        set_u32(&mut self.bytes, start + 4, u32::try_from(len).unwrap_or(u32::MAX));
        self.bytes.resize(start + HEADER + len.next_multiple_of(ALIGN), 0);
    }

    /// Fills in what depends on the place: the durable offset and the checksums.
    pub fn seal(&mut self, segment: u64, durable: u32) {
        let mut at = 0;
        while at < self.bytes.len() {
            let len = get_u32(&self.bytes, at + 4) as usize;
            set_u32(&mut self.bytes, at + 12, durable);
            let crc = checksum(segment, durable, &self.bytes[at + HEADER..at + HEADER + len]);
            set_u32(&mut self.bytes, at + 8, crc);
            at += HEADER + len.next_multiple_of(ALIGN);
        }
    }

    /// Adds the mark of the end to what is sealed, for the place that it gets; [`truncate`](Self::truncate) takes it away.
    pub fn mark_end(&mut self, segment: u64, at: u32) {
        self.bytes.extend_from_slice(&end_mark(segment, at));
    }
}

/// What stands at `at` if the segment's acknowledged part ends there.
pub(super) fn end_mark(segment: u64, at: u32) -> [u8; END] {
    let mut mark = [0; END];
    mark[..4].copy_from_slice(&END_MARK.to_le_bytes());
    mark[4..].copy_from_slice(&seed(segment, at).to_le_bytes());
    mark
}

/// Whether the mark of the end stands at `at`; `None` where there is no room for one.
pub(super) fn is_end(segment: u64, bytes: &[u8], at: usize) -> Option<bool> {
    let found = bytes.get(at..at.checked_add(END)?)?;
    Some(found == end_mark(segment, u32::try_from(at).ok()?))
}

/// A record found in a segment.
pub(super) struct Found {
    pub record: Record,
    pub durable: usize,
    /// Offset of the next record.
    pub next: usize,
}

/// The record at `at` of the segment's bytes, if an intact one is there.
pub(super) fn read(segment: u64, bytes: &[u8], at: usize) -> Option<Found> {
    let header = bytes.get(at..at.checked_add(HEADER)?)?;
    if get_u32(header, 0) != MARK {
        return None;
    }
    let len = get_u32(header, 4) as usize;
    let payload = bytes.get(at + HEADER..(at + HEADER).checked_add(len)?)?;
    let durable = get_u32(header, 12);
    if checksum(segment, durable, payload) != get_u32(header, 8) {
        return None;
    }
    let record = decode(payload)?;
    Some(Found { record, durable: durable as usize, next: at + HEADER + len.next_multiple_of(ALIGN) })
}

/// Whether the beginning of a record stands at `at` that is not whole, and that no earlier use of the segment left there:
/// a write that broke off, or damage.
pub(super) fn is_broken(segment: u64, bytes: &[u8], at: usize) -> bool {
    let Some(header) = at.checked_add(HEADER).and_then(|end| bytes.get(at..end)) else { return false };
    if get_u32(header, 0) != MARK || read(segment, bytes, at).is_some() {
        return false;
    }
    let len = get_u32(header, 4) as usize;
    let end = (at + HEADER).saturating_add(len);
    let Some(payload) = bytes.get(at + HEADER..end) else { return true };
    let (durable, found, crc) = (get_u32(header, 12), get_u32(header, 8), crc32c::crc32c(payload));
    let earlier = segment.saturating_sub(EARLIER_USES)..segment;
    !earlier.rev().any(|use_| crc32c::crc32c_combine(seed(use_, durable), crc, len) == found)
}

fn checksum(segment: u64, durable: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(seed(segment, durable), payload)
}

fn seed(segment: u64, durable: u32) -> u32 {
    let mut seed = [0; 12];
    seed[..8].copy_from_slice(&segment.to_le_bytes());
    seed[8..].copy_from_slice(&durable.to_le_bytes());
    crc32c::crc32c(&seed)
}

fn decode(payload: &[u8]) -> Option<Record> {
    let mut input = Input(payload);
    let kind = input.u8()?;
    let revision = Revision(input.u64()?);
    let before = if kind <= OLD_CLOSE { None } else { Some(Revision(input.u64()?)) };
    let body = match kind {
        OLD_COMMIT | COMMIT => {
            let millis = input.u64()?;
            let count = input.u32()? as usize;
            let mut ops = Vec::with_capacity(count.min(payload.len()));
            for _ in 0..count {
                ops.push(decode_op(&mut input)?);
            }
            Body::Commit { revision, millis, ops }
        }
        OLD_RESERVE | RESERVE => Body::Reserve(revision),
        OLD_CHECKPOINT | CHECKPOINT => Body::Checkpoint(revision),
        OLD_CLOSE | CLOSE => Body::Close(revision),
        _ => return None,
    };
    input.0.is_empty().then_some(Record { body, before })
}

fn decode_op(input: &mut Input<'_>) -> Option<Replay> {
    let key = Arc::from(std::str::from_utf8(input.bytes()?).ok()?);
    let value = match input.u8()? {
        0 => None,
        1 => Some((Revision(input.u64()?), Bytes::copy_from_slice(input.bytes()?))),
        _ => return None,
    };
    Some(Replay { key, value })
}

/// A reader of little-endian fields that ends instead of running over.
pub(super) struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    // Requests are limited to a few MiB long before this.
    out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
