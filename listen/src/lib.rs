//! Being a server: what a connection may cost before, between and after its requests.
//!
//! A listener knows its connections as strangers until somebody authenticates on them, and bounds strangers by number:
//! when there is no room, the oldest one goes of whoever holds most. Every connection is under a clock that says when it
//! has been idle, silent or stuck for too long ([`activity`]); watches, streams and whatever else waits for the server
//! live as long as they like. Answers that nobody takes are bounded by their bytes. Descriptors are divided between the listeners, so that none takes another's.

pub mod accept;
pub mod activity;
mod answer;
mod connection;
mod follow;
mod front;
mod idle;
mod io;
mod limits;
mod linger;
pub mod page;
mod places;
mod serve;
mod turns;
mod unsent;
mod upload;
pub mod zpages;

pub use activity::{Activity, End};
pub use answer::Answer;
pub use follow::{Follow, Followed, Polled};
pub use front::{Front, Settings};
pub use idle::{Quiet, Stamped};
pub use limits::{Limits, descriptors, raise_descriptors};
pub use places::{Place, Places};
pub use serve::serve;
pub use turns::{Turn, Turns};

#[cfg(test)]
mod tests;
