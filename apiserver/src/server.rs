//! The API server as a whole: made of its parts here, and nowhere else.

use axum::Router;
use axum::body::Body;
use coracle_access::authn::{self, Authenticator};
use coracle_access::authz::{Gate, Generation};
use coracle_admission::policy;
use coracle_component_base::health::{Health, Matters};
use coracle_component_base::metrics::Metrics;
use coracle_component_base::traces::{self, Tracer};
use coracle_edge::aggregation::{Aggregator, FrontProxy};
use coracle_edge::audit;
use coracle_edge::connect::{self, KubeletClient};
use coracle_edge::flowcontrol::{self, FlowControl};
use coracle_edge::http::limits::REQUEST_TIMEOUT;
use coracle_edge::http::serve;
use coracle_edge::http::service;
use coracle_edge::http::{Pages, Program, ServerState};
use coracle_edge::metrics_api::MetricsApi;
use coracle_edge::openapi::DocumentCache;
use coracle_registry::{Admission, Clock, Registry};
use coracle_resources::Resources;
use coracle_resources::cache::Cache;
use coracle_store::{Store, StoreError};
use http::Request;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The parts that differ between a server and a test of one.
pub struct ServerConfig {
    /// Who is asking over a socket. Without one, only callers in this process are known.
    pub authenticator: Option<Arc<Authenticator>>,
    pub authorizer: Arc<Gate>,
    pub admission: Arc<dyn Admission>,
    /// The way to kubelets; without it, logs and streams answer 503.
    pub kubelets: Option<KubeletClient>,
    pub health: Health,
    pub clock: Clock,
    /// Ends watches, and with them the last long requests.
    pub stop: CancellationToken,
}

/// Settings of the HTTP edge: flow control, time limits, audit, traces, and what the server tells of itself.
#[derive(Clone)]
pub struct EdgeOptions {
    pub flow: flowcontrol::Options,
    /// For requests that are neither watches nor streams: upstream's `--request-timeout`.
    pub request_timeout: Duration,
    pub audit: Option<Arc<audit::Log>>,
    pub traces: Option<traces::Config>,
    /// What `/statusz` and `/flagz` tell.
    pub program: Arc<Program>,
    /// Where clients find this server, as host and port: what `/api` tells them.
    pub address: String,
    /// Who this server is to aggregated ones.
    pub front_proxy: Option<Arc<FrontProxy>>,
    /// Static files that anybody gets over a socket, by their paths; what it has none for is the API's to answer.
    pub pages: Option<Pages>,
}

impl Default for EdgeOptions {
    fn default() -> Self {
        Self {
            flow: flowcontrol::Options::default(),
            request_timeout: REQUEST_TIMEOUT,
            audit: None,
            traces: None,
            program: Arc::default(),
            address: String::new(),
            front_proxy: None,
            pages: None,
        }
    }
}

/// A running API server. Cloning shares it.
#[derive(Clone)]
pub struct ApiServer {
    state: Arc<ServerState>,
    router: Router,
}

