//! Volumes that come to this node, piece by piece: a request each, because clients of Kubernetes' API have a request's body
//! whole before they send it.

use super::job::{self, Size, at};
use super::transfer::{NodeVolumes, TransferError, WAITING, Wanted, Written, blocking};
use crate::beneath::Dir;
use crate::beneath::stream::{ReceiveError, Sent, begins, receive, send};
use crate::place::Place;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Bytes of a piece, or a little more. Larger, and servers hold more for each; smaller, and each is a line in more audit logs.
pub const PIECE_BYTES: usize = 2 << 20;
/// Bytes that a piece may have.
pub const LARGEST_PIECE_BYTES: usize = 8 << 20;

/// A volume of which no piece comes for so long is given up: whoever sent it was killed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an attempt waits for the one before to end, which has to see first that nothing comes any more.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);
const TURN_INTERVAL: Duration = Duration::from_millis(20);

/// What comes to a node now.
#[derive(Default)]
pub struct Incoming {
    /// By the directory, as it was asked for: whoever begins anew takes it over.
    sessions: Mutex<HashMap<String, Session>>,
    /// What is being written: never twice at a time.
    writing: Arc<Mutex<HashSet<PathBuf>>>,
    begun: AtomicU64,
}

struct Session {
    id: String,
    /// The number of the next piece.
    next: u64,
    touched: Instant,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    work: JoinHandle<Result<Written, TransferError>>,
}

impl NodeVolumes {
    /// Begins to make a volume; what names the attempt. One that is under way in the same place is given up.
    pub fn begin(&self, wanted: Wanted) -> String {
        let (pieces, receiver) = mpsc::channel(WAITING);
        let directory = wanted.directory.clone();
        // Who works on a volume must not keep alive what sends him pieces.
        let apart = Incoming { writing: self.incoming.writing.clone(), ..Incoming::default() };
        let this = Self { incoming: Arc::new(apart), ..self.clone() };
        let made = blocking(move || this.made(&wanted, Received { receiver, piece: Bytes::new() }));
        let number = self.incoming.begun.fetch_add(1, Ordering::Relaxed);
        let id = format!("{number}-{directory}");
        let session =
            Session { id: id.clone(), next: 0, touched: Instant::now(), pieces, work: tokio::spawn(made) };
        self.incoming.sessions.lock().insert(directory.clone(), session);
        tokio::spawn(self.incoming.clone().give_up(directory, id.clone()));
        id
    }

    /// The next piece of an attempt, by its number, from zero. An error is that of the whole.
    pub async fn piece(&self, id: &str, number: u64, piece: Bytes) -> Result<(), TransferError> {
        let pieces = {
            let mut sessions = self.incoming.sessions.lock();
            let session = sessions.values_mut().find(|session| session.id == id && session.next == number);
            let session = session.ok_or_else(unknown)?;
            (session.next, session.touched) = (number + 1, Instant::now());
            session.pieces.clone()
        };
        match pieces.send(Ok(piece)).await {
            Ok(()) => Ok(()),
            // It ended before: with an error, or somebody else took over.
            Err(_) => self.end(id).await.and(Err(unknown())),
        }
    }

    /// All pieces were sent; what was made of them.
    pub async fn end(&self, id: &str) -> Result<Written, TransferError> {
        let session = {
            let mut sessions = self.incoming.sessions.lock();
            let of =
                sessions.iter().find(|(_, session)| session.id == id).map(|(directory, _)| directory.clone());
            of.and_then(|directory| sessions.remove(&directory)).ok_or_else(unknown)?
        };
        drop(session.pieces);
        session.work.await.unwrap_or_else(|panic| Err(TransferError::Again(panic.to_string())))
    }

