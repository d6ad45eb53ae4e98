//! The service proxy: turns Services and EndpointSlices into the kernel's rules.
//!
//! `model` says what shall be reachable, `iptables::rules` renders it (both pure), `iptables::apply` writes it. `network`
//! leads to the pods of other nodes.

mod checks;
pub mod health;
pub mod iptables;
pub mod model;
pub mod network;
mod run;

pub use run::{Config, Error, run};
