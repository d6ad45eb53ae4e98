//! The Node object: registration, heartbeats and status.

mod heartbeat;
pub mod kernel;
mod runtime;
pub mod status;

pub use heartbeat::run;
