//! The API server as a whole: made of its parts here, and nowhere else.

use crate::authn::Authenticator;
use crate::authz::{Authorizer, Generation};
use crate::cache::Cache;
use crate::connect::KubeletClient;
use crate::health::Health;
use crate::http::limits::Limits;
use crate::http::serve::{self, Front};
use crate::http::service;
use crate::registry::{Admission, Clock, Registry};
use crate::store::{Store, StoreError};
use crate::strategy::{self, Strategy};
use axum::Router;
use axum::body::Body;
use coracle_api::catalogue;
use http::Request;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The parts that differ between a server and a test of one.
pub struct ServerConfig {
    /// Who is asking over a socket. Without one, only callers in this process are known.
    pub authenticator: Option<Arc<Authenticator>>,
    pub authorizer: Arc<dyn Authorizer>,
    pub admission: Arc<dyn Admission>,
    /// The way to kubelets; without it, logs and streams answer 503.
    pub kubelets: Option<KubeletClient>,
    pub health: Health,
    pub clock: Clock,
    /// Ends watches, and with them the last long requests.
    pub stop: CancellationToken,
}

pub struct Inner {
    pub registry: Registry,
    pub authenticator: Option<Arc<Authenticator>>,
    pub authorizer: Arc<dyn Authorizer>,
    pub kubelets: Option<KubeletClient>,
    pub health: Health,
    pub limits: Limits,
    pub stop: CancellationToken,
}

/// A running API server. Cloning shares it.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
    router: Router,
}

/// Loads the watch cache, which authenticators and authorizers read from, too.
pub async fn load_cache(store: Arc<dyn Store>) -> Result<Arc<Cache>, StoreError> {
    Cache::start(store, Arc::new(strategy_of)).await
}

fn strategy_of(storage: &str) -> Option<&'static dyn Strategy> {
    let resource = catalogue::by_storage_key(storage)?;
    Some(strategy::for_resource(&resource.group, &resource.plural))
}

/// Changes whenever an object of RBAC does.
pub fn rbac_generation(cache: Arc<Cache>) -> Generation {
    const RESOURCES: [&str; 4] = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let names = RESOURCES.map(|plural| format!("{plural}.rbac.authorization.k8s.io"));
    Arc::new(move || names.iter().map(|name| cache.changed_at(name).0).sum())
}

impl ApiServer {
    /// `cache` comes from [`load_cache`] over the same store.
    pub fn new(config: ServerConfig, store: Arc<dyn Store>, cache: Arc<Cache>) -> Self {
        let ServerConfig { authenticator, authorizer, admission, kubelets, health, clock, stop } = config;
        let registry = Registry { store, cache, admission, clock };
        let inner = Arc::new(Inner {
            registry,
            authenticator,
            authorizer,
            kubelets,
            health,
            limits: Limits::default(),
            stop,
        });
        let served = inner.clone();
        let router =
            Router::new().fallback(move |request: Request<Body>| service::handle(served.clone(), request));
        Self { inner, router }
    }

    /// For callers in this process, who put their [`coracle_api::UserInfo`] into the request's extensions.
    pub fn service(&self) -> Router {
        self.router.clone()
    }

    /// The watch cache, as [`strategy::Reader`] and for its snapshots.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.inner.registry.cache
    }

    /// For bootstrap, which writes through the generic path before anybody may ask.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    pub fn stop(&self) -> &CancellationToken {
        &self.inner.stop
    }

    pub fn health(&self) -> &Health {
        &self.inner.health
    }

    /// Accepts connections until `stop`; watches end at once when the server's own `stop` does. In clear text
    /// without `tls`.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Option<Arc<rustls::ServerConfig>>,
        stop: CancellationToken,
    ) {
        let front = Front {
            router: self.router.clone(),
            tls: tls.map(Into::into),
            authenticator: self.inner.authenticator.clone(),
        };
        serve::serve(front, listener, stop).await;
    }
}
