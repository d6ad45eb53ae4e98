//! The API server: HTTP, authentication, authorization, admission, registry, watch cache and store.

pub mod access;
pub mod admission;
pub mod aggregation;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod bootstrap;
pub mod cache;
pub mod catalogue;
pub mod config_file;
pub mod connect;
pub mod conversion;
pub mod crd;
pub mod custom;
pub mod discovery;
pub mod encryption;
pub mod flowcontrol;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
pub mod health;
pub mod http;
pub mod kubeconfig;
pub mod metrics;
pub mod metrics_api;
pub mod openapi;
pub mod pki;
pub mod registry;
pub mod server;
pub mod store;
pub mod strategy;
pub mod traces;
pub mod webhook;
