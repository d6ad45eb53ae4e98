//! One file of the journal, as it is read back.

use super::disk;
use super::format::Format;
use super::record::{self, ALIGN, Found, HEADER, Input, Record};
use crate::{Revision, StoreError};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One segment: large enough that making one is rare, small enough that a recycled one is a small loss.
pub(super) const SIZE: u64 = 4 << 20;
/// Sizes of segments are multiples of it: what file systems write at least.
pub(super) const BLOCK: u64 = 4096;
/// Where records begin.
pub(super) const START: usize = 64;
/// As earlier versions wrote it: the header did not say how long the segment is.
const OLD_MAGIC: &[u8; 8] = b"COROJRN1";
/// As earlier versions wrote it: nothing marked the end.
const UNMARKED_MAGIC: &[u8; 8] = b"COROJRN2";
const MAGIC: &[u8; 8] = b"COROJRN3";
pub(super) const PREFIX: &str = "journal-";
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
    /// Bytes of the file; 0 where an earlier version made it.
    pub size: u64,
    /// Behind the last record stands the mark of the end, from the header on; not where an earlier version made the segment.
    pub marked: bool,
}

impl Head {
    pub fn encode(&self) -> [u8; START] {
        let mut bytes = if self.marked { MAGIC } else { UNMARKED_MAGIC }.to_vec();
        for field in [self.seq, self.base.0, self.reserved.0, self.previous_end, self.size] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let mut header = [0; START];
        header[..bytes.len()].copy_from_slice(&bytes);
        header
    }

    fn decode(bytes: &[u8], seq: u64) -> Option<Self> {
        let fields = if bytes.starts_with(OLD_MAGIC) { 4 } else { 5 };
        let (fields, crc) = bytes.split_at_checked(MAGIC.len() + fields * 8)?;
        if Input(crc).u32()? != crc32c::crc32c(fields) {
            return None;
        }
        let known = [MAGIC, UNMARKED_MAGIC, OLD_MAGIC];
        let mut input = Input(known.iter().find_map(|magic| fields.strip_prefix(*magic))?);
        let head = Self {
            seq: input.u64()?,
            base: Revision(input.u64()?),
            reserved: Revision(input.u64()?),
            previous_end: input.u64()?,
            size: input.u64().unwrap_or(0),
            marked: bytes.starts_with(MAGIC),
        };
        (head.seq == seq).then_some(head)
    }
}

#[derive(Debug)]
pub(super) struct Segment {
    pub seq: u64,
    pub path: PathBuf,
    pub size: u64,
    /// `None`: damaged, or never written.
    pub head: Option<Head>,
    /// It may have got its name without ever having been used.
    pub perhaps_unused: bool,
}

/// What a segment's file holds.
pub(super) struct Content {
    /// Zeroes where the disk gives nothing back.
    pub bytes: Vec<u8>,
    /// Where the disk gives nothing back, as the beginnings of blocks.
    pub unreadable: Vec<usize>,
}

impl Segment {
    fn open(path: PathBuf, seq: u64, format: Format) -> io::Result<Self> {
        let mut file = File::open(&path)?;
        let mut header = [0; START];
        let head = match file.read_exact(&mut header) {
            Ok(()) => Head::decode(&header, seq),
            Err(_) => None,
        };
        let perhaps_unused = format == Format::First && head.is_none();
        Ok(Self { seq, size: file.metadata()?.len(), path, head, perhaps_unused })
    }

    /// Whether it is not as long as it was made: every segment gets its size before its first record.
    pub fn has_wrong_size(&self) -> bool {
        match self.head.map(|head| head.size) {
            Some(size) if size > 0 => self.size != size,
            _ => self.size < SIZE || !self.size.is_multiple_of(BLOCK),
        }
    }

    /// # Errors
    /// Those of the file system. Blocks that the disk cannot read are left out.
    pub fn read(&self) -> Result<Content, StoreError> {
        let read = match std::fs::read(&self.path) {
            Err(error) if disk::cannot_read(&error) => self.read_blocks(),
            other => other.map(|bytes| Content { bytes, unreadable: Vec::new() }),
        };
        read.map_err(disk::at(&self.path))
    }

    fn read_blocks(&self) -> io::Result<Content> {
        let file = File::open(&self.path)?;
        let block = usize::try_from(BLOCK).map_err(io::Error::other)?;
        let mut bytes = vec![0; usize::try_from(self.size).map_err(io::Error::other)?];
        let mut unreadable = Vec::new();
        for (index, part) in bytes.chunks_mut(block).enumerate() {
            let at = index * block;
            match file.read_exact_at(part, at as u64) {
                Err(error) if disk::cannot_read(&error) => {
                    part.fill(0);
                    unreadable.push(at);
                }
                other => other?,
            }
        }
        Ok(Content { bytes, unreadable })
    }
}

