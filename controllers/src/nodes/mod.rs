//! Nodes from outside: which are alive, what their state does to their pods, and which addresses their pods get.
//!
//! <https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller>

pub mod eviction;
pub mod health;
pub mod ipam;
mod plan;

/// The service account of all three.
const ACCOUNT: &str = "node-controller";
