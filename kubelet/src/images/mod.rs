//! Images: pulling, credentials, and those that need no registry.

pub mod auth;
pub mod credentials;
pub mod gc;
pub mod import;
pub mod pause;
pub mod pull;
pub mod records;
