//! The life of a pod: what is observed, what is decided, how it is done, what is reported.

mod act;
pub mod admit;
mod claims;
pub mod crowded;
mod end_act;
mod last_words;
mod placing;
pub mod plan;
mod probing;
pub mod resize;
mod resize_act;
pub mod resize_order;
mod start;
pub mod status;
pub mod stubborn;
mod telling;
mod timing;
mod unlocated;
mod volumes;
pub mod worker;

pub use crate::pod_facts::{backoff, containers, ending, labels, observed, qos, resources, userns};

pub use end_act::{force, remove_everything};
