//! One HTTP/1.1 connection per request to a kubelet, a pod or a service endpoint.

use super::forward::Ends;
use super::guard::{Guard, Reach};
use super::{items, text};
use axum::body::Body;
use coracle_api::{ApiError, Object};
use coracle_requests::ObjectReader;
use coracle_tls::outbound::{self, CONNECT_TIMEOUT, ConnectError, Stream};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Statistics of 500 pods are about 1 MB.
const LONGEST_DOCUMENT_BYTES: usize = 16 << 20;

/// How the API server reaches kubelets.
#[derive(Clone)]
pub struct KubeletClient {
    /// With the client certificate `apiserver-kubelet-client`, trusting the CA of kubelet serving certificates.
    pub(super) tls: Arc<ClientConfig>,
    /// For `https:` endpoints behind `proxy`, whose certificates nobody vouches for.
    pub(super) any_tls: Arc<ClientConfig>,
    /// Ends proxied connections.
    pub(super) ends: Ends,
    pub(super) guard: Guard,
}

impl KubeletClient {
    /// `tls` carries the certificate `apiserver-kubelet-client` and the roots that sign kubelets' serving
    /// certificates; `stop` ends every upgraded connection that is still open.
    pub fn new(tls: Arc<ClientConfig>, stop: CancellationToken) -> Self {
        let any_tls = coracle_tls::unverified(tls.crypto_provider())
            .expect("the provider of an existing configuration supports the default versions");
        Self { any_tls, tls, ends: Ends::from(&stop), guard: Guard::default() }
    }

    /// Ends exec, attach, port-forward and other upgraded connections when nothing moves on them for so long; zero is
    /// never.
    #[must_use]
    pub fn with_stream_idle(mut self, idle: Duration) -> Self {
        self.ends.idle = idle;
        self
    }

    /// With what this server knows of itself, so that nobody leads it there.
    pub fn guarded(self, guard: Guard) -> Self {
        Self { guard, ..self }
    }

    /// Whether the node's kubelet is at this address: whoever answers must have a certificate for the node's name and
    /// its key. Else why not.
    pub(super) async fn meet(&self, node: &str, ip: IpAddr, port: u16) -> Result<(), String> {
        let name = ServerName::try_from(node.to_owned()).map_err(|error| error.to_string())?;
        let tls = Some(Tls { config: self.tls.clone(), name, verified: true });
        let backend = Backend { host: ip.to_string(), port, tls, reach: self.guard.kubelet(node) };
        backend.dial().await.map(drop).map_err(|error| error.to_string())
    }

    /// A JSON document of the node's kubelet.
    pub(crate) async fn json(
        &self,
        node: &str,
        path: &str,
        reader: &dyn ObjectReader,
    ) -> Result<Object, ApiError> {
        let backend = self.backend(node, reader)?;
        let failed = |why: &dyn std::fmt::Display| {
            ApiError::unavailable(format!("Get \"https://{}{path}\": {why}", backend.authority()))
        };
        let request = Request::get(path).body(Body::empty()).map_err(ApiError::internal)?;
        let response = backend.send(request).await.map_err(|error| failed(&error))?;
        if !response.status().is_success() {
            return Err(failed(&format!("status {}", response.status().as_u16())));
        }
        let body = Limited::new(response.into_body(), LONGEST_DOCUMENT_BYTES).collect().await;
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| failed(&error))
    }

    /// The kubelet of a node: its first InternalIP (else its host name) and the port its status gives. Whoever answers
    /// there must have a certificate for the node's name; the address, which is the node's claim, proves nothing.
    ///
    /// A node without `status.daemonEndpoints` runs no kubelet (simulated nodes): an error at once rather than a
    /// dial that times out.
    pub(super) fn backend(&self, node: &str, reader: &dyn ObjectReader) -> Result<Backend, ApiError> {
        let object = reader.get("nodes.", "", node).ok_or_else(|| ApiError::not_found("", "nodes", node))?;
        let port = object
            .pointer("/status/daemonEndpoints/kubeletEndpoint/Port")
            .and_then(Object::as_u64)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0)
            .ok_or_else(|| {
                ApiError::unavailable(format!(
                    "node \"{node}\" runs no kubelet: its status has no kubelet endpoint"
                ))
            })?;
        let host = ["InternalIP", "Hostname", "ExternalIP"]
            .into_iter()
            .find_map(|kind| address(&object, kind))
            .ok_or_else(|| ApiError::internal(format!("no preferred addresses found for node \"{node}\"")))?;
        let name = ServerName::try_from(node.to_owned()).map_err(|_| {
            ApiError::internal(format!("node \"{node}\" has a name that no certificate can be checked for"))
        })?;
        let reach = self.guard.kubelet(node);
        if host.parse().is_ok_and(|ip| !reach.allows(ip)) {
            return Err(not_allowed());
        }
        let tls = Some(Tls { config: self.tls.clone(), name, verified: true });
        Ok(Backend { host: host.to_owned(), port, tls, reach })
    }
}