impl Content {
    /// Whether it cannot be known that nothing acknowledged begins at the end of what was read: the file ends there, the
    /// disk gives nothing back there, or a record that is not whole stands there.
    pub fn is_unsure_at(&self, end: End) -> bool {
        let record = end.offset..end.offset + HEADER;
        let block = usize::try_from(BLOCK).unwrap_or(usize::MAX);
        record.end > self.bytes.len()
            || end.tail != Tail::Clean
            || self.unreadable.iter().any(|at| *at < record.end && record.start < at + block)
    }
}

pub(super) fn path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{seq:012}"))
}

/// The segments of a directory, oldest first.
pub(super) fn list(dir: &Path) -> Result<Vec<Segment>, StoreError> {
    let format = Format::of(dir)?;
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(disk::at(dir))? {
        let path = entry.map_err(disk::at(dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        if let Some(seq) = name.and_then(|digits| digits.parse().ok()) {
            segments.push(Segment::open(path.clone(), seq, format).map_err(disk::at(&path))?);
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
    pub tail: Tail,
}

/// What lies behind the last acknowledged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing of this use of the segment.
    Clean,
    /// The beginning of a record that is not whole, or neither a record nor the mark of the end.
    Broken,
    /// Intact records of a torn group, the newest commit of which is `newest`; writing on in front of them could bring
    /// them back.
    Torn { records: usize, newest: Option<Revision> },
}

/// Goes through the records of a segment. `end` is where its acknowledged part ends, if the next segment tells;
/// without it everything that no later record vouches for is a torn tail, and cut off. `marked` as in [`Head`].
pub(super) fn scan(
    seq: u64,
    bytes: &[u8],
    end: Option<usize>,
    marked: bool,
    mut each: impl FnMut(Step),
) -> End {
    let bytes = &bytes[..end.unwrap_or(bytes.len()).min(bytes.len())];
    let mut at = START;
    loop {
        if end.is_some_and(|end| at >= end) {
            return End { offset: at, tail: Tail::Clean };
        }
        if let Some(found) = record::read(seq, bytes, at) {
            each(Step::Record(found.record));
            at = found.next;
            continue;
        }
        let beyond = Beyond { seq, bytes, at };
        if end.is_none() && !beyond.clone().any(|(_, found)| found.durable > at) {
            return End { offset: at, tail: tail(seq, bytes, at, marked, beyond) };
        }
        each(Step::Hole(at));
        match beyond.map(|(offset, _)| offset).next() {
            Some(offset) => at = offset,
            None => return End { offset: bytes.len(), tail: Tail::Clean },
        }
    }
}

fn tail(seq: u64, bytes: &[u8], at: usize, marked: bool, beyond: Beyond<'_>) -> Tail {
    let (records, newest) = beyond
        .fold((0, None), |(records, newest), (_, found)| (records + 1, newest.max(found.record.revision())));
    match records {
        0 if marked && record::is_end(seq, bytes, at) == Some(false) => Tail::Broken,
        0 if record::is_broken(seq, bytes, at) => Tail::Broken,
        0 => Tail::Clean,
        _ => Tail::Torn { records, newest },
    }
}

/// Whether a segment was acknowledged to hold something: some record knew of a durable one before it. The records of a
/// first group, which went to the disk together with nothing before them, do not.
pub(super) fn vouches_for_itself(seq: u64, bytes: &[u8]) -> bool {
    let first = record::read(seq, bytes, START).map(|found| (START, found));
    first.into_iter().chain(Beyond { seq, bytes, at: START }).any(|(_, found)| found.durable > START)
}

static EMPTY: [u8; 4096] = [0; 4096];

/// The intact records after an offset, wherever they begin.
#[derive(Clone)]
struct Beyond<'a> {
    seq: u64,
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Beyond<'_> {
    type Item = (usize, Found);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at + ALIGN < self.bytes.len() {
            self.at += ALIGN;
            // Most of a segment was never written.
            if self.at.is_multiple_of(EMPTY.len()) && self.bytes[self.at..].starts_with(&EMPTY) {
                self.at += EMPTY.len() - ALIGN;
                continue;
            }
            if let Some(found) = record::read(self.seq, self.bytes, self.at) {
                return Some((self.at, found));
            }
        }
        None
    }
}
