//! What follows from a pod, its containers and what the runtime says of them, for every part of the kubelet: names, classes,
//! amounts, ends. Nothing here knows the kubelet.

pub mod backoff;
pub mod containers;
pub mod critical;
pub mod features;
pub mod labels;
pub mod observed;
pub mod qos;
pub mod resources;
pub mod sysctls;
pub mod termination;
pub mod userns;

use jiff::Timestamp;

/// Times in a status have whole seconds, as the API server returns them.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
