//! Reading a log file, and going on as it grows and rotates.

use super::line::Printer;
use super::{Options, tail};
use crate::log_files::LEVELS;
use bytes::{Bytes, BytesMut};
use coracle_storage::beneath::open_below;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Bytes read at a time.
const READ: usize = 64 * 1024;

/// Bytes of one line that are kept while its end is missing. Runtimes split lines at 16 KiB.
const MAX_LINE: usize = 1 << 20;

/// How often it is asked whether the container still runs, while its log is followed and nothing is written: its end
/// leaves no trace in the file.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Sends the log to `out` until its end or limit, or with `follow` until the container has ended (`alive` is false)
/// or the client is gone. Partial lines and lines cut by rotation come out whole.
pub(super) async fn copy(
    path: &Path,
    options: &Options,
    out: &mpsc::Sender<Bytes>,
    alive: impl Fn() -> bool,
) -> io::Result<()> {
    let changes = if options.follow { Some(Changes::of(path)?) } else { None };
    let mut log = Log::open(path, options.tail_lines).await?;
    let mut printer = Printer::new(options);
    let mut ended = false;
    while !printer.is_done() {
        if log.read().await? > 0 {
            if !send(&mut log, &mut printer, out).await {
                return Ok(());
            }
            continue;
        }
        if log.turn_over(path).await? {
            continue;
        }
        let Some(changes) = changes.as_ref().filter(|_| !ended) else { break };
        if !alive() {
            // What it wrote between the last read and its end is still to be read.
            ended = true;
            continue;
        }
        tokio::select! {
            () = out.closed() => return Ok(()),
            changed = changes.wait() => changed?,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
    if !printer.is_done() {
        let mut text = BytesMut::new();
        log.rest(&mut printer, &mut text);
        deliver(text, out).await;
    }
    Ok(())
}

/// Prints the whole lines that are there; false when the client is gone.
async fn send(log: &mut Log, printer: &mut Printer, out: &mpsc::Sender<Bytes>) -> bool {
    let mut text = BytesMut::new();
    log.lines(printer, &mut text);
    deliver(text, out).await
}

async fn deliver(text: BytesMut, out: &mpsc::Sender<Bytes>) -> bool {
    text.is_empty() || out.send(text.freeze()).await.is_ok()
}

/// Links are not followed: a pod that has the log directory of the node mounted could show any file of the node by one.
async fn open(path: &Path) -> io::Result<File> {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || open_below(LEVELS, &path)).await;
    Ok(File::from_std(opened.unwrap_or_else(|error| Err(error.into()))?))
}

/// An open log file.
struct Log {
    file: File,
    inode: u64,
    /// Bytes read whose line has no end yet.
    pending: BytesMut,
    /// Another file has taken the path: after what is left of this one, that one is next.
    rotated: bool,
}

impl Log {
    async fn open(path: &Path, tail_lines: Option<u64>) -> io::Result<Self> {
        let mut file = open(path).await?;
        if let Some(lines) = tail_lines {
            let start = tail::start(&mut file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
        }
        let inode = file.metadata().await?.ino();
        Ok(Self { file, inode, pending: BytesMut::new(), rotated: false })
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.pending.reserve(READ);
        self.file.read_buf(&mut self.pending).await
    }

    fn lines(&mut self, printer: &mut Printer, text: &mut BytesMut) {
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line = self.pending.split_to(end + 1);
            printer.print(&line[..end], text);
            if printer.is_done() {
                return;
            }
        }
        if self.pending.len() > MAX_LINE {
            tracing::debug!(bytes = self.pending.len(), "log line without end is left out");
            self.pending.clear();
        }
    }

    /// What is left without newline at the end of the file.
    fn rest(&mut self, printer: &mut Printer, text: &mut BytesMut) {
        let line = self.pending.split();
        if !line.is_empty() {
            printer.print(&line, text);
        }
    }

    /// At the end of the file: whether reading goes on, because the file was replaced or cut. The old file is read to
    /// its end once more after the new one appeared, for nothing is written to it from then on.
    async fn turn_over(&mut self, path: &Path) -> io::Result<bool> {
        if self.rotated {
            *self = Self::open(path, None).await?;
            return Ok(true);
        }
        match tokio::fs::metadata(path).await {
            Ok(now) if now.ino() != self.inode => self.rotated = true,
            Ok(now) if now.len() < self.file.stream_position().await? => {
                self.file.rewind().await?;
                self.pending.clear();
                return Ok(true);
            }
            Ok(_) => {}
            // Between the two steps of a rotation, or the container is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(self.rotated)
    }
}

/// Wakes when something happens in a log's directory. An inotify descriptor is read like a pipe.
struct Changes(pipe::Receiver);

/// Bytes for the events of one wake-up; one event takes at most 272 (inotify(7)).
const EVENTS: usize = 4096;

impl Changes {
    fn of(path: &Path) -> io::Result<Self> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let events = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        inotify.add_watch(directory, events)?;
        Ok(Self(pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify))?))
    }

    /// Returns once anything changed since the last call. Cancel safe.
    async fn wait(&self) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut [0; EVENTS]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(drop),
            }
        }
    }
}
