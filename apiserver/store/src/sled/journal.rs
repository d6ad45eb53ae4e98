//! The journal's writing end: one write and one fdatasync a group, into files that were made beforehand.

use super::disk;
use super::record::{self, Batch, END, HEADER};
use super::segment::{self, Head, SIZE, SPARE, START};
use crate::Revision;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Kept free at a segment's end for a last reservation of revisions when the disk is full.
const HEADROOM: u64 = 4096;
/// Recycled segments kept: as many as the journal frees at once when a snapshot of a small store is written.
const SPARES: usize = 8;

struct Active {
    file: File,
    head: Head,
    offset: u64,
    size: u64,
    /// The header is on stable storage, and the file has its name.
    begun: bool,
}

/// A finished segment that is still kept.
pub(super) struct Kept {
    pub seq: u64,
    pub base: Revision,
    pub size: u64,
}

/// Where writing goes on after a start.
#[derive(Default)]
pub(super) struct Resume {
    pub kept: VecDeque<Kept>,
    /// The last segment, its acknowledged end and size; and whether writing may go on in it.
    pub last: Option<(Head, u64, u64)>,
    pub reuse: bool,
    /// The journal ends with a clean stop.
    pub closed: bool,
    /// Segments that got their names without ever having been used.
    pub unused: Vec<PathBuf>,
    pub newest: Revision,
    pub reserved: Revision,
}

pub(super) struct Journal {
    dir: PathBuf,
    active: Option<Active>,
    kept: VecDeque<Kept>,
    last_seq: u64,
    last_end: u64,
    /// Newest commit on stable storage.
    newest: Revision,
    reserved: Revision,
    next: Option<JoinHandle<io::Result<File>>>,
    /// A group whose writing failed may lie at the last segment's end, and come back after a crash, until the next segment
    /// says where that one ends.
    unsure: bool,
    pub written: u64,
    pub syncs: u64,
}

impl Journal {
    pub fn resume(dir: &Path, resume: Resume) -> io::Result<Self> {
        let mut journal = Self {
            dir: dir.to_owned(),
            active: None,
            kept: resume.kept,
            last_seq: 0,
            last_end: 0,
            newest: resume.newest,
            reserved: resume.reserved,
            next: None,
            written: 0,
            syncs: 0,
            unsure: false,
        };
        resume.unused.iter().try_for_each(|path| remove(path))?;
        let Some((head, end, size)) = resume.last else {
            // Segments are counted from the beginning again: records of the same number must not be found in them.
            spares(dir).iter().try_for_each(|spare| remove(spare))?;
            disk::sync_dir(dir)?;
            return Ok(journal);
        };
        journal.last_seq = head.seq;
        journal.last_end = end;
        let file = File::options().read(true).write(true).open(segment::path(dir, head.seq))?;
        settle(&file, end, resume.closed)?;
        disk::sync_dir(dir)?;
        if resume.reuse {
            journal.active = Some(Active { file, head, offset: end, size, begun: true });
        } else {
            journal.kept.push_back(Kept { seq: head.seq, base: head.base, size });
        }
        Ok(journal)
    }

    /// The newest commit on stable storage.
    pub fn newest(&self) -> Revision {
        self.newest
    }

    /// Revisions up to this one may be used without being in the journal.
    pub fn reserved(&self) -> Revision {
        self.reserved
    }

    /// Whether revisions that were refused may come back after a crash: until then none of them may mean something else.
    pub fn end_is_unsure(&self) -> bool {
        self.unsure
    }

    /// Bytes that a group may have so that it still goes into the segment at hand; a full one takes anything, because
    /// a new one follows.
    pub fn room(&self) -> u64 {
        let left = self.active.as_ref().map_or(SIZE, |a| a.size.saturating_sub(a.offset + HEADROOM));
        if left < SIZE / 64 { SIZE / 2 } else { left }
    }

    /// Bytes of the segments that hold commits after `revision`.
    pub fn bytes_since(&self, revision: Revision) -> u64 {
        let bases = self.kept.iter().skip(1).map(|kept| kept.base);
        let ends = bases.chain([self.active.as_ref().map_or(self.newest, |active| active.head.base)]);
        let kept: u64 =
            self.kept.iter().zip(ends).filter(|(_, end)| *end > revision).map(|(k, _)| k.size).sum();
        kept + self.active.as_ref().map_or(0, |active| active.offset)
    }

