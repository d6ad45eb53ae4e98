//! Cluster DNS: names of Services and pods from the API, everything else from the node's own resolvers.
//!
//! `zone` answers from plain data (the Kubernetes DNS specification, version 1.1.0), `wire` turns that into messages,
//! `forward` asks others, `server` listens; `pace`, `thinning` and `socket_filter` keep one client's flood from the others.

mod forward;
mod pace;
mod run;
mod server;
mod socket_filter;
mod thinning;
mod wire;
pub mod zone;

pub use run::{Config, Error, run};
