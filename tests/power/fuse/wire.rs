//! Requests and answers as bytes.

use crate::disk::{PAGE, ROOT, Stat, small};
use nix::errno::Errno;
use std::ffi::CStr;

/// The most that is written with one request.
const WRITE: u32 = 1 << 20;
/// The kernel wants room for its headers too.
pub const BUFFER: usize = (1 << 20) + 4096;
const HEADER: usize = 40;
const VERSION: (u32, u32) = (7, 31);

/// Of `INIT`.
const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;
/// Of `OPEN`.
const DIRECT_IO: u32 = 1;
/// Of `SETATTR`: the size is to change.
const SIZE: u32 = 1 << 3;
/// Of `FALLOCATE`.
const KEEP_SIZE: u32 = 1;

/// What the kernel asks for.
#[derive(Debug)]
pub enum Asked<'a> {
    Init,
    Forget,
    Lookup {
        dir: u64,
        name: &'a str,
    },
    Stat {
        node: u64,
    },
    Change {
        node: u64,
        size: Option<u64>,
    },
    MakeDir {
        dir: u64,
        name: &'a str,
    },
    Create {
        dir: u64,
        name: &'a str,
    },
    Unlink {
        dir: u64,
        name: &'a str,
    },
    Rename {
        from: (u64, &'a str),
        to: (u64, &'a str),
    },
    Open {
        node: u64,
    },
    OpenDir {
        node: u64,
    },
    Read {
        node: u64,
        offset: u64,
        len: u64,
    },
    List {
        node: u64,
        offset: u64,
        len: u64,
    },
    Write {
        node: u64,
        offset: u64,
        data: &'a [u8],
    },
    Allocate {
        node: u64,
        end: u64,
        keep_size: bool,
    },
    Flush {
        node: u64,
    },
    SyncDir {
        node: u64,
    },
    Space,
    /// Something is given back; nothing is to be done.
    Close,
    Unknown,
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        self.0 = self.0.get(len..)?;
        Some(())
    }

    fn name(&mut self) -> Option<&'a str> {
        let name = CStr::from_bytes_until_nul(self.0).ok()?;
        self.0 = &self.0[name.count_bytes() + 1..];
        name.to_str().ok()
    }
}

/// The request's number, and what it is.
pub fn parse(bytes: &[u8]) -> Option<(u64, Asked<'_>)> {
    let mut input = Input(bytes);
    input.skip(4)?;
    let opcode = input.u32()?;
    let (unique, node) = (input.u64()?, input.u64()?);
    input.skip(HEADER - 24)?;
    Some((unique, operation(opcode, node, input).unwrap_or(Asked::Unknown)))
}

