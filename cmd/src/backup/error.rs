//! Why a backup cannot be read.

use super::chunks::FORMAT;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it is no backup of coracle")]
    Foreign,
    #[error("a later version of coracle made it (format {0}, this one knows up to {FORMAT})")]
    Newer(u32),
    #[error("it is sealed; --key-file names the file with its key")]
    KeyNeeded,
    #[error("it is sealed by another key")]
    WrongKey,
    #[error("it is cut short")]
    Truncated,
    /// With what is damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("it cannot be read")]
    Io(#[source] io::Error),
}

/// Errors pass through `Read` and come out as they were.
impl From<io::Error> for ArchiveError {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Io)
    }
}

impl From<ArchiveError> for io::Error {
    fn from(error: ArchiveError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
