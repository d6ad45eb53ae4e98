//! What a request is served with.

use crate::aggregation::Aggregator;
use crate::audit;
use crate::connect::KubeletClient;
use crate::discovery::Foreign;
use crate::flowcontrol::FlowControl;
use crate::openapi::DocumentCache;
use coracle_access::authn::Authenticator;
use coracle_access::authz::Gate;
use coracle_component_base::health::Health;
use coracle_component_base::metrics::Metrics;
use coracle_component_base::traces::Tracer;
use coracle_listen::zpages::Program;
use coracle_registry::Registry;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Static files, by their paths.
pub type Pages = fn(&str) -> Option<http::Response<axum::body::Body>>;

/// The parts of a running server, made once by whoever wires the server and shared by all requests.
pub struct ServerState {
    pub registry: Registry,
    pub authenticator: Option<Arc<Authenticator>>,
    pub authorizer: Arc<Gate>,
    pub kubelets: Option<KubeletClient>,
    pub health: Health,
    pub flow: Arc<FlowControl>,
    pub request_timeout: Duration,
    pub audit: Option<Arc<audit::Log>>,
    pub tracer: Option<Arc<Tracer>>,
    pub program: Arc<Program>,
    /// Where clients find this server, as host and port.
    pub address: RwLock<String>,
    /// Static files for anybody.
    pub pages: Option<Pages>,
    pub aggregator: Arc<Aggregator>,
    /// The same, for discovery and OpenAPI.
    pub foreign: Arc<dyn Foreign>,
    /// What discovery and OpenAPI show.
    pub documents: DocumentCache,
    pub stop: CancellationToken,
}

impl ServerState {
    /// What the server counts; what it serves is counted in it, too.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.registry.cache.metrics()
    }
}