fn operation(opcode: u32, node: u64, mut input: Input<'_>) -> Option<Asked<'_>> {
    Some(match opcode {
        1 => Asked::Lookup { dir: node, name: input.name()? },
        // FORGET, INTERRUPT and BATCH_FORGET.
        2 | 36 | 42 => Asked::Forget,
        3 => Asked::Stat { node },
        4 => {
            let valid = input.u32()?;
            input.skip(12)?;
            let size = input.u64()?;
            Asked::Change { node, size: (valid & SIZE != 0).then_some(size) }
        }
        9 => {
            input.skip(8)?;
            Asked::MakeDir { dir: node, name: input.name()? }
        }
        10 | 11 => Asked::Unlink { dir: node, name: input.name()? },
        12 => {
            let to = input.u64()?;
            Asked::Rename { from: (node, input.name()?), to: (to, input.name()?) }
        }
        14 => Asked::Open { node },
        15 | 28 => {
            input.skip(8)?;
            let (offset, len) = (input.u64()?, u64::from(input.u32()?));
            if opcode == 15 { Asked::Read { node, offset, len } } else { Asked::List { node, offset, len } }
        }
        16 => {
            input.skip(8)?;
            let (offset, len) = (input.u64()?, input.u32()?);
            input.skip(20)?;
            Asked::Write { node, offset, data: input.0.get(..small(u64::from(len)))? }
        }
        17 => Asked::Space,
        // RELEASE, FLUSH (of close) and RELEASEDIR, and what is asked of a file system that goes.
        18 | 25 | 29 | 38 => Asked::Close,
        20 => Asked::Flush { node },
        26 => Asked::Init,
        27 => Asked::OpenDir { node },
        30 => Asked::SyncDir { node },
        35 => {
            input.skip(16)?;
            Asked::Create { dir: node, name: input.name()? }
        }
        43 => {
            input.skip(8)?;
            let (offset, len, mode) = (input.u64()?, input.u64()?, input.u32()?);
            // Holes are none of its services.
            if mode & !KEEP_SIZE != 0 {
                return None;
            }
            Asked::Allocate { node, end: offset.checked_add(len)?, keep_size: mode & KEEP_SIZE != 0 }
        }
        _ => return None,
    })
}

#[derive(Debug)]
pub enum Reply {
    Error(Errno),
    Nothing,
    Init,
    Entry(Stat),
    Created(Stat),
    Stat(Stat),
    Opened { direct: bool },
    Data(Vec<u8>),
    Written(u64),
    Space { free: u64 },
}

impl Reply {
    pub fn encode(self, unique: u64) -> Vec<u8> {
        let (errno, body) = match self {
            Self::Error(errno) => (-(errno as i32), Vec::new()),
            Self::Data(data) => (0, data),
            other => (0, other.body()),
        };
        let mut bytes = Vec::with_capacity(16 + body.len());
        bytes.extend(u32::try_from(16 + body.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(errno.to_le_bytes());
        bytes.extend(unique.to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn body(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Error(_) | Self::Nothing | Self::Data(_) => {}
            Self::Init => init(&mut out),
            Self::Entry(stat) => entry(&mut out, stat),
            Self::Created(stat) => {
                entry(&mut out, stat);
                opened(&mut out, true);
            }
            Self::Stat(stat) => {
                // For how long the kernel may keep it: not at all.
                out.extend([0; 16]);
                attributes(&mut out, stat);
            }
            Self::Opened { direct } => opened(&mut out, direct),
            Self::Written(len) => out.extend(len.to_le_bytes()),
            Self::Space { free } => space(&mut out, free),
        }
        out
    }
}

fn init(out: &mut Vec<u8>) {
    let pages = WRITE / 4096;
    for field in [VERSION.0, VERSION.1, 0, BIG_WRITES | MAX_PAGES] {
        out.extend(field.to_le_bytes());
    }
    // Requests in the background, and from how many on that is a lot.
    out.extend(16u16.to_le_bytes());
    out.extend(12u16.to_le_bytes());
    out.extend(WRITE.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(u16::try_from(pages).unwrap_or(u16::MAX).to_le_bytes());
    out.resize(64, 0);
}

fn entry(out: &mut Vec<u8>, stat: Stat) {
    out.extend(stat.node.to_le_bytes());
    // The generation, and for how long the kernel may keep name and attributes.
    out.extend([0; 32]);
    attributes(out, stat);
}

fn attributes(out: &mut Vec<u8>, stat: Stat) {
    let mode: u32 = if stat.is_dir { 0o040_700 } else { 0o100_600 };
    for field in [stat.node, stat.size, stat.blocks * 8, 0, 0, 0] {
        out.extend(field.to_le_bytes());
    }
    // Nanoseconds, mode, links, owner, group, device, block size, flags.
    for field in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        out.extend(u32::to_le_bytes(field));
    }
}

fn opened(out: &mut Vec<u8>, direct: bool) {
    out.extend([0; 8]);
    out.extend(if direct { DIRECT_IO } else { 0 }.to_le_bytes());
    out.extend([0; 4]);
}

fn space(out: &mut Vec<u8>, free: u64) {
    for field in [1 << 20, free, free, 1 << 20, 1 << 20] {
        out.extend(u64::to_le_bytes(field));
    }
    for field in [4096, 255, 4096, 0] {
        out.extend(u32::to_le_bytes(field));
    }
    out.resize(80, 0);
}

/// As much of a directory's listing as fits, from the entry number `offset` on.
pub fn listing(entries: &[(String, u64, bool)], offset: u64, len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let dots = [(".".to_owned(), ROOT, true), ("..".to_owned(), ROOT, true)];
    let all = dots.iter().chain(entries).zip(1u64..).skip(small(offset));
    for ((name, node, is_dir), next) in all {
        let size = (24 + name.len()).next_multiple_of(8);
        if out.len() + size > small(len) {
            break;
        }
        let end = out.len() + size;
        out.extend(node.to_le_bytes());
        out.extend(next.to_le_bytes());
        out.extend(u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(if *is_dir { 4u32 } else { 8 }.to_le_bytes());
        out.extend(name.as_bytes());
        out.resize(end, 0);
    }
    out
}

const _: () = assert!(PAGE == 4096);
