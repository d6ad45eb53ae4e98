//! The edge: what a request means, and how an answer is written.

pub mod body;
mod deprecation;
mod exchange;
mod gzip;
pub mod limits;
pub mod list_body;
mod measure;
pub mod negotiation;
mod paths;
pub mod request_info;
mod resources;
pub mod respond;
mod route;
pub mod serve;
pub mod service;
pub mod shape;
mod special;
mod steps;
pub mod watch_body;

pub use negotiation::{Shape, Wanted};
pub use request_info::RequestInfo;
pub use respond::{Content, Reply};
