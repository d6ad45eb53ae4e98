//! The life of a pod: what is observed, what is decided, how it is done, what is reported.

pub mod admit;
mod claims;
pub mod crowded;
mod events;
mod execute;
mod execute_resize;
mod execute_termination;
mod placing;
pub mod plan;
mod probing;
pub mod resize;
pub mod resize_order;
mod start;
pub mod status;
pub mod stubborn;
mod telling;
mod termination_message;
mod timing;
mod unlocated;
mod volumes;
pub mod worker;

pub use crate::pod_facts::{backoff, containers, labels, observed, qos, resources, termination, userns};

pub use execute_termination::{force, remove_everything};
