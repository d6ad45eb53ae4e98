//! Images: pulling, credentials, and those that need no registry.

pub mod auth;
pub mod gc;
pub mod import;
pub mod pause;
pub mod pull;
