//! What the end-to-end tests need: the real binary in a cluster of its own, and commands as a user types them.
//!
//! `CORACLE_BIN` names the binary under test; without it the newest of `target/{release,debug}/coracle` is taken.

pub mod apart;
pub mod binary;
pub mod browser;
#[cfg(test)]
mod circles;
pub mod clients;
pub mod cluster;
pub mod custom;
pub mod etcd;
pub mod hook;
pub mod http;
pub mod image;
pub mod kms;
pub mod load;
#[cfg(test)]
mod profiles;
pub mod provider;
pub mod rest;
pub mod shell;
pub mod soak;
pub mod transcript;
pub mod wait;

pub use apart::{NoNetwork, apart};
pub use binary::{coracle, repository};
pub use cluster::Cluster;
pub use hook::Hook;
pub use http::Answer;
pub use provider::{Provider, SigningKey};
pub use shell::{Output, Shell};
pub use wait::wait_for;

/// Says why a test does nothing here. Returns from the test are the caller's.
pub fn skipped(reason: &str) {
    println!("skipped: {reason}");
}
