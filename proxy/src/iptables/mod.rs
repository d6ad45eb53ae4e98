//! The iptables mode: what kube-proxy's rules look like, and how they get into the kernel.

pub mod apply;
pub mod rules;
