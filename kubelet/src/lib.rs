//! The kubelet: registers the node, runs its pods over CRI, keeps their volumes, probes and status.

pub mod config;
pub mod container;
pub mod cri;
pub mod pod;
pub mod pods_api;
pub mod simulate;
pub mod server;
pub mod streaming;

pub use config::Config;
