//! The Node object: registration, heartbeats and status.

pub mod facts;
mod heartbeat;
pub mod own;
pub mod status;
pub mod thresholds;

pub use heartbeat::run;
