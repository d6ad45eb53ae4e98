//! The way to the runtime's streaming server, whose URL a CRI `Exec`, `Attach` or `PortForward` call gave.

use super::SPDY;
use axum::body::Body;
use coracle_tls::outbound::{self, ConnectError};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use std::time::Duration;

/// Carries the versions of the streaming protocol: offered in the request, chosen in the answer.
pub(super) const PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Time to connect and to get the head of the answer. The streaming server listens on this machine; the URL it gave
/// is good for a minute.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a refusal's body that become part of the message.
const REFUSAL: usize = 2048;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("Upgrade request required")]
    UpgradeRequired,
    #[error("unable to upgrade: unknown protocol {0:?}")]
    UnknownProtocol(String),
    /// The WebSocket handshake of the client is not one.
    #[error("bad WebSocket handshake: {0}")]
    Handshake(&'static str),
    #[error("unable to upgrade: unsupported subprotocols {0:?}")]
    Subprotocol(Vec<String>),
    /// The runtime gave a URL that nothing here can reach (TLS streaming is not supported).
    #[error("streaming URL {url} of the container runtime: {reason}")]
    Url { url: String, reason: &'static str },
    #[error("streaming server of the container runtime at {address}")]
    Connect { address: String, source: ConnectError },
    #[error("streaming server of the container runtime at {address} did not answer")]
    Timeout { address: String },
    #[error("streaming server of the container runtime")]
    Http(#[from] hyper::Error),
    #[error("the container runtime refused to stream: {code}: {text}")]
    Refused { code: u16, text: String },
}

impl StreamError {
    /// The HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::UpgradeRequired | Self::UnknownProtocol(_) | Self::Handshake(_) => StatusCode::BAD_REQUEST,
            Self::Subprotocol(_) => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Asks the runtime for SPDY/3.1 with these versions, in order of preference.
pub(super) async fn request(
    url: &str,
    versions: Vec<HeaderValue>,
) -> Result<Response<Incoming>, StreamError> {
    let bad = |reason| StreamError::Url { url: url.to_owned(), reason };
    let uri: Uri = url.parse().map_err(|_| bad("is malformed"))?;
    if uri.scheme_str() != Some("http") {
        return Err(bad("is not http, and streaming over TLS is not supported"));
    }
    let authority = uri.authority().ok_or_else(|| bad("has no host"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::post(path)
        .header(header::HOST, authority.as_str())
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, SPDY)
        .body(Body::empty())
        .map_err(|_| bad("is malformed"))?;
    for version in versions {
        request.headers_mut().append(PROTOCOL, version);
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let address = authority.to_string();
    let exchange = exchange(host, authority.port_u16().unwrap_or(80), request);
    match tokio::time::timeout(CONNECT_TIMEOUT, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(StreamError::Timeout { address }),
    }
}

async fn exchange(host: &str, port: u16, request: Request<Body>) -> Result<Response<Incoming>, StreamError> {
    let failed = |source| StreamError::Connect { address: format!("{host}:{port}"), source };
    let stream = outbound::dial((host, port)).await.map_err(failed)?;
    let (mut sender, driver) = outbound::http1(stream).await?;
    driver.detach();
    Ok(sender.send_request(request).await?)
}

/// A SPDY/3.1 connection to the runtime that speaks exactly `version`.
pub(super) async fn connect(url: &str, version: &'static str) -> Result<Upgraded, StreamError> {
    let mut answer = request(url, vec![HeaderValue::from_static(version)]).await?;
    let code = answer.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        let text = match Limited::new(answer.into_body(), REFUSAL).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).trim_end().to_owned(),
            Err(error) => format!("unreadable answer: {error}"),
        };
        return Err(StreamError::Refused { code: code.as_u16(), text });
    }
    let chosen = answer.headers().get(PROTOCOL);
    if chosen.is_some_and(|chosen| chosen.as_bytes() != version.as_bytes()) {
        let text = format!("it does not speak {version}");
        return Err(StreamError::Refused { code: code.as_u16(), text });
    }
    Ok(hyper::upgrade::on(&mut answer).await?)
}
