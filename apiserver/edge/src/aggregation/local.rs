//! Groups that a part of this server answers for, as an aggregated server would.

use crate::discovery::{Document, ForeignVersion};
use crate::wire::RequestHeaders;
use axum::body::Body;
use coracle_api::ApiError;
use coracle_requests::RequestInfo;
use http::Response;
use serde_json::Value;

/// Answers for one group and version as long as its APIService is local. A server that is installed takes its place by
/// changing that.
#[async_trait::async_trait]
pub trait LocalService: Send + Sync {
    fn group(&self) -> &'static str;

    fn version(&self) -> &'static str;

    /// For the merged discovery documents.
    fn discovery(&self) -> ForeignVersion;

    /// The group's own documents, by their path: discovery and OpenAPI v3.
    fn document(&self, path: &str) -> Option<Document>;

    /// Key and address of the OpenAPI v3 document, for its index.
    fn openapi_v3_entry(&self) -> (String, String);

    fn openapi_v2(&self) -> Value;

    /// Answers a request for a resource of the group, which is authorized.
    ///
    /// # Errors
    /// What the client is to be told instead.
    async fn answer(&self, info: &RequestInfo, headers: &RequestHeaders) -> Result<Response<Body>, ApiError>;
}
