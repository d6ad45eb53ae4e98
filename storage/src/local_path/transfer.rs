//! A node's volumes as streams: how one is read off a node and made on another (`/localPath/` of the kubelet's port).

use super::incoming::Incoming;
use super::job::{JobError, at};
use super::users::{InUse, users};
use crate::beneath::stream::{refuse, send};
use crate::beneath::{Dir, walk};
use crate::place::{Place, PlaceError};
use crate::volumes::Mounter;
use crate::volumes::image;
use bytes::Bytes;
use futures::Stream;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// Pieces that wait for whoever takes them: as much is held of a volume that is moved, on either side.
pub(super) const WAITING: usize = 4;

/// The volumes of this node. Cloning shares it.
#[derive(Clone)]
pub struct NodeVolumes {
    pub(super) root: PathBuf,
    pub(super) host: Arc<dyn Mounter>,
    pub(super) incoming: Arc<Incoming>,
}

/// How much a volume holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub files: u64,
    /// On the disk.
    pub bytes: u64,
}

/// A volume to be made of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    /// As [`Place::of`] takes it. What is there already, of an attempt that was cut off, goes.
    pub directory: String,
    /// The size of its own file system, or of its quota, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
}

/// A volume that was made of a stream, and compared with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    pub files: u64,
    pub bytes: u64,
    /// Sockets, pipes and devices are not copied.
    #[serde(default)]
    pub left_out: u64,
    /// The first of them.
    #[serde(default)]
    pub named: Vec<String>,
}

/// What a node answers: either was done, or can never be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Said<T> {
    Done(T),
    Refused(String),
}

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// It will be so the next time, too.
    #[error("{0}")]
    Refused(String),
    /// It may be done again.
    #[error("{0}")]
    Again(String),
}

impl From<JobError> for TransferError {
    fn from(error: JobError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<PlaceError> for TransferError {
    fn from(error: PlaceError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl NodeVolumes {
    /// `root` is `<data-dir>/local-path`.
    pub fn new(root: PathBuf, host: Arc<dyn Mounter>) -> Self {
        Self { root, host, incoming: Arc::default() }
    }

    /// What the volume holds, if nobody has it.
    ///
    /// # Errors
    /// Refused where something on this node still has it mounted, and where it is not there.
    pub async fn look(&self, directory: &str) -> Result<Contents, TransferError> {
        let (this, directory) = (self.clone(), directory.to_owned());
        blocking(move || {
            let (path, dir) = this.unused(&directory)?;
            let (mut contents, mut seen) = (Contents::default(), HashSet::new());
            let reached = walk(&dir, |node| {
                contents.files += 1;
                if node.is_file() && seen.insert(node.inode()) {
                    contents.bytes += node.blocks() * 512;
                }
                Ok(())
            });
            reached.and_then(|reached| reached.whole()).map_err(at(&path))?;
            contents.files -= 1;
            Ok(contents)
        })
        .await
    }

    /// The volume as a stream. Nobody may write to it until the end.
    pub fn read(&self, directory: &str) -> impl Stream<Item = io::Result<Bytes>> + use<> {
        let (this, directory) = (self.clone(), directory.to_owned());
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::task::spawn_blocking(move || {
            let out = BufWriter::with_capacity(PIECE, Pieces(sender));
            let sent = match this.unused(&directory) {
                Ok((_, dir)) => send(&dir, out, false).map(drop),
                Err(error) => refuse(out, &error.to_string()),
            };
            // Whoever reads is told by the stream itself.
            if let Err(error) = sent {
                tracing::warn!(directory, %error, "a volume was not read to its end");
            }
        });
        pieces(receiver)
    }

    pub(super) fn unused(&self, directory: &str) -> Result<(PathBuf, Dir), TransferError> {
        let Place { path, .. } = Place::of(&self.root, directory)?;
        image::mount_if_any(&path, self.host.as_ref()).map_err(JobError::from)?;
        let dir = Dir::open(&path).map_err(at(&path))?;
        let users = users(&path).map_err(at(&path))?;
        InUse::by(&users).map_err(JobError::from)?;
        Ok((path, dir))
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, TransferError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(TransferError::Again(panic.to_string())))
}

fn pieces(receiver: mpsc::Receiver<io::Result<Bytes>>) -> impl Stream<Item = io::Result<Bytes>> {
    futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) })
}

/// Writes into a stream.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
