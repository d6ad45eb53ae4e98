//! The iptables mode: what kube-proxy's rules look like, and how they get into the kernel.

mod backend;
mod jumps;
pub mod rules;
mod written;

pub use backend::Iptables;
