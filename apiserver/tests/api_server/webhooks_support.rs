//! Webhooks on loopback: TLS servers that answer as a test wants, and configurations that lead to them.

use crate::support::{Fixture, PATIENCE, governed_by, in_memory};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use coracle_api::UserInfo;
use coracle_apiserver::admission::{Chain, Config};
use coracle_apiserver::authz::{Attributes, Authorizer, Decision, Gate, rules};
use coracle_apiserver::server::{EdgeOptions, ServerConfig};
use coracle_apiserver::store::{Durability, Op, Txn};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What a webhook does with a review.
pub enum Reaction {
    /// `response` of the answer; `uid` is filled in.
    Answer(Value),
    /// This body, whatever it is.
    Raw(u16, String),
    /// Later.
    Wait(Duration, Value),
    /// Never.
    Hang,
    /// So many bytes.
    Huge(usize),
    Redirect(String),
}

pub fn allow() -> Reaction {
    Reaction::Answer(json!({ "allowed": true }))
}

pub fn deny(message: &str) -> Reaction {
    Reaction::Answer(json!({ "allowed": false, "status": { "message": message } }))
}

pub fn patch(operations: Value) -> Reaction {
    let patch = BASE64_STANDARD.encode(operations.to_string());
    Reaction::Answer(json!({ "allowed": true, "patchType": "JSONPatch", "patch": patch }))
}

type Answerer = dyn Fn(&str, &Value) -> Reaction + Send + Sync;

/// A webhook server; it stops when the last of it is dropped.
#[derive(Clone)]
pub struct Hook {
    pub port: u16,
    pub bundle: String,
    seen: Arc<Mutex<Vec<Value>>>,
    uris: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    _stop: Arc<DropGuard>,
}

/// The sort of certificate that a server shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Signed by itself, and that is what the bundle holds.
    SelfSigned,
    /// As above, and it says that it is an authority.
    Authority,
    /// The bundle holds another one.
    Stranger,
    /// For another name.
    OtherName,
}

struct Made {
    pem: String,
    config: rustls::ServerConfig,
}

fn certificate(shown: Shown, protocols: &[&[u8]]) -> Made {
    let names: &[&str] = if shown == Shown::OtherName {
        &["elsewhere.example.com"]
    } else {
        &["localhost", "127.0.0.1", "hook.default.svc"]
    };
    let key = KeyPair::generate().unwrap();
    let mut params =
        CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap();
    if shown == Shown::Authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let certificate = params.self_signed(&key).unwrap();
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    let pem = match shown {
        Shown::Stranger => CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .pem(),
        _ => certificate.pem(),
    };
    Made { pem, config }
}

pub async fn hook(answer: impl Fn(&Value) -> Reaction + Send + Sync + 'static) -> Hook {
    serve(Shown::SelfSigned, &[b"http/1.1"], move |_, review| answer(review)).await
}

/// As [`hook`]; the answer may depend on the path.
pub async fn serve(
    shown: Shown,
    protocols: &[&[u8]],
    answer: impl Fn(&str, &Value) -> Reaction + Send + Sync + 'static,
) -> Hook {
    let made = certificate(shown, protocols);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stop = CancellationToken::new();
    let hook = Hook {
        port: listener.local_addr().unwrap().port(),
        bundle: BASE64_STANDARD.encode(made.pem),
        seen: Arc::default(),
        uris: Arc::default(),
        connections: Arc::default(),
        _stop: Arc::new(stop.clone().drop_guard()),
    };
    let acceptor = TlsAcceptor::from(Arc::new(made.config));
    let answer: Arc<Answerer> = Arc::new(answer);
    let served = (hook.seen.clone(), hook.uris.clone(), hook.connections.clone());
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer, (seen, uris, connections)) =
                (acceptor.clone(), answer.clone(), served.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                connections.fetch_add(1, Ordering::SeqCst);
                let service = hyper::service::service_fn(move |request| {
                    react(request, answer.clone(), seen.clone(), uris.clone())
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }));
    hook
}

