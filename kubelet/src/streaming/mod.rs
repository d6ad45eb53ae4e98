//! Streams between kubectl and a container: exec, attach and port-forward.
//!
//! A client speaks SPDY/3.1 or WebSockets. The runtime's streaming server always gets SPDY/3.1: a SPDY client is
//! joined to it byte by byte, a WebSocket is translated (or, tunnelled, unwrapped). One task holds everything that
//! belongs to a stream; when either side goes, the task ends and with it both connections. Nothing is buffered beyond
//! one read of each connection, so a slow reader slows its writer.

mod portforward;
mod remotecommand;
mod runtime;
pub mod spdy;
mod splice;
mod websocket;

use axum::body::Body;
use coracle_listen::{Quiet, Stamped};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use websocket::Protocol;

pub use runtime::StreamError;

/// Which streams a command has (upstream's `remotecommand.Options`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    /// Never together with `tty`, which merges it into stdout.
    pub stderr: bool,
    pub tty: bool,
}

/// What a streaming URL of the runtime leads to.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Exec and attach.
    RemoteCommand(Streams),
    /// The ports are those of the request, for WebSocket clients of the old protocol; others name them per stream.
    PortForward { ports: Vec<u16> },
}

/// What ends streams that neither side ends.
pub struct Ends {
    pub stop: CancellationToken,
    /// Without a byte in either direction for so long; zero is never (upstream's streamingConnectionIdleTimeout).
    pub idle: Duration,
    /// Ready when the client may no more.
    pub refused: BoxFuture<'static, ()>,
}

impl Ends {
    /// Runs what lasts, until one of the ends; `None` if it did not come to its own.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.stop.cancelled() => None,
            () = self.refused => {
                tracing::debug!("a stream was ended: its client may no more");
                None
            }
            done = work => Some(done),
        }
    }
}

const SPDY: &str = "SPDY/3.1";
const REMOTE_COMMAND: &str = "v4.channel.k8s.io";
const PORT_FORWARD: &str = "portforward.k8s.io";

/// Whether the client asks for a change of protocol, and which.
pub fn upgrade_of(headers: &HeaderMap) -> Option<&str> {
    let wants = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade")));
    if wants { headers.get(header::UPGRADE)?.to_str().ok() } else { None }
}

/// Joins the client of `request` to the runtime's streaming `url`. The answer is the change of protocol or the
/// reason why there is none; after it a task carries the stream until one side or `ends` ends it.
pub async fn serve(
    mut request: Request<Body>,
    url: &str,
    kind: Kind,
    ends: Ends,
) -> Result<Response<Body>, StreamError> {
    let protocol = upgrade_of(request.headers()).ok_or(StreamError::UpgradeRequired)?.to_owned();
    if protocol.eq_ignore_ascii_case("websocket") {
        let answer = websocket::negotiate(request.headers(), &kind)?;
        let client = hyper::upgrade::on(&mut request);
        return websocket(client, url, kind, answer, ends).await;
    }
    if !protocol.eq_ignore_ascii_case(SPDY) {
        return Err(StreamError::UnknownProtocol(protocol));
    }
    let client = hyper::upgrade::on(&mut request);
    spdy(client, request.headers(), url, ends).await
}

/// Sends `body` as the messages of a WebSocket, in the protocols of old that only read.
///
/// # Errors
/// The client's handshake is none.
pub fn messages(
    mut request: Request<Body>,
    body: Body,
    stop: &CancellationToken,
) -> Result<Response<Body>, StreamError> {
    let (text, response) = websocket::negotiate_reading(request.headers())?;
    let client = hyper::upgrade::on(&mut request);
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        match client.await {
            Ok(client) => {
                let client = websocket::open(TokioIo::new(client)).await;
                websocket::pour(client, body.into_data_stream(), text).await;
            }
            Err(error) => tracing::debug!(%error, "WebSocket upgrade did not happen"),
        }
    }));
    Ok(response)
}

/// A SPDY client talks to the runtime itself; only the handshake is carried by hand.
async fn spdy(
    client: OnUpgrade,
    headers: &HeaderMap,
    url: &str,
    ends: Ends,
) -> Result<Response<Body>, StreamError> {
    let versions: Vec<HeaderValue> = headers.get_all(runtime::PROTOCOL).iter().cloned().collect();
    let mut answer = runtime::request(url, versions).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer.map(Body::new));
    }
    let server = hyper::upgrade::on(&mut answer);
    spawn_until_quiet(ends, move |quiet| async move {
        if let Some((client, server)) = both(client, server).await {
            splice::splice(quiet.stamp(TokioIo::new(client)), TokioIo::new(server)).await;
        }
    });
    Ok(answer.map(|_| Body::empty()))
}

/// The runtime first: if it refuses, the client gets an HTTP error instead of a WebSocket that closes.
async fn websocket(
    client: OnUpgrade,
    url: &str,
    kind: Kind,
    answer: websocket::Answer,
    ends: Ends,
) -> Result<Response<Body>, StreamError> {
    let version = if matches!(kind, Kind::RemoteCommand(_)) { REMOTE_COMMAND } else { PORT_FORWARD };
    let server = runtime::connect(url, version).await?;
    let protocol = answer.protocol;
    spawn_until_quiet(ends, move |quiet| async move {
        match client.await {
            Ok(client) => carry(quiet.stamp(TokioIo::new(client)), server, kind, protocol).await,
            Err(error) => tracing::debug!(%error, "WebSocket upgrade did not happen"),
        }
    });
    Ok(answer.response)
}

async fn carry(
    client: Stamped<TokioIo<hyper::upgrade::Upgraded>>,
    server: hyper::upgrade::Upgraded,
    kind: Kind,
    protocol: Protocol,
) {
    let client = websocket::open(client).await;
    let server = TokioIo::new(server);
    let ended = match (kind, protocol) {
        (Kind::RemoteCommand(streams), Protocol::Channels(protocol)) => {
            remotecommand::bridge(client, protocol, server, streams).await
        }
        (Kind::PortForward { ports }, Protocol::Channels(protocol)) => {
            portforward::bridge(client, protocol, server, &ports).await
        }
        (_, Protocol::Tunnel) => {
            splice::tunnel(client, server).await;
            Ok(())
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &error as &dyn std::error::Error, "stream to the container runtime");
    }
}

async fn both(
    client: OnUpgrade,
    server: OnUpgrade,
) -> Option<(hyper::upgrade::Upgraded, hyper::upgrade::Upgraded)> {
    tokio::try_join!(client, server)
        .inspect_err(|error| tracing::debug!(%error, "SPDY upgrade did not happen"))
        .ok()
}

/// Every byte passes the client's side, so that tells when nothing moves.
fn spawn_until_quiet<F>(ends: Ends, stream: impl FnOnce(Quiet) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (quiet, idle) = (Quiet::default(), ends.idle);
    let stream = stream(quiet.clone());
    tokio::spawn(ends.run(async move {
        tokio::select! {
            () = stream => {}
            () = quiet.lasts(idle) => tracing::debug!(?idle, "a stream on which nothing moved was closed"),
        }
    }));
}

#[cfg(test)]
mod tests;
