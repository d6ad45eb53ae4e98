//! Aggregation: groups and versions that other servers answer for
//! (<https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/>).
//!
//! A request whose group and version belong to an APIService with a service is sent on to one of its endpoints, with
//! the user in the front proxy's headers. What such servers say in discovery and OpenAPI is read beforehand by a task
//! for each of them, and served from memory.

mod ask;
mod automanaged;
mod condition;
mod controller;
mod convert;
mod documents;
mod identity;
mod local;
mod openapi;
mod proxy;
mod resolve;
mod table;
mod transport;
mod trust;

pub use identity::FrontProxy;
pub use local::LocalService;
pub use table::{Remote, Table};

use crate::discovery::{Document, Foreign, ForeignVersion, Ranking};
use axum::Router;
use axum::body::Body;
use condition::Condition;
use controller::ApiServiceController;
use coracle_api::UserInfo;
use coracle_component_base::metrics::Text;
use coracle_requests::RequestInfo;
use coracle_resources::cache::Cache;
use coracle_resources::catalogue::Catalogue;
use documents::Library;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use table::Tables;
use tokio_util::sync::CancellationToken;

/// Where documents of OpenAPI v3 are, by the name of their group and version.
const OPENAPI_V3: &str = "/openapi/v3/";

/// One for a server.
pub struct Aggregator {
    cache: Arc<Cache>,
    identity: Option<Arc<FrontProxy>>,
    /// What parts of this server answer for.
    locals: Vec<Arc<dyn LocalService>>,
    tables: Tables,
    library: Library,
    /// How often an APIService was found unavailable, by its name and the reason.
    unavailable: Mutex<BTreeMap<(String, &'static str), u64>>,
}

impl Aggregator {
    /// Without an identity, servers are asked without a client certificate: no real one believes the headers then.
    /// `locals` are the groups that parts of this server answer for.
    pub fn new(
        cache: Arc<Cache>,
        identity: Option<Arc<FrontProxy>>,
        locals: Vec<Arc<dyn LocalService>>,
    ) -> Arc<Self> {
        let tables = Tables::new(cache.clone(), identity.clone());
        let (library, unavailable) = (Library::default(), Mutex::default());
        Arc::new(Self { cache, identity, locals, tables, library, unavailable })
    }

    pub fn table(&self) -> Arc<Table> {
        self.tables.current()
    }

    /// The server that is to answer this request, if it is not this one. Without aggregated servers this costs a look
    /// at a revision.
    pub fn find(&self, info: &RequestInfo) -> Option<Arc<Remote>> {
        let (group, version) = proxy::addressed(info)?;
        let remote = self.table().find(group, version).cloned()?;
        let is_ours = !info.is_resource
            && info.path.starts_with(OPENAPI_V3)
            && self.library.without_v3(&remote.name).is_some();
        (!is_ours).then_some(remote)
    }

    /// The OpenAPI v3 document of a server that publishes v2 alone, by its path.
    pub fn converted(&self, path: &str) -> Option<Document> {
        let (group, version) = proxy::of_path(path.strip_prefix(OPENAPI_V3)?)?;
        let remote = self.table().find(group, version).cloned()?;
        let (v2, hash) = self.library.without_v3(&remote.name)?;
        let body = convert::v3_of(&serde_json::from_slice(&v2).ok()?).to_string().into();
        Some(Document { content_type: "application/json", body, etag: format!("\"{hash}\"") })
    }

    /// The part of this server that answers for the group and version, where an APIService says that it is local.
    pub fn local(&self, group: &str, version: &str) -> Option<&Arc<dyn LocalService>> {
        let found = self.locals.iter().find(|local| local.group() == group && local.version() == version)?;
        self.is_local(&**found).then_some(found)
    }

    /// The documents of local groups, by their path.
    pub fn local_document(&self, path: &str) -> Option<Document> {
        self.present_locals().find_map(|local| local.document(path))
    }

    fn is_local(&self, service: &dyn LocalService) -> bool {
        let table = self.table();
        table.ranking.knows(service.group(), service.version())
            && table.find(service.group(), service.version()).is_none()
    }

    fn present_locals(&self) -> impl Iterator<Item = &Arc<dyn LocalService>> {
        self.locals.iter().filter(|local| self.is_local(&***local))
    }

    pub async fn answer(
        &self,
        remote: &Remote,
        user: &UserInfo,
        request: Request<Body>,
        stop: &CancellationToken,
    ) -> Response<Body> {
        proxy::answer(remote, user, request, &*self.cache, stop).await
    }

    /// Keeps conditions, documents, the APIServices of custom groups and what aggregated servers are to trust, until
    /// `stop`. `service` is the server's own.
    pub async fn maintain(
        self: Arc<Self>,
        catalogue: Arc<Catalogue>,
        service: Router,
        stop: CancellationToken,
    ) {
        let cache = self.cache.clone();
        Arc::new(ApiServiceController { aggregator: self, cache, catalogue, service }).run(stop).await;
    }

    /// Whether an APIService of this name leads to another server.
    fn served(&self) -> impl Fn(&str) -> bool {
        let table = self.table();
        move |name| table.remotes().any(|remote| remote.name == name)
    }

    fn count(&self, name: &str, condition: &Condition) {
        if condition.status != "True" {
            *self.unavailable.lock().entry((name.to_owned(), condition.reason)).or_default() += 1;
        }
    }

    /// Upstream's metrics of the aggregator.
    pub fn render(&self, text: &mut Text) {
        let (gauge, counter) =
            ("aggregator_unavailable_apiservice", "aggregator_unavailable_apiservice_total");
        text.head(gauge, "Whether an APIService is unavailable, by its name", "gauge");
        let mut remotes: Vec<Arc<Remote>> = self.table().remotes().cloned().collect();
        remotes.sort_by(|a, b| a.name.cmp(&b.name));
        for remote in remotes {
            text.sample(gauge, &[("name", &remote.name)], u8::from(!remote.available));
        }
        text.head(
            counter,
            "How often an APIService was found unavailable, by its name and the reason",
            "counter",
        );
        for ((name, reason), count) in &*self.unavailable.lock() {
            text.sample(counter, &[("name", name), ("reason", reason)], count);
        }
    }
}

impl Foreign for Aggregator {
    fn generation(&self) -> u64 {
        self.table().revision.0.wrapping_add(self.library.generation())
    }

    fn ranking(&self) -> Arc<Ranking> {
        self.table().ranking.clone()
    }

    fn versions(&self) -> Vec<Arc<ForeignVersion>> {
        let table = self.table();
        let remote = |remote: &Arc<Remote>| {
            let silent = || ForeignVersion {
                group: remote.group.clone(),
                version: remote.version.clone(),
                stale: true,
                resources: Vec::new(),
            };
            self.library.version(&remote.name).unwrap_or_else(|| Arc::new(silent()))
        };
        let mut versions: Vec<Arc<ForeignVersion>> = table.remotes().map(remote).collect();
        versions.extend(self.present_locals().map(|local| Arc::new(local.discovery())));
        versions.sort_by(|a, b| (&a.group, &a.version).cmp(&(&b.group, &b.version)));
        versions
    }

    fn openapi_v3(&self) -> Vec<(String, String)> {
        let mut entries = self.library.openapi_v3(self.served());
        entries.extend(self.present_locals().map(|local| local.openapi_v3_entry()));
        entries
    }

    fn openapi_v2(&self) -> Vec<Arc<Value>> {
        let mut documents = self.library.openapi_v2(self.served());
        documents.extend(self.present_locals().map(|local| Arc::new(local.openapi_v2())));
        documents
    }
}
