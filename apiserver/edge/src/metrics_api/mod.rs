//! `metrics.k8s.io/v1beta1`: what nodes and pods use, read from the kubelets when somebody asks
//! (<https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/>).
//!
//! Served as long as the group's APIService is local; a metrics-server that is installed takes its place by changing
//! that. Nothing is read or kept while nobody asks.

mod collect;
mod objects;
mod openapi;
mod sample;

use crate::aggregation::LocalService;
use crate::connect::KubeletClient;
use crate::discovery::{Document, ForeignVersion};
use crate::wire::RequestHeaders;
use crate::wire::negotiation::{Shape, Wanted};
use crate::wire::respond::{Reply, method_not_allowed};
use crate::wire::shape::{Include, metadata_only};
use axum::body::Body;
use collect::Collector;
use coracle_api::{ApiError, Object};
use coracle_registry::{Clock, Query, Selectors};
use coracle_requests::ObjectReader;
use coracle_requests::RequestInfo;
use coracle_requests::value::name;
use coracle_resources::cache::Cache;
use http::Response;
use objects::Kind;
use serde_json::{Value, json};
use std::sync::Arc;

pub const GROUP: &str = "metrics.k8s.io";
pub const VERSION: &str = "v1beta1";
pub const API_VERSION: &str = "metrics.k8s.io/v1beta1";

/// The group, as the aggregator has it.
pub struct MetricsApi {
    cache: Arc<Cache>,
    /// Without it, nothing can be read: 503.
    kubelets: Option<KubeletClient>,
    clock: Clock,
    /// The last readings of the kubelets' statistics.
    collector: Collector,
}

impl MetricsApi {
    pub fn new(cache: Arc<Cache>, kubelets: Option<KubeletClient>, clock: Clock) -> Self {
        Self { cache, kubelets, clock, collector: Collector::default() }
    }
}

#[async_trait::async_trait]
impl LocalService for MetricsApi {
    fn group(&self) -> &'static str {
        GROUP
    }

    fn version(&self) -> &'static str {
        VERSION
    }

    fn discovery(&self) -> ForeignVersion {
        discovery()
    }

    fn document(&self, path: &str) -> Option<Document> {
        document(path)
    }

    fn openapi_v3_entry(&self) -> (String, String) {
        openapi::openapi_v3_entry()
    }

    fn openapi_v2(&self) -> Value {
        openapi::openapi_v2()
    }

    async fn answer(&self, info: &RequestInfo, headers: &RequestHeaders) -> Result<Response<Body>, ApiError> {
        answer(self, info, headers).await
    }
}

/// For the merged discovery documents.
fn discovery() -> ForeignVersion {
    let entry = |kind: Kind| {
        json!({
            "resource": kind.plural(), "scope": if kind == Kind::Pods { "Namespaced" } else { "Cluster" },
            "responseKind": { "group": GROUP, "version": VERSION, "kind": kind.name() },
            "singularResource": "", "verbs": ["get", "list"],
        })
    };
    let resources = [Kind::Nodes, Kind::Pods].map(entry).to_vec();
    ForeignVersion { group: GROUP.to_owned(), version: VERSION.to_owned(), stale: false, resources }
}

/// The group's own documents: discovery and OpenAPI v3.
fn document(path: &str) -> Option<Document> {
    match path.trim_end_matches('/') {
        "/apis/metrics.k8s.io/v1beta1" => Some(Document::json(&resource_list(), crate::discovery::RESOURCES)),
        "/openapi/v3/apis/metrics.k8s.io/v1beta1" => Some(openapi::openapi_v3()),
        _ => None,
    }
}

fn resource_list() -> Value {
    let entry = |kind: Kind| {
        json!({ "name": kind.plural(), "singularName": "", "namespaced": kind == Kind::Pods, "kind": kind.name(),
            "verbs": ["get", "list"] })
    };
    let resources = [Kind::Nodes, Kind::Pods].map(entry);
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION, "resources": resources })
}

