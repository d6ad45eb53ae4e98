//! The API server: HTTP, authentication, authorization, admission, registry, watch cache and store.

pub mod store;
pub mod strategy;
