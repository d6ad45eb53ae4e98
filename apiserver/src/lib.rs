//! The API server: HTTP, authentication, authorization, admission, registry, watch cache and store.

pub mod cache;
pub mod connect;
pub mod http;
pub mod store;
pub mod strategy;
pub mod pki;
pub mod kubeconfig;
