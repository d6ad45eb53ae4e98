//! A tree as a stream.

use super::frames::{Meta, Writer, encode, put};
use super::{BLOCK, MAX_DEPTH, attributes, kind};
use crate::beneath::{Dir, Node};
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::{Whence, lseek64};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// How many of what was left out are named.
const NAMED: usize = 10;

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub files: u64,
    /// Of content, without holes.
    pub bytes: u64,
    /// Sockets, pipes and devices: how many, and the first of them.
    pub left_out: u64,
    pub named: Vec<String>,
    /// Of everything but what was left out.
    pub digest: [u8; 32],
}

struct Sender<W> {
    out: Writer<W>,
    sent: Sent,
    /// The first path of each file that has more than one.
    names: HashMap<(u64, u64), Vec<u8>>,
    block: Vec<u8>,
    /// What the kernel remembers of files is forgotten first: what is read is what is on the disk.
    anew: bool,
}

/// Sends all that lies below the directory, and what the directory itself is. `anew`: from the disk, as far as the kernel
/// does not have to keep it in memory. Nobody may write there meanwhile.
///
/// # Errors
/// The first thing that cannot be read, with its path; the stream then says so itself. A mount below is an error, and so are
/// directories that are nested too deep and whatever somebody takes away meanwhile.
pub fn send(dir: &Dir, out: impl Write, anew: bool) -> io::Result<Sent> {
    let mut sender = Sender {
        out: Writer::new(out),
        sent: Sent::default(),
        names: HashMap::new(),
        block: vec![0; BLOCK],
        anew,
    };
    let sent = sender.tree(dir);
    if let Err(error) = &sent {
        // Whoever reads is told, if he is there yet.
        let _ = sender.out.frame(kind::FAILED, &[error.to_string().as_bytes()]);
        let _ = sender.out.flush();
    }
    sent.map(|()| sender.sent)
}

impl<W: Write> Sender<W> {
    fn tree(&mut self, dir: &Dir) -> io::Result<()> {
        let root = attributes::read(&dir.itself()?)?;
        self.out.frame(kind::ROOT, &[&encode(&root, &[])])?;
        self.below(dir, &mut Vec::new(), 0)?;
        let sent = &mut self.sent;
        sent.digest = self.out.digest(&[]);
        let mut end = Vec::new();
        for number in [sent.files, sent.bytes, sent.left_out] {
            end.extend_from_slice(&number.to_le_bytes());
        }
        for name in &sent.named {
            put(&mut end, name.as_bytes());
        }
        end.extend_from_slice(&self.out.digest(&end));
        self.out.frame(kind::END, &[&end])?;
        self.out.flush()
    }

    fn below(&mut self, dir: &Dir, path: &mut Vec<u8>, depth: usize) -> io::Result<()> {
        let names: io::Result<Vec<OsString>> =
            dir.entries()?.map(|entry| entry.map(|entry| entry.file_name())).collect();
        let mut names = names.map_err(|error| at(path, error))?;
        names.sort_unstable();
        for name in names {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            self.one(dir, &name, path, depth)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn one(&mut self, dir: &Dir, name: &OsString, path: &mut Vec<u8>, depth: usize) -> io::Result<()> {
        let failed = |path: &[u8]| {
            let path = path.to_vec();
            move |error: io::Error| at(&path, error)
        };
        let node = dir.node(name).map_err(failed(path.as_slice()))?;
        if !node.is_dir() && !node.is_file() && !node.is_link() {
            self.sent.left_out += 1;
            if self.sent.named.len() < NAMED {
                self.sent.named.push(String::from_utf8_lossy(path).into_owned());
            }
            return Ok(());
        }
        self.sent.files += 1;
        if !node.is_dir() && node.stat().st_nlink > 1 {
            let key = (node.stat().st_dev, node.stat().st_ino);
            if let Some(first) = self.names.get(&key) {
                let frame = encode(&Meta::default(), &[name.as_bytes(), first]);
                return self.out.frame(kind::NAME, &[&frame]);
            }
            self.names.insert(key, path.clone());
        }
        let meta = attributes::read(&node).map_err(failed(path.as_slice()))?;
        if node.is_link() {
            let target = dir.read_link(name).map_err(failed(path.as_slice()))?;
            let fields = [name.as_bytes(), target.as_os_str().as_bytes()];
            return self.out.frame(kind::LINK, &[&encode(&meta, &fields)]);
        }
        if node.is_file() {
            let length = node.len();
            let fields: [&[u8]; 2] = [name.as_bytes(), &length.to_le_bytes()];
            self.out.frame(kind::FILE, &[&encode(&meta, &fields)])?;
            return self.content(&node, length).map_err(failed(path.as_slice()));
        }
        if depth >= MAX_DEPTH {
            return Err(at(path, Errno::ENAMETOOLONG.into()));
        }
        self.out.frame(kind::DIRECTORY, &[&encode(&meta, &[name.as_bytes()])])?;
        self.below(&dir.dir(name).map_err(failed(path.as_slice()))?, path, depth + 1)?;
        self.out.frame(kind::LEAVE, &[])
    }

    fn content(&mut self, node: &Node, length: u64) -> io::Result<()> {
        let file = node.open()?;
        if self.anew {
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        let mut from = 0;
        while let Some(start) = data(&file, from, length)? {
            // Blocks begin at the same places in every copy, wherever its file system has holes.
            let start = start / BLOCK as u64 * BLOCK as u64;
            let wanted = usize::try_from(length - start).unwrap_or(BLOCK).min(BLOCK);
            let block = &mut self.block[..wanted];
            file.read_exact_at(block, start)?;
            if block.iter().any(|byte| *byte != 0) {
                self.sent.bytes += wanted as u64;
                self.out.frame(kind::BLOCK, &[&start.to_le_bytes(), block])?;
            }
            from = start + BLOCK as u64;
        }
        Ok(())
    }
}

/// Where the next content begins, at or behind `from`.
fn data(file: &File, from: u64, length: u64) -> io::Result<Option<u64>> {
    if from >= length {
        return Ok(None);
    }
    let from = i64::try_from(from).map_err(io::Error::other)?;
    match lseek64(file, from, Whence::SeekData) {
        Ok(start) => Ok(u64::try_from(start).ok().filter(|start| *start < length)),
        // Only a hole is left.
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// A stream that says why there is no tree.
pub fn refuse(out: impl Write, why: &str) -> io::Result<()> {
    let mut out = Writer::new(out);
    out.frame(kind::FAILED, &[why.as_bytes()])?;
    out.flush()
}

/// The error with the path that it is about.
pub(super) fn at(path: &[u8], error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", String::from_utf8_lossy(path)))
}
