//! How it went with what a document says.

/// How it went with one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Applied,
    /// What it stands on is not there yet.
    Waiting(String),
    Failed(String),
}