    /// Makes a batch durable, whole. `newest` is its newest commit, `reserved` what it reserves up to.
    ///
    /// # Errors
    /// Nothing of the batch counts then: the segment is given up, and the next one says where its valid part ends.
    pub fn write(&mut self, batch: &mut Batch, newest: Revision, reserved: Revision) -> io::Result<()> {
        let len = batch.len() as u64;
        let margin = if batch.len() <= 4 * HEADER { 0 } else { HEADROOM };
        let fits = |active: &Active| active.offset + len + margin <= active.size;
        if !self.active.as_ref().is_some_and(fits) {
            self.rotate(len)?;
        }
        if let Err(error) = self.write_active(batch) {
            self.give_up();
            return Err(error);
        }
        self.newest = newest.max(self.newest);
        self.reserved = reserved.max(self.reserved);
        self.written += len;
        self.syncs += 1;
        if self.next.is_none() && self.last_end > SIZE / 4 {
            self.prepare();
        }
        Ok(())
    }

    fn write_active(&mut self, batch: &mut Batch) -> io::Result<()> {
        let Some(active) = self.active.as_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        if !active.begun {
            active.begin(&self.dir)?;
            self.last_seq = active.head.seq;
            self.last_end = active.offset;
        }
        self.unsure = true;
        active.write(batch)?;
        self.unsure = false;
        self.last_end = active.offset;
        Ok(())
    }

    /// Leaves the segment at hand after its durable end. One whose header never became durable does not exist.
    fn give_up(&mut self) {
        if let Some(active) = self.active.take().filter(|active| active.begun) {
            self.kept.push_back(Kept { seq: active.head.seq, base: active.head.base, size: active.size });
        }
    }

    fn rotate(&mut self, len: u64) -> io::Result<()> {
        let seq = self.last_seq + 1;
        let need = (START as u64 + len + HEADROOM).next_multiple_of(4096);
        let prepared = self.next.take().map(JoinHandle::join);
        let file = match prepared {
            Some(Ok(Ok(file))) if need <= SIZE => file,
            Some(Ok(Err(error))) if disk::is_full(&error) => return Err(error),
            _ => create(&self.dir, seq, need.max(SIZE))?,
        };
        self.give_up();
        let (base, size) = (self.newest, file.metadata()?.len());
        let (reserved, previous_end) = (self.reserved, self.last_end);
        let head = Head { seq, base, reserved, previous_end, size, marked: true };
        self.active = Some(Active { file, head, offset: START as u64, size, begun: false });
        Ok(())
    }

    /// Makes the next segment in the background, because filling 4 MiB with zeroes takes longer than many commits.
    fn prepare(&mut self) {
        let (dir, seq) = (self.dir.clone(), self.last_seq + 1);
        let thread = std::thread::Builder::new().name("store-segment".into());
        self.next = thread.spawn(move || prepare(&dir, seq)).ok();
    }

    /// Begins a new segment at the next write, after damage or an error in the one at hand.
    pub fn abandon_segment(&mut self) {
        self.give_up();
        // A segment that could not be prepared when the disk was full is tried anew.
        if self.next.as_ref().is_some_and(JoinHandle::is_finished) {
            self.next = None;
        }
    }

    /// Leaves the segment at hand for one that never held anything else, and removes those that wait to be used again.
    pub fn start_afresh(&mut self) -> io::Result<()> {
        self.give_up();
        if let Some(next) = self.next.take() {
            drop(next.join());
            remove(&unnamed(&self.dir, self.last_seq + 1))?;
        }
        spares(&self.dir).iter().try_for_each(|spare| remove(spare))
    }

    /// The oldest segment that is kept holds commits after this revision only.
    pub fn begins_after(&self) -> Revision {
        self.kept.front().map_or_else(|| self.begun().unwrap_or(self.newest), |kept| kept.base)
    }

    /// The base of the segment at hand, once it is on the disk.
    fn begun(&self) -> Option<Revision> {
        self.active.as_ref().filter(|active| active.begun).map(|active| active.head.base)
    }

