//! The opening handshake (RFC 6455, section 4.2) and the choice of a subprotocol.

use crate::streaming::{Kind, StreamError};
use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// What the versions of the channel protocol change here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `channel.k8s.io`: the error channel carries plain text, and only of a failure.
    V1,
    /// The error channel carries a Status.
    V4,
    /// Channel 255 closes the channel that its payload names (KEP-4006).
    V5,
}

/// Messages that begin with their channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subprotocol {
    pub version: Version,
    /// Text messages: the channel as a digit, the payload in base64.
    pub base64: bool,
}

/// What the WebSocket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Channels(Subprotocol),
    /// A SPDY connection.
    Tunnel,
}

/// The accepted handshake.
#[derive(Debug)]
pub struct Answer {
    pub protocol: Protocol,
    pub response: Response<Body>,
}

/// Checks the client's handshake and chooses the first subprotocol it offers that fits; a client that offers none
/// speaks the oldest.
pub fn negotiate(headers: &HeaderMap, kind: &Kind) -> Result<Answer, StreamError> {
    let (name, protocol) = choose(headers, kind)?;
    Ok(Answer { protocol, response: accept(headers, name)? })
}

/// The same for a client that only reads: whether it wants text, which is then base64, and the answer.
pub fn negotiate_reading(headers: &HeaderMap) -> Result<(bool, Response<Body>), StreamError> {
    let offered = offered(headers);
    let known = ["binary.k8s.io", "base64.binary.k8s.io"];
    let name = offered.iter().find_map(|name| known.iter().find(|known| known == &name));
    if name.is_none() && !offered.is_empty() {
        return Err(StreamError::Subprotocol(offered.into_iter().map(str::to_owned).collect()));
    }
    Ok((name == Some(&known[1]), accept(headers, name.copied())?))
}

fn accept(headers: &HeaderMap, name: Option<&'static str>) -> Result<Response<Body>, StreamError> {
    let version = headers.get(header::SEC_WEBSOCKET_VERSION).and_then(|version| version.to_str().ok());
    if version != Some("13") {
        return Err(StreamError::Handshake("Sec-WebSocket-Version is not 13"));
    }
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .ok_or(StreamError::Handshake("Sec-WebSocket-Key is missing"))?;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| StreamError::Handshake("Sec-WebSocket-Key is malformed"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(name) = name {
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok(response)
}

type Choice = (Option<&'static str>, Protocol);

const fn channels(version: Version, base64: bool) -> Protocol {
    Protocol::Channels(Subprotocol { version, base64 })
}

const COMMAND: &[(&str, Protocol)] = &[
    ("v5.channel.k8s.io", channels(Version::V5, false)),
    ("v4.channel.k8s.io", channels(Version::V4, false)),
    ("v4.base64.channel.k8s.io", channels(Version::V4, true)),
    ("channel.k8s.io", channels(Version::V1, false)),
    ("base64.channel.k8s.io", channels(Version::V1, true)),
];

const FORWARD: &[(&str, Protocol)] = &[
    ("SPDY/3.1+portforward.k8s.io", Protocol::Tunnel),
    ("v2.portforward.k8s.io", Protocol::Tunnel),
    ("v4.channel.k8s.io", channels(Version::V4, false)),
    ("v4.base64.channel.k8s.io", channels(Version::V4, true)),
];

fn offered(headers: &HeaderMap) -> Vec<&str> {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect()
}

fn choose(headers: &HeaderMap, kind: &Kind) -> Result<Choice, StreamError> {
    let offered = offered(headers);
    let known = if matches!(kind, Kind::RemoteCommand(_)) { COMMAND } else { FORWARD };
    if offered.is_empty() {
        return Ok((None, channels(Version::V1, false)));
    }
    offered
        .iter()
        .find_map(|name| known.iter().find(|(known, _)| known == name))
        .map(|(name, protocol)| (Some(*name), *protocol))
        .ok_or_else(|| StreamError::Subprotocol(offered.into_iter().map(str::to_owned).collect()))
}
