//! The scheduler: a queue, a framework of extension points, plugins, and a cache of nodes that one task owns.

pub mod cache;
pub mod config;
pub mod core;
pub mod cycle;
pub mod explain;
pub mod framework;
pub mod metrics;
pub mod plugins;
pub mod queue;
mod run;

pub use config::Config;
pub use run::{Error, Options, run};
