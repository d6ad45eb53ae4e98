//! A tree of a stream. Whoever sends it is not believed: it may be another machine's.

use super::frames::{Fields, Meta, Reader, malformed};
use super::send::at;
use super::{BLOCK, MAX_DEPTH, Sent, attributes, kind};
use crate::beneath::{Dir, Node};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream ended before the tree did, or was none: whoever sent it may do so again.
    #[error("what was sent is not whole: {0}")]
    Cut(#[source] io::Error),
    /// Whoever sent it could not read it.
    #[error("{0}")]
    Unread(String),
    /// It could not be written.
    #[error(transparent)]
    Write(io::Error),
}

/// A file whose content comes.
struct Open {
    file: File,
    node: Node,
    length: u64,
    meta: Meta,
}

struct Receiver<'a> {
    root: &'a Dir,
    /// Directories that were entered, with what they are given when they are left.
    entered: Vec<(Dir, Meta)>,
    file: Option<Open>,
    /// Of what is worked on, for messages.
    path: Vec<OsString>,
}

/// Makes in an empty directory what was sent. What it made is not on the disk yet.
///
/// # Errors
/// The copy is not whole then.
pub fn receive(from: impl Read, into: &Dir) -> Result<Sent, ReceiveError> {
    let mut frames = Reader::new(from);
    let mut receiver = Receiver { root: into, entered: Vec::new(), file: None, path: Vec::new() };
    let (first, root) = frames.next().map_err(ReceiveError::Cut)?;
    if first == kind::FAILED {
        return Err(unread(root));
    }
    if first != kind::ROOT {
        return Err(ReceiveError::Cut(malformed()));
    }
    let root = Fields(root).meta().map_err(ReceiveError::Cut)?;
    loop {
        let (kind, frame) = frames.next().map_err(ReceiveError::Cut)?;
        match kind {
            kind::FAILED => return Err(unread(frame)),
            kind::END => {
                let frame = frame.to_vec();
                let sent = end(&frame, |more| frames.digest(more)).map_err(ReceiveError::Cut)?;
                if !receiver.entered.is_empty() {
                    return Err(ReceiveError::Cut(malformed()));
                }
                let given = receiver.close().and_then(|()| attributes::write(&into.itself()?, &root));
                return given.map(|()| sent).map_err(ReceiveError::Write);
            }
            _ => receiver.take(kind, frame)?,
        }
    }
}

/// Whether a stream is that of a tree, by its first bytes.
///
/// # Errors
/// It is none, as [`receive`] says it: with whatever is in these bytes of why there is none.
pub fn begins(first: &[u8]) -> Result<(), ReceiveError> {
    match first.first() {
        Some(&kind::ROOT) => Ok(()),
        Some(&kind::FAILED) => Err(unread(first.get(5..).unwrap_or_default())),
        _ => Err(ReceiveError::Cut(malformed())),
    }
}

fn unread(frame: &[u8]) -> ReceiveError {
    ReceiveError::Unread(String::from_utf8_lossy(frame).into_owned())
}

fn end(frame: &[u8], digest: impl Fn(&[u8]) -> [u8; 32]) -> io::Result<Sent> {
    let (told, sum) = frame.split_last_chunk::<32>().ok_or_else(malformed)?;
    if digest(told) != *sum {
        return Err(malformed());
    }
    let mut fields = Fields(told);
    let (files, bytes, left_out) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let mut named = Vec::new();
    while !fields.0.is_empty() {
        named.push(String::from_utf8_lossy(fields.bytes()?).into_owned());
    }
    Ok(Sent { files, bytes, left_out, named, digest: digest(&[]) })
}

impl Receiver<'_> {
    fn dir(&self) -> &Dir {
        self.entered.last().map_or(self.root, |(dir, _)| dir)
    }

    fn take(&mut self, kind: u8, frame: &[u8]) -> Result<(), ReceiveError> {
        if kind == kind::BLOCK {
            return self.block(frame);
        }
        self.close().map_err(ReceiveError::Write)?;
        if kind == kind::LEAVE {
            let (dir, meta) = self.entered.pop().ok_or_else(|| ReceiveError::Cut(malformed()))?;
            let left = dir.itself().and_then(|node| attributes::write(&node, &meta));
            left.map_err(|error| self.failed(error))?;
            self.path.pop();
            return Ok(());
        }
        let mut fields = Fields(frame);
        let name = fields.bytes().map_err(ReceiveError::Cut)?;
        self.path.push(OsStr::from_bytes(name).to_owned());
        let made = self.make(kind, OsStr::from_bytes(name), fields)?;
        if made != Made::Entered && made != Made::Opened {
            self.path.pop();
        }
        Ok(())
    }

    fn make(&mut self, kind: u8, name: &OsStr, mut fields: Fields<'_>) -> Result<Made, ReceiveError> {
        let cut = ReceiveError::Cut;
        let second: &[u8] = if kind == kind::DIRECTORY { &[] } else { fields.bytes().map_err(cut)? };
        let meta = fields.meta().map_err(cut)?;
        let dir = self.dir();
        match kind {
            kind::DIRECTORY => {
                if self.entered.len() >= MAX_DEPTH {
                    return Err(cut(malformed()));
                }
                let made = dir.make_dir(name, 0o700).map_err(|error| self.failed(error))?;
                self.entered.push((made, meta));
                return Ok(Made::Entered);
            }
            kind::FILE => {
                let length = u64::from_le_bytes(second.try_into().map_err(|_| cut(malformed()))?);
                let opened = dir.new_file(name).and_then(|file| {
                    file.set_len(length)?;
                    Ok((file, dir.node(name)?))
                });
                let (file, node) = opened.map_err(|error| self.failed(error))?;
                self.file = Some(Open { file, node, length, meta });
                return Ok(Made::Opened);
            }
            kind::LINK => {
                let linked = dir
                    .link(Path::new(OsStr::from_bytes(second)), name)
                    .and_then(|()| attributes::write(&dir.node(name)?, &meta));
                linked.map_err(|error| self.failed(error))?;
            }
            kind::NAME => {
                let first = self.root.node(Path::new(OsStr::from_bytes(second)));
                let named = first.and_then(|first| dir.name(&first, name));
                named.map_err(|error| self.failed(error))?;
            }
            _ => return Err(cut(malformed())),
        }
        Ok(Made::Whole)
    }

    fn block(&self, frame: &[u8]) -> Result<(), ReceiveError> {
        let cut = || ReceiveError::Cut(malformed());
        let mut fields = Fields(frame);
        let start = fields.u64().map_err(ReceiveError::Cut)?;
        let open = self.file.as_ref().ok_or_else(cut)?;
        let end = start.checked_add(fields.0.len() as u64).filter(|end| *end <= open.length);
        if fields.0.len() > BLOCK || end.is_none() {
            return Err(cut());
        }
        open.file.write_all_at(fields.0, start).map_err(|error| self.failed(error))
    }

    /// The file that is open has its content.
    fn close(&mut self) -> io::Result<()> {
        let Some(open) = self.file.take() else { return Ok(()) };
        let path = self.whole_path();
        self.path.pop();
        attributes::write(&open.node, &open.meta).map_err(|error| at(&path, error))
    }

    fn failed(&self, error: io::Error) -> ReceiveError {
        ReceiveError::Write(at(&self.whole_path(), error))
    }

    fn whole_path(&self) -> Vec<u8> {
        self.path.join(OsStr::new("/")).as_bytes().to_vec()
    }
}

#[derive(PartialEq, Eq)]
enum Made {
    /// A directory, which the next frames are about.
    Entered,
    /// A file, whose blocks come.
    Opened,
    Whole,
}
