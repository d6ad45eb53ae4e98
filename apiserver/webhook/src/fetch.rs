//! One document over HTTPS: what is fetched seldom needs no kept connection.

use super::answer;
use super::error::{CallError, TransportError};
use super::pool::{self, Received};
use super::resolve::Endpoint;
use super::tls;
use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::time::Duration;
use tokio_rustls::TlsConnector;

const HTTPS: u16 = 443;

/// The body of a GET. `roots` are certificates in PEM, without them the machine's own count. Redirects are not followed:
/// what is trusted is this URL.
///
/// # Errors
/// Every failure, also an answer with another status than 2xx or one of more than `most` bytes.
pub async fn get(
    url: &str,
    roots: Option<&[u8]>,
    most: usize,
    timeout: Duration,
) -> Result<Bytes, CallError> {
    let failed = |source| CallError::Transport { url: url.to_owned(), source };
    let exchange = exchange(url, roots, most);
    let received = tokio::time::timeout(timeout, exchange).await;
    let received = received.map_err(|_| failed(TransportError::Deadline(timeout)))??;
    let received = received.ok_or_else(|| CallError::TooLarge { url: url.to_owned(), limit: most })?;
    answer::successful(&received)?;
    Ok(received.body)
}

async fn exchange(url: &str, roots: Option<&[u8]>, most: usize) -> Result<Option<Received>, CallError> {
    let wrong = |why: &str| CallError::Url { url: url.to_owned(), why: why.to_owned() };
    let failed = |source| CallError::Transport { url: url.to_owned(), source };
    let uri: Uri = url.parse().map_err(|e: http::uri::InvalidUri| wrong(&e.to_string()))?;
    let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
    if uri.scheme_str() != Some("https") {
        return Err(wrong("URL scheme must be https"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host.clone()).map_err(|e| wrong(&e.to_string()))?;
    let config = tls::client_config(roots, &[b"http/1.1"]).map_err(|e| CallError::Roots(e.to_string()))?;
    let endpoint = Endpoint { host, port: uri.port_u16().unwrap_or(HTTPS) };
    let stream = pool::dial(&endpoint).await.map_err(failed)?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|e| failed(TransportError::Tls(e)))?;
    let broken = |e| failed(TransportError::Http(e));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Ends with the sender.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let request = Request::get(uri.path_and_query().map_or("/", |p| p.as_str()))
        .header(HOST, authority.as_str())
        .header(ACCEPT, "application/json, */*")
        .header(USER_AGENT, concat!("coracle/", env!("CARGO_PKG_VERSION")))
        .body(Body::empty())
        .map_err(|e| wrong(&e.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    pool::receive(response, most).await.map_err(broken)
}
