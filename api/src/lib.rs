//! The object model that every room shares: no I/O, no clock, no threads.

pub mod catalogue;
pub mod certificate;
pub mod condition;
pub mod convert;
pub mod cron;
pub mod decode;
pub mod duration;
pub mod encode;
pub mod error;
mod float;
mod generated;
pub mod go;
pub mod hex;
pub mod identity;
pub mod managed;
pub mod meta;
pub mod node_addresses;
pub mod patch;
pub mod pieces;
pub mod pod;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod re2;
pub mod releases;
pub mod schema;
pub mod selector;
pub mod storage;
pub mod structural;
pub mod toleration;
pub mod validation;
pub mod well_known;
pub mod yaml;

pub use catalogue::{Resource, Subresource};
pub use error::{ApiError, FieldError, Origin, shown};
pub use identity::UserInfo;
pub use pieces::Pieces;
pub use quantity::Quantity;
pub use selector::{FieldSelector, LabelSelector};

/// A Kubernetes object in its decoded, untyped form.
pub type Object = serde_json::Value;
