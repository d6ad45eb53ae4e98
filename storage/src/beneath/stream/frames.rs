//! Frames: how they are written and read, and what is in those of files.

use super::kind;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

/// No frame has more: the largest are attributes, of which Linux keeps 64 KiB of names and 64 KiB of each value.
const MAX_FRAME: usize = 16 << 20;

/// What is kept of every file, directory and link beside its name and content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds and nanoseconds.
    pub modified: (i64, i64),
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Writes frames, and sums them up.
pub(super) struct Writer<W> {
    out: W,
    sum: Sha256,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Self {
        Self { out, sum: Sha256::new() }
    }

    pub fn frame(&mut self, kind: u8, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut head = [kind; 5];
        head[1..].copy_from_slice(&length.to_le_bytes());
        for part in std::iter::once(&head[..]).chain(parts.iter().copied()) {
            self.sum.update(part);
            self.out.write_all(part)?;
        }
        Ok(())
    }

    /// Of all frames so far, and of what is to come behind them.
    pub fn digest(&self, more: &[u8]) -> [u8; 32] {
        self.sum.clone().chain_update(more).finalize().into()
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads frames, and sums up all but the last.
pub(super) struct Reader<R> {
    from: R,
    sum: Sha256,
    frame: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub fn new(from: R) -> Self {
        Self { from, sum: Sha256::new(), frame: Vec::new() }
    }

    /// The next frame. An end of the stream is an error here: there is a last frame.
    pub fn next(&mut self) -> io::Result<(u8, &[u8])> {
        let mut head = [0; 5];
        self.from.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(malformed());
        }
        self.frame.resize(length, 0);
        self.from.read_exact(&mut self.frame)?;
        if kind != kind::END {
            self.sum.update(head);
            self.sum.update(&self.frame);
        }
        Ok((kind, &self.frame))
    }

    /// Of all frames so far but the last one, and of this.
    pub fn digest(&self, more: &[u8]) -> [u8; 32] {
        self.sum.clone().chain_update(more).finalize().into()
    }
}

pub(super) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is no tree")
}

/// What a frame begins with: fields of which each is a length (u32) and bytes, and then numbers of `Meta`.
pub(super) fn encode(meta: &Meta, fields: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        put(&mut out, field);
    }
    for number in [meta.mode, meta.uid, meta.gid] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [meta.modified.0, meta.modified.1] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for (name, value) in &meta.attributes {
        put(&mut out, name);
        put(&mut out, value);
    }
    out
}

pub(super) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    // What is written here has been read of the kernel, which knows no longer ones.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// What is left to be read of a frame.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| malformed())
    }

    pub fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }

    pub fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// All that is left.
    pub fn meta(mut self) -> io::Result<Meta> {
        let mut meta = Meta {
            mode: u32::from_le_bytes(self.array()?),
            uid: u32::from_le_bytes(self.array()?),
            gid: u32::from_le_bytes(self.array()?),
            modified: (i64::from_le_bytes(self.array()?), i64::from_le_bytes(self.array()?)),
            attributes: Vec::new(),
        };
        while !self.0.is_empty() {
            meta.attributes.push((self.bytes()?.to_vec(), self.bytes()?.to_vec()));
        }
        Ok(meta)
    }
}
