//! The edge of the API server: HTTP, discovery, OpenAPI, aggregation, streams, flow control, audit. What a request means, and
//! how an answer is written. Whoever wires a server makes a [`http::ServerState`] of its parts.

pub mod aggregation;
pub mod audit;
pub mod connect;
pub mod discovery;
pub mod flowcontrol;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
pub mod http;
pub mod metrics_api;
#[cfg(test)]
mod metrics_page_tests;
pub mod openapi;
pub mod wire;
