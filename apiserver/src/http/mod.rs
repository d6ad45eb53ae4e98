//! The edge: what a request means, and how an answer is written.

mod accept;
mod admit_connect;
pub mod body;
mod component_statuses;
mod deprecation;
mod exchange;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod fuzzing;
pub(crate) mod gzip;
mod health;
mod indent;
pub(crate) mod large;
pub mod limits;
pub mod list_body;
mod measure;
pub mod negotiation;
pub mod object_form;
mod paths;
pub mod request_headers;
mod resources;
pub mod respond;
mod route;
mod seats;
pub mod serve;
pub mod service;
pub mod shape;
mod special;
mod standing;
mod steps;
mod upload;
mod warnings;
pub mod watch_body;
mod watch_stream;
mod yaml;
mod zpages;

pub use negotiation::{Format, Shape, Wanted};
pub use request_headers::RequestHeaders;
pub use respond::{Content, Reply};

pub use coracle_requests::RequestInfo;