/// In upstream's words.
pub(super) fn not_allowed() -> ApiError {
    ApiError::bad_request("address not allowed")
}

fn address<'a>(node: &'a Object, kind: &str) -> Option<&'a str> {
    items(node, "/status/addresses")
        .iter()
        .find(|entry| text(entry, "/type") == kind)
        .map(|entry| text(entry, "/address"))
}

/// Where a request goes.
#[derive(Clone)]
pub(super) struct Backend {
    /// IP address or name.
    pub host: String,
    pub port: u16,
    /// `None` is plain HTTP.
    pub tls: Option<Tls>,
    /// Where `host` may lead, once it is resolved.
    pub reach: Reach,
}

/// How the other side is recognized.
#[derive(Clone)]
pub(super) struct Tls {
    pub config: Arc<ClientConfig>,
    /// What its certificate must be for.
    pub name: ServerName<'static>,
    /// Whether it is a kubelet's, whose certificate counts.
    pub verified: bool,
}

/// The step that failed on the way to a backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("dial tcp {address}: {}", dial_error(source))]
    Dial { address: String, source: io::Error },
    #[error("dial tcp {address}: address not allowed")]
    NotAllowed { address: String },
    #[error("dial tcp {address}: i/o timeout")]
    Timeout { address: String },
    #[error("tls to {address}: {source}")]
    Tls { address: String, source: io::Error },
    /// The two settings are upstream's: of the kubelet's configuration, and of the API server.
    #[error(
        "tls to {address}: {source}: the kubelet's serving certificate is of no authority that the API server trusts; \
         serverTLSBootstrap: true in the kubelet's configuration has one made by the cluster, \
         --kubelet-certificate-authority names another authority to the server"
    )]
    UntrustedKubelet { address: String, source: io::Error },
    #[error("http to {address}: {source}")]
    Http { address: String, source: hyper::Error },
    #[error("invalid upgrade response: status code {0}")]
    NoUpgrade(u16),
}

impl BackendError {
    pub(crate) fn of(address: String, error: ConnectError) -> Self {
        match error {
            ConnectError::Dial(source) => Self::Dial { address, source },
            ConnectError::Tls(source) => Self::Tls { address, source },
            ConnectError::Timeout => Self::Timeout { address },
        }
    }
}

/// Whether nobody who is trusted vouches for the other side's certificate, whatever it says.
fn is_untrusted(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = tls else { return false };
    matches!(
        why,
        CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_)
    )
}

/// In the words that Go's programs have for it, which people search for.
fn dial_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

impl Backend {
    /// `10.0.0.1:80`, with brackets around IPv6.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Sends `request`, whose URI is the origin form. The connection's task ends with the answer's body, or with
    /// the upgraded connection.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, BackendError> {
        if let Ok(host) = HeaderValue::from_str(&self.authority()) {
            request.headers_mut().entry(header::HOST).or_insert(host);
        }
        let stream = self.dial().await?;
        let failed = |source| BackendError::Http { address: self.authority(), source };
        let (mut sender, driver) = outbound::http1(stream).await.map_err(failed)?;
        driver.detach();
        sender.send_request(request).await.map_err(failed)
    }

    async fn dial(&self) -> Result<Box<dyn Stream>, BackendError> {
        let address = self.authority();
        let found = tokio::time::timeout(CONNECT_TIMEOUT, self.resolved()).await;
        let found = found.map_err(|_| BackendError::Timeout { address: address.clone() })?;
        let found = found.map_err(|source| BackendError::Dial { address: address.clone(), source })?;
        let allowed: Vec<SocketAddr> = found.into_iter().filter(|a| self.reach.allows(a.ip())).collect();
        if allowed.is_empty() {
            return Err(BackendError::NotAllowed { address });
        }
        let tls = self.tls.as_ref().map(|tls| (tls.config.clone(), tls.name.clone()));
        let verified = self.tls.as_ref().is_some_and(|tls| tls.verified);
        outbound::connect(allowed.as_slice(), tls).await.map_err(|error| match error {
            ConnectError::Tls(source) if verified && is_untrusted(&source) => {
                BackendError::UntrustedKubelet { address, source }
            }
            error => BackendError::of(address, error),
        })
    }

    /// The addresses that are judged are those that are dialled: a name is asked for once.
    async fn resolved(&self) -> io::Result<Vec<SocketAddr>> {
        match self.host.parse::<IpAddr>() {
            Ok(ip) => Ok(vec![SocketAddr::new(ip.to_canonical(), self.port)]),
            Err(_) => Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect()),
        }
    }
}
