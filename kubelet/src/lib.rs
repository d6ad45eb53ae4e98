//! The kubelet: registers the node, runs its pods over CRI, keeps their volumes, probes and status.

mod blocking;
pub mod cgroup;
pub mod config;
pub mod configuration;
pub mod container;
pub mod cri;
mod eviction;
pub mod images;
mod kubelet;
pub mod last_seen;
mod log_links;
mod logs;
mod lost_shims;
mod manager;
mod measured;
mod node;
pub mod objects;
mod plugins;
pub mod pod;
pub mod pods_api;
pub mod probe;
mod run;
pub mod server;
mod settings;
mod shutdown;
pub mod simulate;
mod static_pods;
pub mod streaming;

pub use config::Config;
pub use run::{Built, Ended, Error, Parts, build, prepare_kernel, run};
