//! One HTTP/1.1 connection per request to a kubelet, a pod or a service endpoint.

use super::forward::Ends;
use super::{items, text, tls};
use crate::strategy::Reader;
use axum::body::Body;
use coracle_api::{ApiError, Object};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

/// Time for the TCP and TLS handshakes together; upstream's dialer gives 30 s. A dead node shows up after this.
pub(crate) const DIAL_LIMIT: Duration = Duration::from_secs(30);

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
}

impl KubeletClient {
    /// `tls` carries the certificate `apiserver-kubelet-client` and the roots that sign kubelets' serving
    /// certificates; `stop` ends every upgraded connection that is still open.
    pub fn new(tls: Arc<ClientConfig>, stop: CancellationToken) -> Self {
        Self { any_tls: tls::unverified(tls.crypto_provider()), tls, ends: Ends::from(&stop) }
    }

    /// Ends exec, attach, port-forward and other upgraded connections when nothing moves on them for so long; zero is
    /// never.
    #[must_use]
    pub fn with_stream_idle(mut self, idle: Duration) -> Self {
        self.ends.idle = idle;
        self
    }

    /// A JSON document of the node's kubelet.
    pub(crate) async fn json(&self, node: &str, path: &str, reader: &dyn Reader) -> Result<Object, ApiError> {
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

    /// The kubelet of a node: its first InternalIP (else its host name) and the port its status gives.
    ///
    /// A node without `status.daemonEndpoints` runs no kubelet (simulated nodes): an error at once rather than a
    /// dial that times out.
    pub(super) fn backend(&self, node: &str, reader: &dyn Reader) -> Result<Backend, ApiError> {
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
        Ok(Backend { host: host.to_owned(), port, tls: Some(self.tls.clone()) })
    }
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
    pub tls: Option<Arc<ClientConfig>>,
}

/// The step that failed on the way to a backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("dial tcp {address}: {}", dial_error(source))]
    Dial { address: String, source: io::Error },
    #[error("dial tcp {address}: i/o timeout")]
    Timeout { address: String },
    #[error("tls to {address}: {source}")]
    Tls { address: String, source: io::Error },
    #[error("http to {address}: {source}")]
    Http { address: String, source: hyper::Error },
    #[error("invalid upgrade response: status code {0}")]
    NoUpgrade(u16),
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
        let dial = tokio::time::timeout(DIAL_LIMIT, self.dial()).await;
        let stream = dial.map_err(|_| BackendError::Timeout { address: self.authority() })??;
        let failed = |source| BackendError::Http { address: self.authority(), source };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection to a backend ended");
            }
        });
        sender.send_request(request).await.map_err(failed)
    }

    async fn dial(&self) -> Result<Box<dyn Io>, BackendError> {
        let address = self.authority();
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|source| BackendError::Dial { address: address.clone(), source })?;
        stream.set_nodelay(true).map_err(|source| BackendError::Dial { address: address.clone(), source })?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let failed = |source| BackendError::Tls { address: address.clone(), source };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }
}

/// A byte stream, with TLS or without.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
