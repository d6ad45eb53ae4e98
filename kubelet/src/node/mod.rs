//! The Node object: registration, heartbeats and status.

pub mod facts;
mod heartbeat;
pub mod status;

pub use heartbeat::run;
