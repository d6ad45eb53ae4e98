//! What the runtime is asked to run: CRI configurations, computed from the pod's spec.

pub mod config;
pub mod dns;
pub mod env;
pub mod env_file;
pub mod hosts;
pub mod mounts;
pub mod resources;
pub mod sandbox;
pub mod security;
pub mod service_env;
pub mod swap;