async fn react(
    request: Request<Incoming>,
    answer: Arc<Answerer>,
    seen: Arc<Mutex<Vec<Value>>>,
    uris: Arc<Mutex<Vec<String>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let uri = request.uri().path_and_query().unwrap().to_string();
    let path = request.uri().path().to_owned();
    uris.lock().push(uri);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    seen.lock().push(review.clone());
    let envelope = |mut response: Value| {
        if response["uid"].is_null() {
            response["uid"] = review["request"]["uid"].clone();
        }
        json!({ "kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response })
            .to_string()
    };
    let (status, text) = match answer(&path, &review) {
        Reaction::Answer(response) => (200, envelope(response)),
        Reaction::Raw(status, text) => (status, text),
        Reaction::Wait(time, response) => {
            tokio::time::sleep(time).await;
            (200, envelope(response))
        }
        Reaction::Hang => std::future::pending().await,
        Reaction::Huge(bytes) => (200, format!("{{\"x\":\"{}\"}}", "x".repeat(bytes))),
        Reaction::Redirect(to) => {
            let response = Response::builder().status(302).header("location", to);
            return Ok(response.body(Full::default()).unwrap());
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    Ok(response)
}

impl Hook {
    pub fn url(&self, path: &str) -> Value {
        json!({ "url": format!("https://localhost:{}{path}", self.port), "caBundle": self.bundle })
    }

    /// The reviews so far.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.lock().clone()
    }

    /// `request` of the only review.
    pub fn only(&self) -> Value {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0]["request"].clone()
    }

    pub fn uris(&self) -> Vec<String> {
        self.uris.lock().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Nobody is refused anything but `nobody`.
struct Everybody;

impl Authorizer for Everybody {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.name == "nobody" {
            return Decision::NoOpinion(String::new());
        }
        Decision::Allow(String::new())
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> rules::Resolved {
        rules::Resolved::default()
    }
}

/// A server with the usual plugins and steps but for those that need controllers; namespace `default` is there.
pub async fn server() -> Fixture {
    server_with(EdgeOptions::default()).await
}

pub async fn server_with(options: EdgeOptions) -> Fixture {
    let (store, resources) = in_memory().await;
    let cache = resources.cache.clone();
    let authorizer = Gate::local(Everybody);
    let mut plugins = Config::default();
    plugins.disabled.push("ServiceAccount".to_owned());
    let chain = Chain::new(cache.clone(), &plugins)
        .unwrap()
        .counted_in(cache.metrics().clone())
        .guard_escalation(authorizer.clone());
    let config = ServerConfig { admission: Arc::new(chain), ..governed_by(authorizer) };
    let fixture = Fixture::of(config, options, store, resources);
    let fixture = fixture.as_user(Some(UserInfo::authenticated("jane", &["dev"])));
    namespace(&fixture, "default", json!({})).await;
    fixture
}

pub async fn namespace(fixture: &Fixture, name: &str, labels: Value) {
    let body =
        json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": name, "labels": labels } });
    fixture.post("/api/v1/namespaces", &body).await.expect(201);
}

/// All of `operations` on `resources` of every group and version.
pub fn rule(operations: &[&str], resources: &[&str]) -> Value {
    json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": resources })
}

/// A webhook for `rules`, without side effects.
pub fn entry(name: &str, client_config: Value, rules: Value) -> Value {
    json!({ "name": name, "clientConfig": client_config, "rules": [rules], "sideEffects": "None",
        "admissionReviewVersions": ["v1"] })
}

pub fn with(mut entry: Value, fields: Value) -> Value {
    for (field, value) in fields.as_object().unwrap() {
        entry[field] = value.clone();
    }
    entry
}

/// Writes past validation, as another server would have.
pub async fn write_raw(fixture: &Fixture, key: &str, object: &Value) {
    let text = |field: &str| object[field].as_str().unwrap().to_owned();
    let value = coracle_api::encode::to_storage_bytes(object, &text("apiVersion"), &text("kind"));
    let put = Op::Put { key: key.into(), value: value.into() };
    let txn = Txn { guards: Vec::new(), ops: vec![put], durability: Durability::Synced };
    let revision = fixture.api.registry().store.commit(txn).await.unwrap();
    assert!(fixture.api.cache().wait_for(revision, PATIENCE).await);
}

pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Configures webhooks; they count at once.
pub async fn configure(fixture: &Fixture, collection: &str, name: &str, webhooks: Value) -> Value {
    let kind = if collection == MUTATING {
        "MutatingWebhookConfiguration"
    } else {
        "ValidatingWebhookConfiguration"
    };
    let body = json!({ "kind": kind, "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": { "name": name, "labels": { "test": "yes" } }, "webhooks": webhooks });
    fixture.post(collection, &body).await.expect(201)
}
