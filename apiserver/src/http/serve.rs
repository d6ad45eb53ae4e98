//! The listener: TLS, HTTP/1.1 and HTTP/2, and the end of both.

use super::service;
use crate::authn::{Authenticator, PeerIdentity};
use crate::metrics;
use crate::server::Inner;
use axum::body::Body;
use axum::extract::ConnectInfo;
use coracle_api::UserInfo;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// A client that has not finished its handshake by then is not one.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Requests that are under way when the server stops get this long.
const DRAIN: Duration = Duration::from_secs(2);

/// Of an answer that waits for a slow client, a connection (HTTP/1.1) or a stream (HTTP/2); hyper's own 400 KiB make
/// many large lists at a time expensive. It bounds the head of a request too.
const BUFFER_BYTES: usize = 128 * 1024;

/// After an accept error, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection. In the extensions of every request that came over a socket.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// What the client's certificate says; `None` without one.
    pub identity: Option<Arc<PeerIdentity>>,
}

/// What every connection needs.
#[derive(Clone)]
pub struct Front {
    pub server: Arc<Inner>,
    /// Clear text without it.
    pub tls: Option<TlsAcceptor>,
    /// Judges client certificates, once a connection.
    pub authenticator: Option<Arc<Authenticator>>,
}

/// Serves connections until `stop`.
pub async fn serve(front: Front, listener: TcpListener, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    connections.spawn(connection(front.clone(), stream, address, stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::debug!("connections were still open at the end");
    }
}

async fn connection(front: Front, stream: TcpStream, address: SocketAddr, stop: CancellationToken) {
    // Watch events are small, and late if they wait for more.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set_nodelay");
    }
    let Some(acceptor) = front.tls else {
        let peer = Peer { address, identity: None };
        return exchange(front.server, TokioIo::new(stream), peer, stop).await;
    };
    match tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let chain = stream.get_ref().1.peer_certificates();
            let identity = front.authenticator.as_ref().and_then(|a| a.peer(chain)).map(Arc::new);
            exchange(front.server, TokioIo::new(stream), Peer { address, identity }, stop).await;
        }
        Ok(Err(error)) => {
            metrics::global().handshake_failed();
            tracing::debug!(%address, %error, "TLS handshake");
        }
        Err(_) => {
            metrics::global().handshake_failed();
            tracing::debug!(%address, "TLS handshake took too long");
        }
    }
}

async fn exchange<I>(server: Arc<Inner>, io: TokioIo<I>, peer: Peer, stop: CancellationToken)
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        // Only the in-process transport may say who the user is.
        request.extensions_mut().remove::<UserInfo>();
        request.extensions_mut().insert(ConnectInfo(peer.address));
        request.extensions_mut().insert(peer.clone());
        let is_head = request.method() == Method::HEAD;
        let answer = service::handle(server.clone(), request);
        async move {
            let answer = answer.await;
            Ok::<_, Infallible>(if is_head { without_body(answer) } else { answer })
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(32))
        .max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(BUFFER_BYTES)
        .max_concurrent_streams(250)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15));
    let connection = builder.serve_connection_with_upgrades(io, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "connection");
    }
}

/// The answer to a HEAD: it says how long the body would have been.
fn without_body(answer: Response<Body>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Body::empty())
}
