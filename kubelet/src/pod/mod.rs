//! The life of a pod: what is observed, what is decided, how it is done, what is reported.

pub mod backoff;
pub mod labels;
pub mod observed;
pub mod plan;
pub mod qos;
pub mod status;
