//! A server of its own for every test, and short ways to ask it.

use axum::Router;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use coracle_api::UserInfo;
use coracle_apiserver::Resources;
use coracle_apiserver::authn::Authenticator;
use coracle_apiserver::authz::{Attributes, Authorizer, Decision, Gate, rules};
use coracle_apiserver::bootstrap::{self, BootstrapConfig};
use coracle_apiserver::cache::Cache;
use coracle_apiserver::connect::KubeletClient;
use coracle_apiserver::health::Health;
use coracle_apiserver::pki::Pki;
use coracle_apiserver::registry::AdmitAll;
use coracle_apiserver::server::{self, ApiServer, EdgeOptions, ServerConfig};
use coracle_apiserver::store::{MemoryStore, Store};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Nothing a test waits for takes longer; bookmarks take a minute, of paused time.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Nobody but `nobody` is refused anything.
struct Everybody;

impl Authorizer for Everybody {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        assert_ne!(attributes.user.name, "panics");
        if attributes.user.name == "nobody" {
            Decision::NoOpinion(String::new())
        } else {
            Decision::Allow(String::new())
        }
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> rules::Resolved {
        rules::Resolved::default()
    }
}

/// An empty store, and what is read of it.
pub async fn in_memory() -> (Arc<dyn Store>, Resources) {
    let store: Arc<dyn Store> = MemoryStore::new();
    let resources = server::load_resources(store.clone(), Arc::default()).await.unwrap();
    (store, resources)
}

/// The parts of a server that admits everything, knows nobody by credentials, and has no way to kubelets.
pub fn governed_by(authorizer: Arc<Gate>) -> ServerConfig {
    ServerConfig {
        authenticator: None,
        authorizer,
        admission: Arc::new(AdmitAll),
        kubelets: None,
        health: Health::default(),
        clock: Arc::new(jiff::Timestamp::now),
        stop: CancellationToken::new(),
    }
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("no JSON ({e}): {}", String::from_utf8_lossy(&self.body)))
    }

    /// The body, if the status is the expected one.
    pub fn expect(&self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), status, "{text}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }
}

#[derive(Clone)]
pub struct Fixture {
    pub api: ApiServer,
    pub router: Router,
    pub user: Option<UserInfo>,
}

impl Fixture {
    pub async fn new() -> Self {
        let store: Arc<dyn Store> = MemoryStore::new();
        Self::over(store).await
    }

    pub async fn over(store: Arc<dyn Store>) -> Self {
        Self::build(store, |_| None).await
    }

    /// For tests over sockets, where somebody has to find out who asks.
    pub async fn with(make: impl FnOnce(Arc<Cache>) -> Option<Arc<Authenticator>>) -> Self {
        Self::build(MemoryStore::new(), make).await
    }

    /// For tests of what holds requests back.
    pub async fn with_options(options: EdgeOptions) -> Self {
        Self::with_kubelets(options, None).await
    }

    /// For tests of what leads to kubelets, pods and services.
    pub async fn with_kubelets(options: EdgeOptions, kubelets: Option<KubeletClient>) -> Self {
        let (store, resources) = in_memory().await;
        let config = ServerConfig { kubelets, ..governed_by(Gate::local(Everybody)) };
        Self::of(config, options, store, resources)
    }

    /// For tests of who may do what.
    pub async fn authorized_by(authorizer: impl Authorizer + 'static, options: EdgeOptions) -> Self {
        let (store, resources) = in_memory().await;
        Self::of(governed_by(Gate::local(authorizer)), options, store, resources)
    }

    /// A server of these parts; the user is a member of `system:masters`.
    pub fn of(
        config: ServerConfig,
        options: EdgeOptions,
        store: Arc<dyn Store>,
        resources: Resources,
    ) -> Self {
        let api = ApiServer::with_options(config, options, store, resources);
        let router = api.service();
        Self { api, router, user: Some(UserInfo::authenticated("admin", &["system:masters"])) }
    }

    async fn build(
        store: Arc<dyn Store>,
        make: impl FnOnce(Arc<Cache>) -> Option<Arc<Authenticator>>,
    ) -> Self {
        let resources = server::load_resources(store.clone(), Arc::default()).await.unwrap();
        let authenticator = make(resources.cache.clone());
        let config = ServerConfig { authenticator, ..governed_by(Gate::local(Everybody)) };
        Self::of(config, EdgeOptions::default(), store, resources)
    }

    /// With upstream's default roles and the objects that every cluster begins with. `pki` is for certificates that they
    /// name.
    pub async fn bootstrapped(self, pki: Option<&Pki>) -> Self {
        let pem = |of: fn(&Pki) -> String| pki.map_or_else(String::new, of);
        let facts = BootstrapConfig {
            api_addresses: Vec::new(),
            api_port: 6443,
            service_ip: [10, 43, 0, 1].into(),
            service_cidr: "10.43.0.0/16".to_owned(),
            cluster_cidr: "10.42.0.0/16".to_owned(),
            local_path: true,
            dns: None,
            ca_pem: pem(Pki::ca_pem),
            front_proxy_ca_pem: pem(Pki::front_proxy_ca_pem),
            server_url: "https://192.0.2.1:6443".to_owned(),
        };
        bootstrap::apply(self.api.registry(), &facts).await.unwrap();
        self
    }

    pub fn as_user(&self, user: Option<UserInfo>) -> Self {
        Self { user, ..self.clone() }
    }

    pub async fn send(&self, mut request: Request<Body>) -> http::Response<Body> {
        if let Some(user) = &self.user {
            request.extensions_mut().insert(user.clone());
        }
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub async fn call(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.send(request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub async fn ask(&self, method: &str, uri: &str, content_type: &str, body: impl Into<Body>) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        self.call(request.body(body.into()).unwrap()).await
    }

    pub async fn get(&self, uri: &str) -> Answer {
        self.ask("GET", uri, "", Body::empty()).await
    }

    pub async fn get_as(&self, uri: &str, accept: &str) -> Answer {
        self.call(Request::builder().uri(uri).header("accept", accept).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, uri: &str, body: &Value) -> Answer {
        self.ask("POST", uri, "application/json", body.to_string()).await
    }

    pub async fn put(&self, uri: &str, body: &Value) -> Answer {
        self.ask("PUT", uri, "application/json", body.to_string()).await
    }

    /// A PUT that names the present version.
    pub async fn replace(&self, uri: &str, body: &Value) -> Answer {
        let mut body = body.clone();
        body["metadata"]["resourceVersion"] =
            self.get(uri).await.expect(200)["metadata"]["resourceVersion"].clone();
        self.put(uri, &body).await
    }

    pub async fn patch(&self, uri: &str, kind: &str, body: &Value) -> Answer {
        self.ask("PATCH", uri, &format!("application/{kind}+json"), body.to_string()).await
    }

    pub async fn delete(&self, uri: &str) -> Answer {
        self.ask("DELETE", uri, "", Body::empty()).await
    }

    pub async fn watch(&self, uri: &str) -> Stream {
        let response = self.send(Request::get(uri).body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 200);
        Stream { body: response.into_body(), buffer: BytesMut::new() }
    }
}

/// The events of a watch.
pub struct Stream {
    body: Body,
    buffer: BytesMut,
}

impl Stream {
    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("no event in time")?;
            self.buffer.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
    }

    /// `TYPE name` of the next event.
    pub async fn brief(&mut self) -> String {
        let event = self.next().await.expect("the watch ended");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        format!("{} {name}", event["type"].as_str().unwrap())
    }
}

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

pub fn config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub fn labelled(name: &str, label: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": label}}})
}

pub fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a resourceVersion").parse().unwrap()
}
