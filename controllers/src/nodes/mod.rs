//! Nodes from outside: which are alive, what their state does to their pods, and which addresses their pods get.
//!
//! <https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller>

mod counted;
pub mod eviction;
pub mod health;
pub mod ipam;
pub mod labels;
pub mod lifecycle;
mod plan;
pub mod ttl;
mod zones;

/// The service account of those that see to nodes' health and addresses.
const ACCOUNT: &str = "node-controller";
