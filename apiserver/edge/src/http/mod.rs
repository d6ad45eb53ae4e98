//! The edge: what a request means, and how an answer is written.

mod admit_connect;
pub mod body;
mod component_statuses;
mod deprecation;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod fuzzing;
mod handler;
mod health;
pub(crate) mod large;
mod latency;
pub mod limits;
pub mod list_body;
mod measure;
mod non_resource;
pub mod object_form;
mod request_context;
mod resources;
mod reviews;
mod route;
mod seats;
pub mod serve;
pub mod service;
mod standing;
pub mod state;
mod table;
mod upload;
pub mod watch_body;
mod watch_stream;

pub use state::{Pages, ServerState};

pub use crate::wire::{Content, Format, Reply, RequestHeaders, Shape, Wanted};
pub use coracle_listen::zpages::Program;
pub use coracle_requests::RequestInfo;
