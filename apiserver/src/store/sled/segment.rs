//! One file of the journal, as it is read back.

use super::disk;
use super::record::{self, ALIGN, Input, Record};
use crate::store::{Revision, StoreError};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// One segment: large enough that making one is rare, small enough that a recycled one is a small loss.
pub(super) const SIZE: u64 = 4 << 20;
/// Where records begin.
pub(super) const START: usize = 64;
const MAGIC: &[u8; 8] = b"COROJRN1";
const PREFIX: &str = "journal-";
pub(super) const SPARE: &str = "spare-";

/// What a segment says of itself and of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub seq: u64,
    /// All durable commits up to this revision are in earlier segments.
    pub base: Revision,
    /// Revisions up to this one may have been handed out when the segment was begun.
    pub reserved: Revision,
    /// Where the acknowledged part of the segment before ends.
    pub previous_end: u64,
}

impl Head {
    pub fn encode(&self) -> [u8; START] {
        let mut bytes = MAGIC.to_vec();
        for field in [self.seq, self.base.0, self.reserved.0, self.previous_end] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let mut header = [0; START];
        header[..bytes.len()].copy_from_slice(&bytes);
        header
    }

    fn decode(bytes: &[u8], seq: u64) -> Option<Self> {
        let (fields, crc) = bytes.split_at_checked(MAGIC.len() + 4 * 8)?;
        if Input(crc).u32()? != crc32c::crc32c(fields) {
            return None;
        }
        let mut input = Input(fields.strip_prefix(MAGIC)?);
        let head = Self {
            seq: input.u64()?,
            base: Revision(input.u64()?),
            reserved: Revision(input.u64()?),
            previous_end: input.u64()?,
        };
        (head.seq == seq).then_some(head)
    }
}

#[derive(Debug)]
pub(super) struct Segment {
    pub seq: u64,
    pub path: PathBuf,
    pub size: u64,
    /// `None`: prepared and never used, or damaged.
    pub head: Option<Head>,
}

impl Segment {
    fn open(path: PathBuf, seq: u64) -> io::Result<Self> {
        let mut file = File::open(&path)?;
        let mut header = [0; START];
        let head = match file.read_exact(&mut header) {
            Ok(()) => Head::decode(&header, seq),
            Err(_) => None,
        };
        Ok(Self { seq, size: file.metadata()?.len(), path, head })
    }

    pub fn read(&self) -> Result<Vec<u8>, StoreError> {
        std::fs::read(&self.path).map_err(disk::at(&self.path))
    }
}

pub(super) fn path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{seq:012}"))
}

/// The segments of a directory, oldest first.
pub(super) fn list(dir: &Path) -> Result<Vec<Segment>, StoreError> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(disk::at(dir))? {
        let path = entry.map_err(disk::at(dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        if let Some(seq) = name.and_then(|digits| digits.parse().ok()) {
            segments.push(Segment::open(path.clone(), seq).map_err(disk::at(&path))?);
        }
    }
    segments.sort_by_key(|segment| segment.seq);
    Ok(segments)
}

/// What a scan comes upon.
pub(super) enum Step {
    Record(Record),
    /// Acknowledged bytes that cannot be read any more, from this offset on.
    Hole(usize),
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub offset: usize,
    /// Intact records of a torn group lie beyond; writing on after `offset` could bring them back.
    pub torn: bool,
}

/// Goes through the records of a segment. `end` is where its acknowledged part ends, if the next segment tells;
/// without it everything that no later record vouches for is a torn tail, and cut off.
pub(super) fn scan(seq: u64, bytes: &[u8], end: Option<usize>, mut each: impl FnMut(Step)) -> End {
    let bytes = &bytes[..end.unwrap_or(bytes.len()).min(bytes.len())];
    let mut at = START;
    loop {
        if end.is_some_and(|end| at >= end) {
            return End { offset: at, torn: false };
        }
        if let Some(found) = record::read(seq, bytes, at) {
            each(Step::Record(found.record));
            at = found.next;
            continue;
        }
        let mut beyond = Beyond { seq, bytes, at }.peekable();
        let first = beyond.peek().map(|(offset, _)| *offset);
        if end.is_none() && !beyond.any(|(_, durable)| durable > at) {
            return End { offset: at, torn: first.is_some() };
        }
        each(Step::Hole(at));
        match first {
            Some(offset) => at = offset,
            None => return End { offset: bytes.len(), torn: false },
        }
    }
}

/// The intact records after an offset where there is none, with their durable offsets.
struct Beyond<'a> {
    seq: u64,
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Beyond<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at + ALIGN < self.bytes.len() {
            self.at += ALIGN;
            if let Some(found) = record::read(self.seq, self.bytes, self.at) {
                return Some((self.at, found.durable));
            }
        }
        None
    }
}
