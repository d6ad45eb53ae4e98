//! The edge: what a request means, and how an answer is written.

pub mod request_info;

pub use request_info::RequestInfo;
