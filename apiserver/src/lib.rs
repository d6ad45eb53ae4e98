//! The API server as a whole: what wires the rooms below, each a crate, and the objects that every cluster begins with.
//! Dependencies of the rooms point one way:
//!
//! * `base` (metrics, traces, health, reloaded files), `pki`, then `store` with its encryption;
//! * `requests`: what a request says, the contracts of authorization and admission, the port that reads present state;
//! * `webhook` (the client) and `strategy` (what is particular to a resource, and CEL's environments) over these;
//! * `resources`: watch cache, catalogue, custom resources and their definitions;
//! * `access` (who, and may they), `admission` over it, and `registry` (the generic path), which knows neither;
//! * `edge`: HTTP, discovery, OpenAPI, aggregation, streams, flow control, audit.

pub mod bootstrap;
pub mod server;

// Under the names that other crates know.
pub use coracle_access::authn;
pub use coracle_access::authz;
pub use coracle_access::reviews as access;
pub use coracle_admission as admission;
pub use coracle_component_base::config_file;
pub use coracle_component_base::health;
pub use coracle_component_base::metrics;
pub use coracle_component_base::traces;
pub use coracle_component_base::version;
#[cfg(any(test, feature = "testing"))]
pub use coracle_edge::fuzzing;
pub use coracle_edge::{
    aggregation, audit, connect, discovery, flowcontrol, http, metrics_api, openapi, wire,
};
pub use coracle_pki as pki;
pub use coracle_pki::kubeconfig;
pub use coracle_registry as registry;
pub use coracle_requests as requests;
pub use coracle_resources::Resources;
pub use coracle_resources::cache;
pub use coracle_resources::catalogue;
pub use coracle_resources::conversion;
pub use coracle_resources::custom;
pub use coracle_resources::definitions as crd;
pub use coracle_store as store;
pub use coracle_store::encryption;
pub use coracle_strategy as strategy;
pub use coracle_webhook as webhook;
