//! Probes and lifecycle handlers: what is asked of containers, and what the answers amount to.

pub mod action;
pub mod counter;
mod grpc;
mod http;
pub mod prober;
mod redirect;
mod tls;

pub use action::{Action, Outcome, Target};
