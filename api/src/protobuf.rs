//! Kubernetes' protobuf form of built-in objects, from JSON and into it.
//!
//! A body is the four bytes `k8s\0`, then a `runtime.Unknown`: the type (1), the object's message (2), and how it is
//! encoded (3, 4; both empty). Field numbers come from a generated table, what messages carry beyond what is set
//! from [`presence`]. Like upstream, the reader passes over numbers that it does not know.

mod duration;
mod presence;
mod read;
mod table;
mod tape;
mod wire;
mod write;

use crate::generated::messages::{MESSAGES, ROOTS};
pub use crate::generated::rows::{Field, Form, Kind, Message};
pub use read::decode;
pub use table::Type;
pub use wire::put;
pub use write::{Encoder, encode, envelope_head, envelope_tail};

/// The media type of the form.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting of messages that is read; schemas of CRDs are the deepest objects known, at about 40.
const DEEPEST: u8 = 100;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("no protobuf object: the first bytes are not k8s\\0")]
    Magic,
    #[error("the protobuf message ends too early, or is malformed")]
    Malformed,
    #[error("no protobuf form of {api_version} {kind} is known")]
    UnknownType { api_version: String, kind: String },
    #[error("field {0} is not valid")]
    Field(&'static str),
    #[error("messages are nested too deeply")]
    TooDeep,
    #[error("the text is no JSON of the expected kind")]
    Json,
}

type Result<T> = std::result::Result<T, ProtobufError>;

#[cfg(test)]
mod tests;
