//! What every component of the server rests on, as Kubernetes' component-base: metrics, traces, health checks, files of
//! configuration that are read again when they change, and the version.

pub mod config_file;
pub mod health;
pub mod large_work;
pub mod metrics;
pub mod traces;
pub mod version;
