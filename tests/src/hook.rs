//! An HTTPS server on loopback for the server under test to call: admission and conversion webhooks, aggregated APIs.

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// What the server under test asked.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: String,
    /// With its query.
    pub path: String,
    pub headers: http::HeaderMap,
    /// Null where there was none, a string where it was no JSON.
    pub body: Value,
    /// Whether the caller showed a certificate of the authority given to [`Hook::trusting`].
    pub certified: bool,
}

impl Call {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The path without the query.
    pub fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// What it is told. An `Upgrade` is answered with 101 and its bytes sent back, whatever this says.
#[derive(Clone, Debug)]
pub struct Told {
    pub code: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Told {
    pub fn json(code: u16, body: &Value) -> Self {
        Self { code, content_type: "application/json", body: body.to_string().into_bytes() }
    }

    pub fn text(code: u16, body: &str) -> Self {
        Self { code, content_type: "text/plain", body: body.as_bytes().to_vec() }
    }
}

type Handler = dyn Fn(&Call) -> Told + Send + Sync;

/// The running server; it ends with the value.
pub struct Hook {
    port: u16,
    authority: String,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        // Where a runtime may be dropped: not in a task of the caller's. Its port is closed when this returns.
        let runtime = self.runtime.take();
        let ended = std::thread::spawn(move || drop(runtime)).join();
        ended.expect("the end of a runtime does not panic");
    }
}

struct Shared {
    handler: Box<Handler>,
    calls: Mutex<Vec<Call>>,
    connections: AtomicUsize,
}

/// A test that failed in the middle of a handler still gets its calls.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hook {
    /// Names that its certificate has beside `localhost` and `127.0.0.1`: services in front of it are called so.
    const SERVICE_NAMES: [&'static str; 2] = ["hook.default.svc", "hook.hooks.svc"];

    /// Serves what `handler` says; it may sleep.
    pub fn start(handler: impl Fn(&Call) -> Told + Send + Sync + 'static) -> Self {
        Self::trusting(None, handler)
    }

    /// Likewise, and asks callers for a certificate of this authority (PEM).
    pub fn trusting(clients: Option<&str>, handler: impl Fn(&Call) -> Told + Send + Sync + 'static) -> Self {
        // The second installation is refused, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (authority, config) = identity(clients);
        Self::serving(authority, config, handler)
    }

    /// Serves with a certificate and its key (PEM) that the caller trusts already, as the kubelet of a cluster does.
    pub fn identified(
        certificate: &str,
        key: &str,
        handler: impl Fn(&Call) -> Told + Send + Sync + 'static,
    ) -> Self {
        // The second installation is refused, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let builder = ServerConfig::builder().with_no_client_auth();
        let config = builder.with_single_cert(chain.expect("certificates"), key).expect("a configuration");
        Self::serving(String::new(), config, handler)
    }

    fn serving(
        authority: String,
        config: ServerConfig,
        handler: impl Fn(&Call) -> Told + Send + Sync + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        listener.set_nonblocking(true).expect("a listener for tasks");
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).expect("a listener")
        };
        let port = listener.local_addr().expect("its address").port();
        let (calls, connections) = (Mutex::default(), AtomicUsize::new(0));
        let shared = Arc::new(Shared { handler: Box::new(handler), calls, connections });
        runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), shared.clone()));
        Self { port, authority, shared, runtime: Some(runtime) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// Its authority's certificate, as `caBundle` fields hold it.
    pub fn bundle(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(&self.authority)
    }

    /// A `clientConfig` with a URL.
    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": self.url(path), "caBundle": self.bundle()})
    }

    /// A `clientConfig` for the Service `hook` of [`Self::service`].
    pub fn service_config(&self, namespace: &str, path: &str) -> Value {
        let service = json!({"namespace": namespace, "name": "hook", "path": path, "port": self.port});
        json!({"service": service, "caBundle": self.bundle()})
    }

    /// A Service that leads here: by an external name, because no slice may hold an address of loopback.
    pub fn service() -> Value {
        let spec = json!({"type": "ExternalName", "externalName": "localhost"});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": spec})
    }

    /// Everything asked so far.
    pub fn calls(&self) -> Vec<Call> {
        held(&self.shared.calls).clone()
    }

    /// Likewise, and forgets it.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *held(&self.shared.calls))
    }

    /// How many connections were opened so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

