//! The life of a pod: what is observed, what is decided, how it is done, what is reported.

mod act;
pub mod admit;
pub mod backoff;
pub mod cgroups;
pub mod counted;
pub mod crowded;
mod end_act;
pub mod ending;
pub mod inbox;
pub mod labels;
mod last_words;
pub mod observed;
pub mod plan;
pub mod publisher;
pub mod qos;
pub mod resize;
mod resize_act;
pub mod resize_order;
pub mod room;
mod start;
pub mod status;
pub mod stubborn;
mod timing;
mod unlocated;
pub mod userns;
mod volumes;
pub mod worker;

pub use end_act::{force, remove_everything};
