//! The object model that every room shares: no I/O, no clock, no threads.

pub mod error;
pub mod identity;

pub use error::{ApiError, FieldError};
pub use identity::UserInfo;

/// A Kubernetes object in its decoded, untyped form.
pub type Object = serde_json::Value;
