//! The snapshot of an etcd (`etcdctl snapshot save`) in which Kubernetes has kept its objects, as kubeadm and k3s lay them
//! out: `/registry/...`, protobuf for built-in resources and JSON for custom ones.

mod bolt;
mod mvcc;
mod objects;

use crate::progress::Progress;
use bolt::{Bolt, BoltError};
use coracle_apiserver::store::{KeyValue, Revision};
use mvcc::Newest;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// What etcdctl appends: the sum of all before.
const SUM: u64 = 32;
/// Sizes of pages are multiples of it, so that a file with a sum ends beside one.
const SECTOR: u64 = 512;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("its checksum is another: the file is damaged or was not copied whole")]
    Checksum,
    #[error(transparent)]
    Bolt(#[from] BoltError),
    #[error("it is damaged: {0}")]
    Record(String),
    #[error("there is nothing of Kubernetes in it: no key begins with {}", objects::PREFIX)]
    Empty,
    /// With the first such key and how many there are.
    #[error("{1} values are encrypted at rest, such as {0}: rewrite them with the provider identity first")]
    Encrypted(String, usize),
    #[error("{0}")]
    Object(String),
    #[error("it cannot be read")]
    Io(#[from] io::Error),
}

/// Whether a file may be one, by its beginning.
pub fn is_snapshot(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| !matches!(Bolt::open(file), Err(BoltError::Foreign)))
}

/// The objects of a snapshot.
pub struct Imported {
    pub items: Vec<KeyValue>,
    /// The newest of etcd's.
    pub revision: Revision,
    /// Keys that are etcd's or another server's own affair, and were left out.
    pub left_out: Vec<String>,
}

pub fn read(path: &Path) -> Result<Imported, SnapshotError> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let progress = |what: &str| Progress::new(format!("{what} {}", path.display()), Some(size));
    verify(&mut file, progress("checking"))?;
    let mut newest = Newest::default();
    let bolt = Bolt::open(file)?;
    let mut reading = progress("reading");
    let take = |key: &[u8], value: &[u8]| {
        reading.count(key.len() + value.len());
        newest.take(key, value)
    };
    bolt.bucket("key", take)?.map_err(SnapshotError::Record)?;
    objects::of(newest)
}

/// A file without a sum is a copy of a member's own, which has none.
fn verify(file: &mut File, progress: Progress) -> Result<(), SnapshotError> {
    let len = file.metadata()?.len();
    if len % SECTOR != SUM {
        return Ok(());
    }
    file.rewind()?;
    let mut file = progress.over(file);
    let (mut sum, mut left, mut piece) = (Sha256::new(), len - SUM, vec![0; 64 << 10]);
    while left > 0 {
        let wanted = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
        file.read_exact(&mut piece[..wanted])?;
        sum.update(&piece[..wanted]);
        left -= wanted as u64;
    }
    let mut expected = [0; 32];
    file.read_exact(&mut expected)?;
    if sum.finalize()[..] == expected { Ok(()) } else { Err(SnapshotError::Checksum) }
}