    /// Lets go of the segments whose commits are all at or before `upto`, but for the last; `recycle` keeps some to be
    /// used again.
    pub fn trim(&mut self, upto: Revision, recycle: bool) {
        while let Some(first) = self.kept.front() {
            let next = self.kept.get(1).map(|next| next.base).or_else(|| self.begun());
            if next.is_none_or(|next| next > upto) {
                return;
            }
            let path = segment::path(&self.dir, first.seq);
            let spare = self.dir.join(format!("{SPARE}{:012}", first.seq));
            let recycle = recycle && first.size == SIZE && spares(&self.dir).len() < SPARES;
            let done = if recycle { std::fs::rename(&path, spare) } else { std::fs::remove_file(&path) };
            if let Err(error) = done {
                tracing::warn!(path = %path.display(), %error, "cannot let go of a journal segment");
                return;
            }
            self.kept.pop_front();
        }
    }
}

impl Active {
    /// Makes the header durable, on its own, and gives the file its name: a disk may keep a later block and forget this
    /// one, and records without a header mean nothing.
    fn begin(&mut self, dir: &Path) -> io::Result<()> {
        let mark = record::end_mark(self.head.seq, u32::try_from(START).map_err(io::Error::other)?);
        self.file.write_all_at(&[&self.head.encode()[..], &mark].concat(), 0)?;
        self.file.sync_data()?;
        std::fs::rename(unnamed(dir, self.head.seq), segment::path(dir, self.head.seq))?;
        disk::sync_dir(dir)?;
        self.begun = true;
        Ok(())
    }

    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        let (len, end) = (batch.len(), self.offset + batch.len() as u64);
        batch.seal(self.head.seq, u32::try_from(self.offset).map_err(io::Error::other)?);
        if end + END as u64 <= self.size {
            batch.mark_end(self.head.seq, u32::try_from(end).map_err(io::Error::other)?);
        }
        let written = self.file.write_all_at(batch.bytes(), self.offset).and_then(|()| self.file.sync_data());
        batch.truncate(len);
        written?;
        self.offset = end;
        Ok(())
    }
}

/// Puts on stable storage what was read at the start: a process that was killed may have written it without syncing. After
/// anything but a clean stop it is written once more, because a sync that failed leaves pages that look clean.
fn settle(file: &File, end: u64, closed: bool) -> io::Result<()> {
    if !closed {
        let end = file.metadata()?.len().min(end + END as u64);
        let mut bytes = vec![0; usize::try_from(end).map_err(io::Error::other)?];
        match file.read_exact_at(&mut bytes, 0).and_then(|()| file.write_all_at(&bytes, 0)) {
            // Where blocks are not overwritten in place, a full disk has no room for it. What the disk cannot read is on
            // it, however badly.
            Err(error) if disk::is_full(&error) || disk::cannot_read(&error) => {}
            other => other?,
        }
    }
    file.sync_data()
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn spares(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let is_spare = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(SPARE))
    };
    entries.flatten().map(|entry| entry.path()).filter(is_spare).collect()
}

/// What a segment is called before its header is on the disk; a start removes it.
fn unnamed(dir: &Path, seq: u64) -> PathBuf {
    disk::temporary(&segment::path(dir, seq))
}

fn prepare(dir: &Path, seq: u64) -> io::Result<File> {
    let path = unnamed(dir, seq);
    for spare in spares(dir) {
        if spare.metadata().is_ok_and(|meta| meta.len() == SIZE) && std::fs::rename(&spare, &path).is_ok() {
            disk::sync_dir(dir)?;
            return File::options().read(true).write(true).open(&path);
        }
    }
    let file = create(dir, seq, SIZE)?;
    disk::zero(&file, SIZE)?;
    Ok(file)
}

/// A segment with its blocks allocated but not written.
fn create(dir: &Path, seq: u64, size: u64) -> io::Result<File> {
    let path = unnamed(dir, seq);
    // A file of an attempt that failed may have pages that never reached the disk.
    remove(&path)?;
    let file = disk::create_file(&path)?;
    if let Err(error) = disk::allocate(&file, size).and_then(|()| file.sync_all()) {
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    Ok(file)
}
