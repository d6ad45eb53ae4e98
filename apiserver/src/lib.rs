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
pub mod connect;
pub mod conversion;
pub mod crd;
pub mod custom;
pub mod discovery;
pub mod flowcontrol;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
pub mod http;
pub mod metrics_api;
#[cfg(test)]
mod metrics_page_tests;
pub mod openapi;
pub mod registry;
pub mod server;
pub use coracle_component_base::config_file;
pub use coracle_component_base::health;
pub use coracle_component_base::metrics;
pub use coracle_component_base::traces;
pub use coracle_component_base::version;
pub use coracle_pki as pki;
pub use coracle_pki::kubeconfig;
pub use coracle_requests as requests;
pub use coracle_store as store;
pub use coracle_store::encryption;
pub use coracle_strategy as strategy;
pub use coracle_webhook as webhook;