    fn made(&self, wanted: &Wanted, mut stream: Received) -> Result<Written, TransferError> {
        let place = Place::of(&self.root, &wanted.directory)?;
        let _turn = self.incoming.turn(&place.path)?;
        // What is there already goes for something that comes, and not for an error.
        stream.begins()?;
        if place.path.symlink_metadata().is_ok() {
            self.unused(&wanted.directory)?;
            job::remove(&place, self.host.as_ref())?;
        }
        let size = Size { bytes: wanted.bytes, quota: wanted.quota };
        let (mut received, mut cut) = (None, None);
        let made = job::make(&place, size, self.host.as_ref(), |made| {
            match receive(stream, made) {
                Ok(sent) => received = Some(sent),
                Err(ReceiveError::Write(source)) => return Err(at(&place.path)(source)),
                Err(error) => {
                    cut = Some(error);
                    return Err(at(&place.path)(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            // Also what is named last, and only then it is read again.
            nix::unistd::syncfs(made).map_err(io::Error::from).map_err(at(&place.path))?;
            let again = send(made, io::sink(), true).map_err(at(&place.path))?;
            let same = received.as_ref().is_some_and(|sent: &Sent| sent.digest == again.digest);
            let differs =
                || io::Error::other("the copy is not what was sent: this file system keeps less of files");
            if same { Ok(()) } else { Err(at(&place.path)(differs())) }
        });
        match cut {
            Some(error) => return Err(error.into()),
            None => made?,
        }
        let base = Dir::open(&place.base).map_err(at(&place.base))?;
        nix::unistd::syncfs(&base).map_err(io::Error::from).map_err(at(&place.base))?;
        let else_there = || TransferError::Again("somebody else has made this volume meanwhile".to_owned());
        let Sent { files, bytes, left_out, named, .. } = received.ok_or_else(else_there)?;
        Ok(Written { files, bytes, left_out, named })
    }
}

fn unknown() -> TransferError {
    TransferError::Again("nobody knows of this attempt: another one has begun, or it was given up".to_owned())
}

impl Incoming {
    /// Ends a session that nobody goes on with.
    async fn give_up(self: Arc<Self>, directory: String, id: String) {
        loop {
            tokio::time::sleep(IDLE_TIMEOUT).await;
            let mut sessions = self.sessions.lock();
            match sessions.get(&directory).filter(|session| session.id == id) {
                None => return,
                Some(session) if session.touched.elapsed() < IDLE_TIMEOUT => {}
                Some(_) => {
                    sessions.remove(&directory);
                    return;
                }
            }
        }
    }

    fn turn(&self, path: &Path) -> Result<Turn, TransferError> {
        let until = Instant::now() + TURN_TIMEOUT;
        while !self.writing.lock().insert(path.to_owned()) {
            if Instant::now() > until {
                return Err(TransferError::Again("the volume is being written already".to_owned()));
            }
            std::thread::sleep(TURN_INTERVAL);
        }
        Ok(Turn { writing: self.writing.clone(), path: path.to_owned() })
    }
}

/// Ends with itself.
struct Turn {
    writing: Arc<Mutex<HashSet<PathBuf>>>,
    path: PathBuf,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.writing.lock().remove(&self.path);
    }
}

/// Reads a stream.
struct Received {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Received {
    /// Waits for bytes; none are the end.
    fn wait(&mut self) -> io::Result<&Bytes> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => break,
            }
        }
        Ok(&self.piece)
    }

    /// Waits until it is known that a tree comes, or why there is none.
    fn begins(&mut self) -> Result<(), TransferError> {
        let first = self.wait().map_err(|error| TransferError::Again(error.to_string()))?.clone();
        Ok(begins(&first)?)
    }
}

impl From<ReceiveError> for TransferError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Unread(said) => Self::Refused(said),
            error => Self::Again(error.to_string()),
        }
    }
}

impl Read for Received {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        let length = into.len().min(self.piece.len());
        into[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}

/// The same bytes in pieces of [`PIECE_BYTES`].
pub fn in_pieces<S>(stream: S) -> impl Stream<Item = io::Result<Bytes>>
where
    S: Stream<Item = io::Result<Bytes>> + Unpin,
{
    futures::stream::unfold(Some(stream), |stream| async {
        let (mut stream, mut piece) = (stream?, BytesMut::new());
        while piece.len() < PIECE_BYTES {
            match stream.next().await {
                Some(Ok(more)) => piece.extend_from_slice(&more),
                Some(Err(error)) => return Some((Err(error), None)),
                None if piece.is_empty() => return None,
                None => return Some((Ok(piece.freeze()), None)),
            }
        }
        Some((Ok(piece.freeze()), Some(stream)))
    })
}
