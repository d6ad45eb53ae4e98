//! Cluster DNS: names of Services and pods from the API, everything else from the node's own resolvers.
//!
//! `zone` answers from plain data (the Kubernetes DNS specification, version 1.1.0), `wire` turns that into messages,
//! `configuration` reads the Corefile, `views` are its server blocks at work, `forward` asks others, `cache` keeps what they
//! said, `server` listens, `endpoints` and `announcement` say where; `pace`, `allowance`, `thinning` and `socket_filter` keep
//! one client's flood from the others.

mod addresses;
mod allowance;
mod announcement;
mod cache;
mod configuration;
mod endpoints;
mod forward;
mod metrics;
mod pace;
mod pages;
mod run;
mod server;
mod socket_filter;
mod thinning;
mod views;
mod wire;
pub mod zone;

pub use configuration::source::default_text as default_corefile;
pub use run::{Config, Error, Publication, run};
