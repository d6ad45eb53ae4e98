//! What can go wrong with a volume, worded as upstream words it in FailedMount events.

use super::objects::ObjectError;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("no volume plugin matched")]
    NoPlugin,
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("{object} references non-existent {what}: {key}")]
    MissingKey { object: &'static str, what: &'static str, key: String },
    #[error("{0}")]
    Invalid(String),
    #[error("hostPath type check failed: {} is not a {kind}", path.display())]
    HostPathType { path: PathBuf, kind: &'static str },
    /// The claim is not bound yet, or its volume is of a kind that this node cannot mount.
    #[error("error processing PVC {namespace}/{claim}: {message}")]
    Claim { namespace: String, claim: String, message: String },
    #[error("failed to {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
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
