//! What other servers contribute to discovery and OpenAPI.

use super::Ranking;
use serde_json::Value;
use std::sync::Arc;

/// The view that discovery and OpenAPI have of aggregated servers. All answers come from memory at once: whatever a
/// server of somebody else's does, asking here never waits for it.
pub trait Foreign: Send + Sync {
    /// Another number whenever another method answers differently.
    fn generation(&self) -> u64;

    /// How groups and versions are ordered, local ones included.
    fn ranking(&self) -> Arc<Ranking>;

    /// The groups and versions that other servers answer for, whether or not these can be reached.
    fn versions(&self) -> Vec<Arc<ForeignVersion>>;

    /// Entries of the index of OpenAPI v3: `apis/<group>/<version>` and its relative address with a hash. The documents
    /// themselves are fetched by the request that asks for them, before OpenAPI sees it.
    fn openapi_v3(&self) -> Vec<(String, String)>;

    /// Swagger documents (OpenAPI v2), each with `paths` below its own groups and versions only and the `definitions`
    /// that these need. Merge them with `openapi::merge_v2`.
    fn openapi_v2(&self) -> Vec<Arc<Value>>;
}

/// One group and version of another server.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignVersion {
    pub group: String,
    pub version: String,
    /// The server could not be asked lately; what it said before is shown with `freshness: Stale`.
    pub stale: bool,
    /// Entries as `APIResourceDiscovery` of `apidiscovery.k8s.io/v2`, in the server's order; none if it never answered.
    pub resources: Vec<Value>,
}

/// Nobody else serves anything.
#[derive(Default)]
pub struct NoForeign;

impl Foreign for NoForeign {
    fn generation(&self) -> u64 {
        0
    }

    fn ranking(&self) -> Arc<Ranking> {
        Arc::default()
    }

    fn versions(&self) -> Vec<Arc<ForeignVersion>> {
        Vec::new()
    }

    fn openapi_v3(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn openapi_v2(&self) -> Vec<Arc<Value>> {
        Vec::new()
    }
}
