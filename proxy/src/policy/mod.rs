//! What NetworkPolicies, and administrators' policies where their definitions are installed, ask of the kernel: which
//! pods of this node are isolated, and what reaches them all the same.
//!
//! `follow` and `admin` say what the API says, `plan` decides (pure), `table` renders, `run` keeps it in the kernel: one table for each family, whose rules are shared by all pods under the same
//! policies. Whom a rule lets in stands in named sets, so that a pod that comes or goes is one element of some.

mod admin;
mod follow;
pub mod metrics;
mod model;
pub mod plan;
mod run;
pub mod table;

pub use run::{Config, clean_up, run};

#[cfg(test)]
mod packets;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tier_tests;
