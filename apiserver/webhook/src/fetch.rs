//! One exchange with somebody outside: what is asked seldom needs no kept connection.

use super::answer;
use super::error::{CallError, TransportError};
use super::pool::{self, Received};
use super::resolve::Endpoint;
use axum::body::Body;
use bytes::Bytes;
use coracle_tls::outbound::{self, Host};
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

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
    let wrong = |why: String| CallError::Url { url: url.to_owned(), why };
    let uri: Uri = url.parse().map_err(|e: http::uri::InvalidUri| wrong(e.to_string()))?;
    if uri.authority().is_some() && uri.scheme_str() != Some("https") {
        return Err(wrong("URL scheme must be https".to_owned()));
    }
    let request = Request::get(uri).header(ACCEPT, "application/json, */*").body(Body::empty());
    let received = exchanged(request.map_err(|e| wrong(e.to_string()))?, roots, most, timeout).await?;
    answer::successful(&received)?;
    Ok(received.body)
}

/// An answer of any status, and its body.
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Sends a request, whose URL says to whom, by http or https. `timeout` is for all of it. Redirects are not followed.
///
/// # Errors
/// Every failure on the way, also an answer of more than `most` bytes; no status is one.
pub async fn send(
    request: Request<Body>,
    roots: Option<&[u8]>,
    most: usize,
    timeout: Duration,
) -> Result<Answer, CallError> {
    let received = exchanged(request, roots, most, timeout).await?;
    Ok(Answer { status: received.status, body: received.body })
}

async fn exchanged(
    request: Request<Body>,
    roots: Option<&[u8]>,
    most: usize,
    timeout: Duration,
) -> Result<Received, CallError> {
    let url = request.uri().to_string();
    let exchange = exchange(request, &url, roots, most);
    let received = tokio::time::timeout(timeout, exchange).await;
    let late = |_| CallError::Transport { url: url.clone(), source: TransportError::Deadline(timeout) };
    received.map_err(late)??.ok_or(CallError::TooLarge { url, limit: most })
}

async fn exchange(
    mut request: Request<Body>,
    url: &str,
    roots: Option<&[u8]>,
    most: usize,
) -> Result<Option<Received>, CallError> {
    let wrong = |why: &str| CallError::Url { url: url.to_owned(), why: why.to_owned() };
    let failed = |source| CallError::Transport { url: url.to_owned(), source };
    let uri = request.uri().clone();
    let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
    let Host { name: host, port, is_secure } = Host::of(&uri).ok_or_else(|| wrong("no host"))?;
    let value = authority.as_str().parse::<http::HeaderValue>().map_err(|_| wrong("no host"))?;
    request.headers_mut().insert(HOST, value);
    let agent = http::HeaderValue::from_static(concat!("coracle/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(USER_AGENT, agent);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|e| wrong(&e.to_string()))?;
    if !is_secure {
        let stream = pool::dial(&Endpoint { host, port }).await.map_err(failed)?;
        return spoken(stream, request, url, most).await;
    }
    let name = outbound::server_name(&host).map_err(|e| wrong(&e.to_string()))?;
    let config =
        coracle_tls::client_config(roots, &[b"http/1.1"]).map_err(|e| CallError::Roots(e.to_string()))?;
    let stream = pool::dial(&Endpoint { host, port }).await.map_err(failed)?;
    let stream = outbound::encrypt(config, name, stream).await;
    let stream = stream.map_err(|e| failed(TransportError::Tls(pool::io_error(e))))?;
    spoken(stream, request, url, most).await
}

async fn spoken(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Body>,
    url: &str,
    most: usize,
) -> Result<Option<Received>, CallError> {
    let broken = |e| CallError::Transport { url: url.to_owned(), source: TransportError::Http(e) };
    let (mut sender, _driver) = outbound::http1(stream).await.map_err(broken)?;
    let response = sender.send_request(request).await.map_err(broken)?;
    pool::receive(response, most).await.map_err(broken)
}
