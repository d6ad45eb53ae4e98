//! Connections to one aggregated server: TLS as its APIService asks for, kept open from request to request.

use super::identity::FrontProxy;
use super::resolve::{Address, ServiceReference};
use crate::connect::backend::BackendError;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coracle_api::Object;
use coracle_requests::value::{bool_at, str_at};
use coracle_tls::{AnyCertificate, outbound};
use http::{HeaderValue, Method, Request, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Connections that wait for the next request, a server; more are closed after their answer.
const MOST_IDLE: usize = 8;
/// Go's servers close idle connections after 90 s or more, so these are safely open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

/// What decides about a connection; servers with equal ones share theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub service: ServiceReference,
    ca_bundle: String,
    insecure: bool,
}

impl Settings {
    /// `None` for a local APIService.
    pub fn of(api_service: &Object) -> Option<Self> {
        let spec = &api_service["spec"];
        Some(Self {
            service: ServiceReference::of(api_service)?,
            ca_bundle: str_at(spec, "caBundle").to_owned(),
            insecure: bool_at(spec, "insecureSkipTLSVerify"),
        })
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, String> {
        if self.ca_bundle.is_empty() {
            // Only servers with a certificate of a public authority do without a bundle. Nobody is believed where there is none.
            return Ok(coracle_tls::system_roots().unwrap_or_else(|_| Arc::new(RootCertStore::empty())));
        }
        let mut roots = RootCertStore::empty();
        let unreadable = "unable to load root certificates: unable to parse bytes as PEM block";
        let pem = STANDARD.decode(&self.ca_bundle).map_err(|_| unreadable)?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| unreadable)?;
            roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
        }
        if roots.is_empty() { Err(unreadable.to_owned()) } else { Ok(Arc::new(roots)) }
    }

    fn tls(&self, identity: Option<&Arc<FrontProxy>>) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if self.insecure {
            let any = Arc::new(AnyCertificate(PROVIDER.clone()));
            builder.dangerous().with_custom_certificate_verifier(any)
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        Ok(match identity {
            Some(identity) => {
                builder.with_client_cert_resolver(identity.clone() as Arc<dyn ResolvesClientCert>)
            }
            None => builder.with_no_client_auth(),
        })
    }
}

struct Idle {
    sender: SendRequest<Body>,
    address: Address,
    since: Instant,
}

/// The way to one server.
pub struct Transport {
    pub settings: Settings,
    tls: Arc<ClientConfig>,
    idle: Mutex<Vec<Idle>>,
    /// Rung when a request could not reach the server, so that it is looked at again.
    pub doubt: Notify,
}

impl Transport {
    /// The error is what clients are told instead of an answer.
    pub fn new(settings: Settings, identity: Option<&Arc<FrontProxy>>) -> Result<Arc<Self>, String> {
        let tls = Arc::new(settings.tls(identity)?);
        Ok(Arc::new(Self { settings, tls, idle: Mutex::default(), doubt: Notify::new() }))
    }

    /// Sends a request in origin form. A connection that waited may have been closed at the other end just now; what
    /// was not sent yet, or only reads, is then sent over another one.
    pub async fn send(
        self: &Arc<Self>,
        address: &Address,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, BackendError> {
        self.name_host(&mut request);
        while let Some(mut sender) = self.waiting(address) {
            if sender.ready().await.is_err() {
                continue;
            }
            let copy = repeatable(&request);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.answer(response, sender, address)),
                Err(mut failed) => match failed.take_message().or(copy) {
                    Some(unsent) => request = unsent,
                    None => return Err(http_error(address, failed.into_error())),
                },
            }
        }
        let mut sender = self.dial(address).await?;
        let response = sender.send_request(request).await.map_err(|e| http_error(address, e))?;
        Ok(self.answer(response, sender, address))
    }

    /// Sends a request over a connection of its own, for a change of protocol.
    pub async fn send_alone(
        &self,
        address: &Address,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, BackendError> {
        self.name_host(&mut request);
        let mut sender = self.dial(address).await?;
        sender.send_request(request).await.map_err(|e| http_error(address, e))
    }

    fn name_host(&self, request: &mut Request<Body>) {
        let service = &self.settings.service;
        if let Ok(host) = HeaderValue::from_str(&format!("{}:{}", service.host(), service.port)) {
            request.headers_mut().insert(header::HOST, host);
        }
    }

    fn waiting(&self, address: &Address) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock();
        idle.retain(|i| i.since.elapsed() < IDLE_TIMEOUT && !i.sender.is_closed());
        let at = idle.iter().rposition(|i| i.address == *address)?;
        Some(idle.swap_remove(at).sender)
    }

    /// Closes what has waited too long.
    pub fn prune(&self) {
        self.idle.lock().retain(|i| i.since.elapsed() < IDLE_TIMEOUT && !i.sender.is_closed());
    }

    fn keep(&self, sender: SendRequest<Body>, address: Address) {
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE && !sender.is_closed() {
            idle.push(Idle { sender, address, since: Instant::now() });
        }
    }

    fn answer(
        self: &Arc<Self>,
        response: Response<Incoming>,
        sender: SendRequest<Body>,
        address: &Address,
    ) -> Response<Body> {
        let lent = Some(Lent { sender, address: address.clone(), owner: Arc::downgrade(self) });
        response.map(|body| {
            let mut body = LentBody { body, lent };
            if body.body.is_end_stream() {
                give_back(&mut body.lent);
            }
            Body::new(body)
        })
    }

    async fn dial(&self, address: &Address) -> Result<SendRequest<Body>, BackendError> {
        let text = || address.to_string();
        let name = outbound::server_name(&self.settings.service.host())
            .map_err(|source| BackendError::Tls { address: text(), source })?;
        let to = (address.host.as_str(), address.port);
        let stream = outbound::connect(to, Some((self.tls.clone(), name))).await;
        let stream = stream.map_err(|error| BackendError::of(text(), error))?;
        let (sender, driver) = outbound::http1(stream).await.map_err(|e| http_error(address, e))?;
        driver.detach();
        Ok(sender)
    }
}

/// The same request again, if asking twice is asking once.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

fn http_error(address: &Address, source: hyper::Error) -> BackendError {
    BackendError::Http { address: address.to_string(), source }
}

struct Lent {
    sender: SendRequest<Body>,
    address: Address,
    owner: Weak<Transport>,
}

fn give_back(lent: &mut Option<Lent>) {
    if let Some(Lent { sender, address, owner }) = lent.take()
        && let Some(owner) = owner.upgrade()
    {
        owner.keep(sender, address);
    }
}

pin_project! {
    /// An answer's body; its connection is free again at its end. Dropped before, the connection is closed.
    struct LentBody {
        #[pin]
        body: Incoming,
        lent: Option<Lent>,
    }
}

impl http_body::Body for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if frame.is_none() || (matches!(frame, Some(Ok(_))) && this.body.is_end_stream()) {
            give_back(this.lent);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(bundle: &str) -> Settings {
        let spec = json!({ "service": { "namespace": "n", "name": "s" }, "caBundle": bundle });
        Settings::of(&json!({ "spec": spec })).unwrap()
    }

    #[test]
    fn bundles_without_a_certificate_are_an_error() {
        for bundle in [
            "bm90aGluZw==",
            "***",
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=",
        ] {
            let error = Transport::new(settings(bundle), None).err().expect("an error");
            assert!(error.starts_with("unable to load root certificates: "), "{error}");
        }
        assert!(Transport::new(settings(""), None).is_ok());
    }
}