/// Loads the watch cache and the catalogue, which authenticators and authorizers read from, too. `metrics` are those of the
/// server that will serve them.
pub async fn load_resources(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Result<Resources, StoreError> {
    let resources = Resources::load(store, metrics).await?;
    coracle_resources::cache::pack_what_rests(&resources.cache);
    Ok(resources)
}

/// Changes whenever an object of RBAC does.
pub fn rbac_generation(cache: Arc<Cache>) -> Generation {
    const RESOURCES: [&str; 4] = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let names = RESOURCES.map(|plural| format!("{plural}.rbac.authorization.k8s.io"));
    Arc::new(move || names.iter().map(|name| cache.changed_at(name).0).sum())
}

/// Upstream's name of the check.
const SHUTDOWN: &str = "shutdown";

/// What the parts of the server count, on its page.
fn show_metrics(state: &Arc<ServerState>) {
    let metrics = state.metrics();
    let (flow, log) = (Arc::downgrade(&state.flow), state.audit.as_ref().map(Arc::downgrade));
    metrics.collect_as("flowcontrol", move |text| {
        if let Some(flow) = flow.upgrade() {
            flow.render(text);
        }
    });
    let aggregator = Arc::downgrade(&state.aggregator);
    metrics.collect_as("aggregator", move |text| {
        if let Some(aggregator) = aggregator.upgrade() {
            aggregator.render(text);
        }
    });
    metrics.collect_as("audit", move |text| {
        if let Some(log) = log.as_ref().and_then(std::sync::Weak::upgrade) {
            log.render(text);
        }
    });
    let tracer = state.tracer.as_ref().map(Arc::downgrade);
    metrics.collect_as("traces", move |text| {
        if let Some(tracer) = tracer.as_ref().and_then(std::sync::Weak::upgrade) {
            tracer.render(text);
        }
    });
}

impl ApiServer {
    /// `resources` comes from [`load_resources`] over the same store. Within a runtime, if requests are to be traced.
    pub fn new(config: ServerConfig, store: Arc<dyn Store>, resources: Resources) -> Self {
        Self::with_options(config, EdgeOptions::default(), store, resources)
    }

    pub fn with_options(
        config: ServerConfig,
        edge: EdgeOptions,
        store: Arc<dyn Store>,
        resources: Resources,
    ) -> Self {
        let Resources { cache, catalogue } = resources;
        let ServerConfig { authenticator, authorizer, admission, kubelets, health, clock, stop } = config;
        let metrics_api = MetricsApi::new(cache.clone(), kubelets.clone(), clock.clone());
        let aggregator = Aggregator::new(cache.clone(), edge.front_proxy, vec![Arc::new(metrics_api)]);
        let registry = Registry { store, cache, catalogue: catalogue.clone(), admission, clock };
        let state = Arc::new(ServerState {
            registry,
            authenticator,
            authorizer,
            kubelets,
            health,
            flow: FlowControl::new(edge.flow),
            request_timeout: edge.request_timeout,
            audit: edge.audit,
            tracer: edge.traces.map(Tracer::start),
            program: edge.program,
            address: RwLock::new(edge.address),
            pages: edge.pages,
            documents: DocumentCache::new(catalogue, aggregator.clone()),
            foreign: aggregator.clone(),
            aggregator,
            stop,
        });
        state.health.report(SHUTDOWN, Matters::Ready, Ok(()));
        show_metrics(&state);
        let served = state.clone();
        let router =
            Router::new().fallback(move |request: Request<Body>| service::handle(served.clone(), request));
        Self { state, router }
    }

    /// For callers in this process, who put their [`coracle_api::UserInfo`] into the request's extensions.
    pub fn service(&self) -> Router {
        self.router.clone()
    }

    /// The watch cache, as [`strategy::ObjectReader`] and for its snapshots.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.state.registry.cache
    }

    /// For bootstrap, which writes through the generic path before anybody may ask.
    pub fn registry(&self) -> &Registry {
        &self.state.registry
    }

    /// What it counts, and its page.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.state.metrics()
    }

    pub fn flow_control(&self) -> &Arc<FlowControl> {
        &self.state.flow
    }

    /// Keeps the objects of priority and fairness, and follows their changes, until the server's `stop`. `/readyz`
    /// fails until the default objects are there.
    pub fn maintain_flow_control(&self) -> JoinHandle<()> {
        flowcontrol::producer_check(&self.state.health);
        let (flow, cache) = (self.state.flow.clone(), self.state.registry.cache.clone());
        let (health, stop) = (self.state.health.clone(), self.state.stop.clone());
        tokio::spawn(flowcontrol::maintain(flow, cache, self.router.clone(), health, stop))
    }

    /// Keeps `status` of ValidatingAdmissionPolicies, until the server's `stop`.
    pub fn maintain_policies(&self) -> JoinHandle<()> {
        let cache = self.state.registry.cache.clone();
        tokio::spawn(policy::maintain(cache, self.router.clone(), self.state.stop.clone()))
    }

    /// Keeps the status of CustomResourceDefinitions, and removes the objects of deleted ones, until the server's `stop`.
    pub fn maintain_definitions(&self) -> JoinHandle<()> {
        let Registry { store, cache, .. } = &self.state.registry;
        let stop = self.state.stop.clone();
        tokio::spawn(coracle_resources::definitions::maintain(
            cache.clone(),
            store.clone(),
            self.router.clone(),
            stop,
        ))
    }

    /// Keeps APIServices: their conditions, those of custom groups, and what aggregated servers say of themselves.
    pub fn maintain_aggregation(&self) -> JoinHandle<()> {
        let (catalogue, stop) = (self.state.registry.catalogue.clone(), self.state.stop.clone());
        tokio::spawn(self.state.aggregator.clone().maintain(catalogue, self.router.clone(), stop))
    }

    /// Clients find this server at another host and port now.
    pub fn move_to(&self, address: String) {
        *self.state.address.write() = address;
    }

    /// Meets nodes at the addresses that they claim, until the server's `stop`. `None` without a client for kubelets.
    pub fn check_node_addresses(&self) -> Option<JoinHandle<()>> {
        let kubelets = self.state.kubelets.clone()?;
        let (cache, stop) = (self.state.registry.cache.clone(), self.state.stop.clone());
        Some(tokio::spawn(connect::addresses::maintain(cache, self.router.clone(), kubelets, stop)))
    }

    pub fn aggregator(&self) -> &Arc<Aggregator> {
        &self.state.aggregator
    }

    /// Labels Secrets whose tokens are used, until the server's `stop`. `None` where nobody authenticates, or where it
    /// is done already.
    pub fn track_legacy_tokens(&self) -> Option<JoinHandle<()>> {
        let uses = self.state.authenticator.as_ref()?.tokens().follow_legacy_uses()?;
        let (router, stop) = (self.router.clone(), self.state.stop.clone());
        Some(tokio::spawn(authn::legacy::track(uses, router, stop)))
    }

    /// Ends watches and the like whose client's certificate is revoked, until the server's `stop`. `None` where nobody
    /// authenticates.
    pub fn follow_revocations(&self) -> Option<JoinHandle<()>> {
        let authenticator = self.state.authenticator.clone()?;
        let (cache, stop) = (self.state.registry.cache.clone(), self.state.stop.clone());
        Some(tokio::spawn(authn::revocation::follow(authenticator, cache, stop)))
    }

    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.state.tracer.as_ref()
    }

    pub fn audit_log(&self) -> Option<&Arc<audit::Log>> {
        self.state.audit.as_ref()
    }

    /// Lets `/readyz` fail, so that nobody is sent here any more; everything else goes on.
    pub fn announce_shutdown(&self) {
        self.state.health.report(SHUTDOWN, Matters::Ready, Err("process is shutting down".to_owned()));
    }

    pub fn stop(&self) -> &CancellationToken {
        &self.state.stop
    }

    pub fn health(&self) -> &Health {
        &self.state.health
    }

    /// Accepts connections until `stop`; watches end at once when the server's own `stop` does. In clear text
    /// without `tls`.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Option<Arc<rustls::ServerConfig>>,
        stop: CancellationToken,
    ) {
        let authenticator = self.state.authenticator.clone();
        serve::serve(self.state.clone(), authenticator, tls, listener, stop).await;
    }
}
