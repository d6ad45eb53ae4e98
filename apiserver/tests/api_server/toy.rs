//! A small aggregated API server with TLS, and a socket in front of the server under test.

use crate::support::*;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coracle_apiserver::pki::{self, Pki};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// An address of this machine that endpoints may have: no loopback one.
pub fn own_address() -> IpAddr {
    let found = pki::addresses().into_iter().find(IpAddr::is_ipv4);
    found.expect("a machine with an address besides loopback")
}

/// What the toy does with its next requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// Accepts connections and says nothing.
    Hanging,
    /// Says 200 and nonsense.
    Lying,
    /// Says 500.
    Failing,
    /// Knows no OpenAPI v3.
    Old,
}

pub struct Seen {
    pub uri: String,
    pub headers: HeaderMap,
    /// The common name of the client's certificate.
    pub client: String,
}

#[derive(Default)]
struct State {
    mood: Mutex<Mood>,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
}

pub struct Toy {
    pub address: SocketAddr,
    /// As in `spec.caBundle`.
    pub ca_bundle: String,
    state: Arc<State>,
    stop: CancellationToken,
}

impl Toy {
    /// Serves group `toy.io` with a certificate for this name; asks for certificates of the front proxy.
    pub async fn start(name: &str, pki: &Pki) -> Self {
        let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tls, ca_pem) = tls(name, pki);
        let state = Arc::<State>::default();
        let acceptor = TlsAcceptor::from(tls);
        let (served, stop) = (state.clone(), CancellationToken::new());
        let end = stop.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                served.connections.fetch_add(1, Ordering::SeqCst);
                let connection = connection(stream, acceptor.clone(), served.clone());
                tokio::spawn(end.clone().run_until_cancelled_owned(connection));
            }
        }));
        Self { address, ca_bundle: STANDARD.encode(ca_pem), state, stop }
    }

    /// Closes every connection and listens no more.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub fn set(&self, mood: Mood) {
        *self.state.mood.lock() = mood;
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// The newest request to a path that ends so.
    pub fn last(&self, path: &str) -> Seen {
        let mut seen = self.state.seen.lock();
        let at = seen.iter().rposition(|s| s.uri.split('?').next().unwrap().ends_with(path));
        seen.remove(at.unwrap_or_else(|| panic!("nobody asked for {path}")))
    }

    /// All paths with their queries that somebody asked for.
    pub fn uris(&self) -> Vec<String> {
        self.state.seen.lock().iter().map(|seen| seen.uri.clone()).collect()
    }

    pub fn asked(&self, path: &str) -> usize {
        self.state.seen.lock().iter().filter(|s| s.uri == path).count()
    }

    /// Puts a Service with this name and port 443 in front of the toy.
    pub async fn publish(&self, fixture: &Fixture, name: &str) {
        let service = json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 443 }] } });
        fixture.post("/api/v1/namespaces/default/services", &service).await.expect(201);
        fixture.post(SLICES, &self.slice(name)).await.expect(201);
    }

    pub fn slice(&self, service: &str) -> Value {
        json!({
            "metadata": { "name": format!("{service}-1"), "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "ports": [{ "name": "", "port": self.address.port() }],
            "endpoints": [{ "addresses": [self.address.ip()], "conditions": { "ready": true } }],
        })
    }

    pub fn api_service(&self, service: &str) -> Value {
        json!({
            "metadata": { "name": "v1.toy.io" },
            "spec": { "group": "toy.io", "version": "v1", "groupPriorityMinimum": 1500, "versionPriority": 15,
                "service": { "namespace": "default", "name": service }, "caBundle": self.ca_bundle },
        })
    }
}

pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
pub const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

fn tls(name: &str, pki: &Pki) -> (Arc<rustls::ServerConfig>, String) {
    let key = || rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = key();
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let leaf_key = key();
    let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.front_proxy_ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let private = PrivateKeyDer::from_pem_slice(leaf_key.serialize_pem().as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![leaf.der().clone()], private)
        .unwrap();
    (Arc::new(config), ca.pem())
}

