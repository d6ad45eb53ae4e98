//! Who takes the snapshots of some drivers, and deletes them, as a port.

use super::control::{Key, Snapshots};
use super::types::{VolumeSnapshotClass, VolumeSnapshotContent};
use coracle_client::{Controller, ReconcileError, WorkQueue};
use k8s_openapi::api::core::v1::PersistentVolume;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The keys of all snapshots and contents, for when something changes that concerns them all.
pub type Everything = Arc<dyn Fn() -> Vec<Key> + Send + Sync>;

/// What came of asking for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Somebody else works on it, and wakes it.
    Waits,
    /// It was taken. Unless `ready`, it is asked for again until it can be restored from.
    Cut {
        handle: String,
        ready: bool,
        /// Nanoseconds since 1970.
        created: i64,
        /// Of the smallest volume that holds it; 0 where nobody says.
        restore_bytes: i64,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// Is said of the object, and tried again.
    #[error("{0}")]
    Told(String),
    /// Is no matter of the snapshot.
    #[error("the snapshot cannot be worked on now")]
    Later(#[from] ReconcileError),
}

impl From<kube::Error> for TakeError {
    fn from(error: kube::Error) -> Self {
        Self::Later(error.into())
    }
}

/// Every call may be made again, and by a process that knows nothing of the last one.
pub trait Taker: Clone + Send + Sync + 'static {
    /// Whether the driver's snapshots are this one's.
    fn serves(&self, driver: &str) -> bool;

    /// Whether somebody else binds snapshots and contents, so that contents alone are worked on.
    fn is_bound_elsewhere(&self) -> impl Future<Output = Result<bool, kube::Error>> + Send;

    /// The driver's own name for the volume of the claim `claim`, or why no snapshot can be taken of it. `driver` is served.
    fn handle(&self, driver: &str, claim: &str, volume: &PersistentVolume) -> Result<String, String>;

    /// What the content of a snapshot of this class is annotated with when it is made.
    fn annotations(
        &self,
        _class: &VolumeSnapshotClass,
        _snapshot: (&str, &str),
        _content: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        Ok(BTreeMap::new())
    }

    /// Takes the snapshot of a content that is not ready yet, or looks how far it is.
    fn take(
        &self,
        content: &VolumeSnapshotContent,
        class: Option<&VolumeSnapshotClass>,
    ) -> impl Future<Output = Result<Taken, TakeError>> + Send;

    /// Deletes what a content stands for. False: somebody else does, and wakes it.
    fn delete(
        &self,
        content: &VolumeSnapshotContent,
        class: Option<&VolumeSnapshotClass>,
    ) -> impl Future<Output = Result<bool, TakeError>> + Send;

    /// Looks once more at a content that is ready.
    fn settle(
        &self,
        _content: &VolumeSnapshotContent,
    ) -> impl Future<Output = Result<(), ReconcileError>> + Send {
        async { Ok(()) }
    }

    /// Adds what else wakes snapshots.
    fn wire(
        &self,
        controller: Controller<Snapshots<Self>>,
        _queue: &WorkQueue<Key>,
        _everything: Everything,
    ) -> Controller<Snapshots<Self>> {
        controller
    }
}
