//! The nftables mode: one table `kube-proxy` for each family.
//!
//! Nothing in it is made for a single Service but entries of maps: which chain takes a Service's traffic (a chain for each
//! number of endpoints, shared by all Services with so many), and which endpoint has which number. So a change costs what
//! it changes, however many Services there are. Services with affinity and source ranges alone have more: see
//! [`entries`].

mod backend;
mod base;
mod entries;
mod steps;

pub use backend::Nftables;
pub(crate) use base::{family_word, of_pods};

/// The table's name is upstream's, so that people and tools find what they know.
pub const TABLE: &str = "kube-proxy";
