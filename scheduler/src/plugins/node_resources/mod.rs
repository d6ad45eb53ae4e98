//! Plugins about what a node has left.

mod balanced;
mod fit;
mod strategy;

pub use balanced::{NodeResourcesBalancedAllocation, POINTS as BALANCED_POINTS};
pub use fit::{NodeResourcesFit, POINTS as FIT_POINTS};
