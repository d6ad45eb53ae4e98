//! A client as lean as the measurement allows: HTTP/1.1 on rustls, one request at a time on a connection kept alive.
//! Load and server share the machine's cores, so every microsecond here is one that the server does not get.

use crate::Error;
use base64::Engine;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// Where the server is, and as whom to speak to it.
#[derive(Clone)]
pub struct Target {
    address: String,
    name: ServerName<'static>,
    tls: TlsConnector,
}

/// One call: what a load's worker sends next.
pub struct Call {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Call {
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), content_type: "application/json", body: Bytes::new() }
    }

    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(path) }
    }

    pub fn merge_patch(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let content_type = "application/merge-patch+json";
        Self { method: Method::PATCH, content_type, body: body.into(), ..Self::get(path) }
    }

    /// Server-side apply.
    pub fn apply(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let content_type = "application/apply-patch+yaml";
        Self { method: Method::PATCH, content_type, body: body.into(), ..Self::get(path) }
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }
}

impl Target {
    /// The first cluster and user of a kubeconfig with its certificates inside, as the server writes it.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, Error> {
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let cluster = &config["clusters"][0]["cluster"];
        let user = &config["users"][0]["user"];
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&decoded(cluster, "certificate-authority-data")?) {
            roots.add(root?)?;
        }
        let chain = decoded(user, "client-certificate-data")?;
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&decoded(user, "client-key-data")?)?;
        let tls = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key)?;
        let url = cluster["server"].as_str().and_then(|url| url.strip_prefix("https://"));
        Self::new(url.ok_or("kubeconfig: the server is no https address")?, tls)
    }

    /// Nobody in particular, trusting whatever certificate is shown: for `/readyz`, before there is a kubeconfig.
    pub fn anonymous(port: u16) -> Result<Self, Error> {
        let tls = ClientConfig::builder();
        let tls = tls.dangerous().with_custom_certificate_verifier(Arc::new(Anything)).with_no_client_auth();
        Self::new(&format!("127.0.0.1:{port}"), tls)
    }

    fn new(authority: &str, mut tls: ClientConfig) -> Result<Self, Error> {
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = authority.rsplit_once(':').ok_or("kubeconfig: the server's address has no port")?.0;
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Self { address: authority.to_owned(), name, tls: TlsConnector::from(Arc::new(tls)) })
    }

    pub async fn connect(&self) -> Result<Connection, Error> {
        let tcp = TcpStream::connect(&self.address).await?;
        tcp.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), tcp).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // An end that matters shows in the call that was under way.
            let _ = connection.await;
        });
        Ok(Connection { sender, driver, host: self.address.clone() })
    }
}

fn decoded(object: &Value, field: &str) -> Result<Vec<u8>, Error> {
    let text = object[field].as_str().ok_or_else(|| format!("kubeconfig: no {field}"))?;
    Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
}

/// A connection kept alive; it ends when this is dropped.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    host: String,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    async fn send(&mut self, call: Call) -> Result<hyper::Response<Incoming>, Error> {
        let mut request = Request::builder().method(call.method).uri(call.path).header("host", &self.host);
        if !call.body.is_empty() {
            request = request.header("content-type", call.content_type);
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(call.body))?).await?)
    }

    /// The response's body; every status but 2xx is an error with the server's own words.
    pub async fn call(&mut self, call: Call) -> Result<Bytes, Error> {
        let what = format!("{} {}", call.method, call.path);
        let response = self.send(call).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(refusal(&what, status, &body)) }
    }

    pub async fn json(&mut self, call: Call) -> Result<Value, Error> {
        Ok(serde_json::from_slice(&self.call(call).await?)?)
    }

    /// A call whose response does not end by itself; the connection serves nothing else from here on.
    pub async fn watch(mut self, path: impl Into<String>) -> Result<Watch, Error> {
        let call = Call::get(path);
        let what = format!("watch {}", call.path);
        let response = self.send(call).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(Watch { body: response.into_body(), rest: BytesMut::new(), _connection: self });
        }
        Err(refusal(&what, status, &response.into_body().collect().await?.to_bytes()))
    }
}

/// An answer that is no success.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {status}: {text}")]
pub struct Refused {
    what: String,
    pub status: StatusCode,
    text: String,
}

fn refusal(what: &str, status: StatusCode, body: &[u8]) -> Error {
    let text = String::from_utf8_lossy(body).chars().take(300).collect();
    Refused { what: what.to_owned(), status, text }.into()
}

/// A watch's events.
pub struct Watch {
    body: Incoming,
    rest: BytesMut,
    _connection: Connection,
}

impl Watch {
    async fn frame(&mut self) -> Result<Bytes, Error> {
        loop {
            let frame = self.body.frame().await.ok_or("the watch ended")??;
            if let Ok(data) = frame.into_data() {
                return Ok(data);
            }
        }
    }

    /// How many events ended in the next piece of the stream; cheaper than [`Self::event`].
    pub async fn count(&mut self) -> Result<usize, Error> {
        let data = self.frame().await?;
        Ok(data.iter().filter(|byte| **byte == b'\n').count())
    }

    /// The next event's text.
    pub async fn event(&mut self) -> Result<Bytes, Error> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.rest[searched..].iter().position(|byte| *byte == b'\n') {
                return Ok(self.rest.split_to(searched + end + 1).freeze());
            }
            searched = self.rest.len();
            let data = self.frame().await?;
            self.rest.extend_from_slice(&data);
        }
    }
}

/// Trusts every certificate.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
