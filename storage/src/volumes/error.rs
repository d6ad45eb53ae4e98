//! What can go wrong with a volume, worded as upstream words it in FailedMount events.

use super::objects::ObjectError;
use crate::csi::CallError;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Upstream's words, and the kind that it is about.
    #[error("no volume plugin matched: this node cannot mount volumes of kind {kind:?}")]
    NoPlugin { kind: String },
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("{object} references non-existent {what}: {key}")]
    MissingKey { object: &'static str, what: &'static str, key: String },
    #[error("{0}")]
    Invalid(String),
    #[error("hostPath type check failed: {} is not a {kind}", path.display())]
    HostPathType { path: PathBuf, kind: &'static str },
    #[error("local volume {} is not a {kind}", path.display())]
    LocalType { path: PathBuf, kind: &'static str },
    /// The claim is not bound yet, or its volume is of a kind that this node cannot mount.
    #[error("error processing PVC {namespace}/{claim}: {message}")]
    Claim { namespace: String, claim: String, message: String },
    #[error("failed to {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// Worded as upstream's CSI plugin words it.
    #[error("driver name {0} not found in the list of registered CSI drivers")]
    UnknownDriver(String),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("volume {volume:?} is not attached to node {node:?} yet")]
    NotAttached { volume: String, node: String },
    #[error("volume {0:?} has not been added to the list of VolumesInUse in the node's volume status")]
    NotReported(String),
    /// Upstream's words.
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    UsedByAnotherPod,
    /// Upstream's words.
    #[error("NodeAffinity check failed: no matching NodeSelectorTerms")]
    OtherNodes,
    #[error("volume mode {mode:?} not supported by driver {driver} (only supports {supported:?})")]
    LifecycleMode { mode: &'static str, driver: String, supported: Vec<String> },
    /// The record of a volume cannot be understood.
    #[error(transparent)]
    Record(serde_json::Error),
    #[error("mounting {share:?} is not possible: {missing}")]
    NfsMissing { share: String, missing: &'static str },
    #[error("mount failed: {0}")]
    MountCommand(String),
    #[error("file work failed: {0}")]
    Panicked(String),
    #[error("{} is still mounted", path.display())]
    StillMounted { path: PathBuf },
    #[error("subPath {sub_path:?} is not within the volume")]
    SubPathEscapes { sub_path: String },
}

impl VolumeError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}
