//! The service proxy: turns Services and EndpointSlices into what the kernel does with packets.
//!
//! `model` and `plan` say what shall be reachable (pure). A `backend` brings a plan into force: `iptables`, `nftables`,
//! `ipvs`, `userspace`, each with its rendering (pure) apart from its writing. `mode_controller` changes between them and mends what others
//! break, `configuration` says which and how, `run` ties it to the API. `network` leads to the pods of other nodes.

pub mod backend;
pub mod balancing;
mod checks;
pub mod command;
pub mod configuration;
pub mod conntrack;
pub mod family;
pub mod health;
pub mod iptables;
pub mod ipvs;
mod kernel;
pub mod metrics;
mod mode_controller;
pub mod model;
mod netlink;
pub mod network;
pub mod nftables;
pub mod notices;
pub mod plan;
pub mod policy;
mod run;
#[cfg(test)]
mod suite;
pub mod userspace;

pub use configuration::Flags;
pub use configuration::source::{CLUSTER_CIDR_ENTRY, Source};
pub use run::{AsNode, Config, Error, clean_up, run};
