//! What NetworkPolicies ask of the kernel: which pods of this node are isolated, and what reaches them all the same.
//!
//! `plan` decides (pure), `table` renders: one table for each family, whose rules are shared by all pods under the same
//! policies. Whom a rule lets in stands in named sets, so that a pod that comes or goes is one element of some.

pub mod plan;
pub mod table;

#[cfg(test)]
mod tests;
