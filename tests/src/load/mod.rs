//! Attacks on a running server by somebody without rights, and what another client sees of them.
//!
//! [`Stage`] is a server with the attacker's and the other client's credentials; [`Stage::under`] runs one attack while the
//! other client gets an object every few milliseconds, and measures.

pub mod connections;
pub mod dns;
pub mod frames;
pub mod requests;
mod stage;
pub mod wire;

pub use stage::{Figures, LARGE, Stage};

/// What ends an attack that could not be carried out.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Each connection is a descriptor here and one in the server, which raises its own limit.
pub fn allow_descriptors() -> Result<(), Error> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}
