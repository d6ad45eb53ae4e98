//! Streaming.
pub mod spdy;
