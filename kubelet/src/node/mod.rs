//! The Node object: registration, heartbeats and status.

mod heartbeat;
pub mod kernel;
pub mod own;
mod runtime;
pub mod status;

pub use heartbeat::run;