fn common_name(certificate: &CertificateDer<'_>) -> String {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
    parsed.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let chain = stream.get_ref().1.peer_certificates();
    let client = chain.and_then(|c| c.first()).map(common_name).unwrap_or_default();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (state, client) = (state.clone(), client.clone());
        async move { Ok::<_, Infallible>(answer(&state, client, request).await) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn answer(state: &State, client: String, request: Request<Incoming>) -> Response<Body> {
    let mood = *state.mood.lock();
    let path = request.uri().path().to_owned();
    state.seen.lock().push(Seen {
        uri: request.uri().to_string(),
        headers: request.headers().clone(),
        client,
    });
    match mood {
        Mood::Old if path.starts_with("/openapi/v3") => return status(StatusCode::NOT_FOUND),
        Mood::Good | Mood::Old => {}
        Mood::Hanging => std::future::pending().await,
        Mood::Lying => return Response::new(Body::from("<html>")),
        Mood::Failing => return status(StatusCode::INTERNAL_SERVER_ERROR),
    }
    match path.as_str() {
        "/apis/toy.io/v1" => json_body(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "toy.io/v1",
            "resources": [
                { "name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list", "create"] },
                { "name": "things/shell", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": ["get"] },
            ],
        })),
        "/openapi/v3" => json_body(&json!({ "paths": {
            "apis/toy.io/v1": { "serverRelativeURL": "/openapi/v3/apis/toy.io/v1?hash=ABC" },
            "apis/apps/v1": { "serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=EVIL" },
        } })),
        "/openapi/v3/apis/toy.io/v1" => json_body(&json!({ "openapi": "3.0.0", "paths": {}, "of": "toy" })),
        "/openapi/v2" => json_body(&json!({
            "swagger": "2.0",
            "paths": { "/apis/toy.io/v1/things": { "get": {} }, "/apis/apps/v1/deployments": { "get": "evil" } },
            "definitions": { "io.toy.v1.Thing": { "type": "object",
                "x-kubernetes-group-version-kind": [{ "group": "toy.io", "version": "v1", "kind": "Thing" }] } },
        })),
        path if path.ends_with("/things") && request.method() == Method::POST => echo(request).await,
        path if path.ends_with("/stream") => Response::new(ticking()),
        path if path.ends_with("/away") => {
            let response = Response::builder().status(302).header("location", "https://example.org/");
            response.body(Body::empty()).unwrap()
        }
        path if path.ends_with("/shell") => shell(request),
        path if path.ends_with("/things") => {
            json_body(&json!({ "kind": "ThingList", "apiVersion": "toy.io/v1", "items": [] }))
        }
        _ => status(StatusCode::NOT_FOUND),
    }
}

fn status(status: StatusCode) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

fn json_body(value: &Value) -> Response<Body> {
    let response = Response::builder().header("content-type", "application/json");
    let response = response.header("access-control-allow-origin", "*").header("service-worker-allowed", "/");
    response.body(Body::from(value.to_string())).unwrap()
}

/// 201 with the request's body.
async fn echo(request: Request<Incoming>) -> Response<Body> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Response::builder().status(201).body(Body::from(body)).unwrap()
}

/// A line now, and others as long as somebody reads them.
fn ticking() -> Body {
    let lines = futures::stream::unfold(0_u32, |n| async move {
        if n > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let line = Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{{\"n\":{n}}}}}\n"));
        Some((Ok::<_, Infallible>(Frame::data(line)), n + 1))
    });
    Body::new(StreamBody::new(lines))
}

/// Changes the protocol and echoes.
fn shell(mut request: Request<Incoming>) -> Response<Body> {
    let Some(protocol) = request.headers().get("upgrade").cloned() else { return status(StatusCode::OK) };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.unwrap());
        let mut buffer = [0; 64];
        while let Ok(n @ 1..) = io.read(&mut buffer).await {
            io.write_all(&buffer[..n]).await.unwrap();
        }
    });
    let response = Response::builder().status(101).header("connection", "Upgrade");
    response.header("upgrade", protocol).body(Body::empty()).unwrap()
}

/// A socket whose clients are the fixture's user.
pub async fn front(fixture: &Fixture) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (router, user) = (fixture.router.clone(), fixture.user.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (router, user) = (router.clone(), user.clone());
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let mut request = request.map(Body::new);
                request.extensions_mut().extend(
                    user.clone()
                        .map(|user| {
                            let mut extensions = http::Extensions::new();
                            extensions.insert(user);
                            extensions
                        })
                        .unwrap_or_default(),
                );
                router.clone().oneshot(request)
            });
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    });
    address
}

/// Asks for a change of protocol; the answer's head, and the open connection behind it.
pub async fn upgrade(address: SocketAddr, path: &str, protocol: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
         Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("no answer").unwrap();
        got.push(byte);
    }
    (String::from_utf8(got).unwrap(), stream)
}