/// A certificate authority of its own and what it signed: the authority's PEM and the server's configuration.
fn identity(clients: Option<&str>) -> (String, ServerConfig) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::from_params(&params, &key);
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    names.extend(Hook::SERVICE_NAMES.map(str::to_owned));
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(names).expect("names").signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let builder = match clients {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(pem) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.expect("a certificate")).expect("an authority");
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build();
            ServerConfig::builder().with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let mut config = builder.with_single_cert(vec![leaf.der().clone()], key).expect("a configuration");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (authority.pem(), config)
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        shared.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            // Whoever does not trust the certificate goes away here.
            let Ok(stream) = tls.accept(tcp).await else { return };
            let certified = stream.get_ref().1.peer_certificates().is_some();
            let service = service_fn(move |request| serve(request, shared.clone(), certified));
            let builder = auto::Builder::new(TokioExecutor::new());
            // The caller may close whenever it likes.
            let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    mut request: hyper::Request<Incoming>,
    shared: Arc<Shared>,
    certified: bool,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let upgrade = request.headers().get("upgrade").cloned();
    let upgrading = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let body = match upgrading {
        Some(_) => Bytes::new(),
        None => body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default(),
    };
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    let body =
        if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap_or_else(|_| text()) };
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let call = Call { method: parts.method.to_string(), path, headers: parts.headers, body, certified };
    held(&shared.calls).push(call.clone());
    let response = hyper::Response::builder();
    if let (Some(protocol), Some(upgrading)) = (upgrade, upgrading) {
        tokio::spawn(echo(upgrading));
        let response = response.status(101).header("connection", "Upgrade").header("upgrade", protocol);
        return Ok(response.body(Full::default()).expect("a response"));
    }
    let told = tokio::task::spawn_blocking(move || (shared.handler)(&call)).await;
    let told = told.unwrap_or_else(|_| Told::text(500, "the handler panicked"));
    let response = response.status(told.code).header("content-type", told.content_type);
    Ok(response.body(Full::new(told.body.into())).expect("a response"))
}

/// Sends back what comes, until the other side ends.
async fn echo(upgrading: hyper::upgrade::OnUpgrade) {
    let Ok(upgraded) = upgrading.await else { return };
    let mut stream = TokioIo::new(upgraded);
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..n]).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Answers of webhooks.
pub mod review {
    use super::{Call, Told};
    use base64::Engine;
    use serde_json::{Value, json};

    /// The `AdmissionReview` with this response; its uid is the request's.
    pub fn admission(call: &Call, mut response: Value) -> Told {
        response["uid"] = call.body["request"]["uid"].clone();
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Told::json(200, &review)
    }

    pub fn allowed(call: &Call) -> Told {
        admission(call, json!({"allowed": true}))
    }

    pub fn denied(call: &Call, message: &str) -> Told {
        admission(
            call,
            json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": message}}),
        )
    }

    /// Allowed with a JSON patch.
    pub fn patched(call: &Call, patch: &Value) -> Told {
        let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
        admission(call, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }

    /// The `ConversionReview` whose objects are the asked ones after `convert`, in the asked order.
    pub fn converted(call: &Call, convert: impl Fn(&mut Value, &str)) -> Told {
        let request = &call.body["request"];
        let version = request["desiredAPIVersion"].as_str().unwrap_or_default();
        let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
        for object in &mut objects {
            convert(object, version);
            object["apiVersion"] = json!(version);
        }
        let response =
            json!({"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}});
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        Told::json(200, &review)
    }
}