async fn answer(
    api: &MetricsApi,
    info: &RequestInfo,
    headers: &RequestHeaders,
) -> Result<Response<Body>, ApiError> {
    let kind = Kind::of(&info.resource).filter(|_| info.subresource.is_empty());
    let Some(kind) = kind.filter(|kind| *kind == Kind::Pods || info.namespace.is_empty()) else {
        return Err(ApiError::page_not_found());
    };
    let accepted = objects::without_protobuf(headers.accept())?;
    let wanted = Wanted::of(headers, &accepted, &info.query, true)?;
    if !matches!(info.verb, "get" | "list") {
        return Ok(method_not_allowed("GET", wanted));
    }
    if !info.is_collection() {
        let found = api.one(info, kind).await?;
        let shown = match wanted.shape {
            Shape::Object => found,
            Shape::Metadata => metadata_only(&found, wanted.meta_version()),
            Shape::Table => objects::table(kind, &[found], include(&info.query)?, wanted.meta_version()),
        };
        return Ok(Reply::ok(shown).into_response(wanted));
    }
    let wanted = wanted.listed(&format!("{}List", kind.name()))?;
    let items = api.list(info, kind).await?;
    let shown = match wanted.shape {
        Shape::Object => {
            json!({ "kind": format!("{}List", kind.name()), "apiVersion": API_VERSION, "metadata": {}, "items": items })
        }
        Shape::Metadata => {
            let version = wanted.meta_version();
            let items: Vec<Value> = items.iter().map(|item| metadata_only(item, version)).collect();
            json!({ "kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": {}, "items": items })
        }
        Shape::Table => objects::table(kind, &items, include(&info.query)?, wanted.meta_version()),
    };
    Ok(Reply::ok(shown).into_response(wanted))
}

fn include(query: &Query) -> Result<Include, ApiError> {
    Include::from_query(query.get("includeObject"))
}

impl MetricsApi {
    async fn one(&self, info: &RequestInfo, kind: Kind) -> Result<Object, ApiError> {
        if kind == Kind::Pods && info.namespace.is_empty() {
            return Err(ApiError::page_not_found());
        }
        let shown = match kind {
            Kind::Nodes => info.name.clone(),
            Kind::Pods => format!("{}/{}", info.namespace, info.name),
        };
        let missing = || ApiError::not_found(GROUP, kind.not_found_as(), &shown);
        let object = self.cache.get(kind.storage(), &info.namespace, &info.name).ok_or_else(missing)?;
        self.measured(kind, &[object]).await?.pop().ok_or_else(missing)
    }

    async fn list(&self, info: &RequestInfo, kind: Kind) -> Result<Vec<Object>, ApiError> {
        let Selectors { labels, fields, .. } =
            info.list_options()?.selectors.as_deref().cloned().unwrap_or_default();
        fields
            .check_fields(&["metadata.name", "metadata.namespace"])
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let mut found = self.cache.list(kind.storage(), &info.namespace);
        found.retain(|object| objects::selected(object, &labels, &fields));
        found.sort_by(|a, b| {
            (&a["metadata"]["namespace"].as_str(), name(a))
                .cmp(&(&b["metadata"]["namespace"].as_str(), name(b)))
        });
        self.measured(kind, &found).await
    }

    /// What is known of the use of these; those of which nothing is known are left out, as metrics-server does.
    async fn measured(&self, kind: Kind, found: &[Arc<Object>]) -> Result<Vec<Object>, ApiError> {
        let Some(kubelets) = &self.kubelets else {
            return Err(ApiError::unavailable("this server has no client for kubelets"));
        };
        let cache = &*self.cache;
        let nodes =
            found.iter().map(|object| kind.node_of(object).to_owned()).filter(|name| !name.is_empty());
        let usage = self.collector.usage(nodes.collect(), cache, kubelets).await;
        let now = (self.clock)();
        let object = |object: &Arc<Object>| {
            let usage = usage.get(kind.node_of(object))?;
            match kind {
                Kind::Nodes => objects::node(object, usage, now),
                Kind::Pods => objects::pod(object, usage, now),
            }
        };
        Ok(found.iter().filter_map(object).collect())
    }
}
