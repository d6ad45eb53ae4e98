//! The API server: HTTP, authentication, authorization, admission, registry, watch cache and store.

pub mod cache;
pub mod connect;
pub mod health;
pub mod http;
pub mod registry;
pub mod server;
pub mod metrics;
pub mod store;
pub mod strategy;
pub mod pki;
pub mod kubeconfig;
pub mod authn;
pub mod authz;
pub mod bootstrap;
pub mod access;
pub mod admission;
pub mod discovery;
pub mod openapi;
