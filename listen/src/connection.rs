//! One connection: TLS, HTTP/1.1 or HTTP/2, and the end of it.

use crate::activity::{Activity, End};
use crate::answer::Open;
use crate::front::{Front, Shared};
use crate::io::{Note, Noted};
use crate::linger::Lingering;
use crate::places::Place;
use crate::upload;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::server::Acceptor;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// A client that vanished without a word (no FIN) is noticed after about 30 + 3 x 10 seconds.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// HTTP/2's own PING, which finds a peer that the kernel at its other end still answers for.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));

/// What a client has to take leave in, once it was told that its connection ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that was accepted and has its place.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) activity: Arc<Activity>,
    pub(crate) place: Place,
}

/// Serves it to its end.
pub(crate) async fn run<F: Front>(
    front: F,
    shared: Arc<Shared>,
    accepted: Accepted,
    stop: CancellationToken,
) {
    let Accepted { stream, address, activity, place } = accepted;
    if let Err(error) = prepare(&stream) {
        // It is gone already.
        return tracing::debug!(%address, %error, "a socket's options");
    }
    let talk = Talk { front, activity: activity.clone(), place: Arc::new(place), address, stop };
    let Some(tls) = shared.settings.tls.clone() else {
        let peer = talk.front.peer(address, None);
        return talk.serve(stream, peer).await;
    };
    let shaking = tokio::time::timeout(shared.settings.limits.handshake, handshake(&shared, tls, stream));
    let shaken = tokio::select! {
        shaken = shaking => shaken,
        why = activity.ended() => return talk.front.ended(why),
    };
    match shaken {
        Ok(Ok(stream)) => {
            let peer = talk.front.peer(address, stream.get_ref().1.peer_certificates());
            talk.serve(stream, peer).await;
        }
        Ok(Err(error)) => {
            talk.front.handshake_failed();
            tracing::debug!(%address, %error, "TLS handshake");
        }
        Err(_) => {
            talk.front.handshake_failed();
            tracing::debug!(%address, "TLS handshake took too long");
        }
    }
}

/// Watch events are small, and late if they wait for more.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (idle, interval, tries) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(tries);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Reading what a client begins with costs nothing; to answer it does. A handshake takes its turn for that and lets
/// everybody else go first who is ready, so that a flood of them delays requests by one handshake, not by all.
async fn handshake(
    shared: &Shared,
    tls: Arc<rustls::ServerConfig>,
    stream: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let turn = shared.handshakes.acquire().await;
    tokio::task::yield_now().await;
    let rest = hello.into_stream(tls);
    drop(turn);
    rest.await
}

/// What a connection is served with.
struct Talk<F> {
    front: F,
    activity: Arc<Activity>,
    place: Arc<Place>,
    address: SocketAddr,
    stop: CancellationToken,
}

impl<F: Front> Talk<F> {
    async fn serve<I>(self, io: I, peer: F::Peer)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { front, activity, place, address, stop } = self;
        let note = SocketNote { activity: activity.clone(), _place: place.clone() };
        let io = TokioIo::new(Noted::new(Lingering::new(io, activity.clone()), note));
        let (answering, clock) = (front.clone(), activity.clone());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut open = Open::new(clock.clone(), &place, &request);
            let (mut request, rest) = upload::watched(request);
            request.extensions_mut().insert(place.clone());
            let (front, peer) = (answering.clone(), peer.clone());
            // Boxed, because HTTP/2 keeps its place for as long as the answer lasts: a watch's for an hour.
            Box::pin(async move {
                open.room().await;
                let response = front.answer(peer, request).await;
                Ok::<_, Infallible>(open.answer(response, rest).await)
            })
        });
        let builder = builder(activity.limits());
        let connection = builder.serve_connection_with_upgrades(io, service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            why = activity.ended() => {
                front.ended(why);
                tracing::debug!(%address, %why, "connection ended");
                if why == End::Idle {
                    connection.as_mut().graceful_shutdown();
                    // Who does not take leave is left.
                    let _ = tokio::time::timeout(LEAVE_TIMEOUT, connection).await;
                }
                return;
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "connection");
        }
    }
}

fn builder(limits: &crate::Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // The connection's clock knows slow heads from idle connections, which hyper's timer does not.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.buffer_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(limits.buffer_bytes)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.head_bytes)
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    builder
}

/// What a connection's socket says, with the place that is held until the socket is closed.
struct SocketNote {
    activity: Arc<Activity>,
    _place: Arc<Place>,
}

impl Note for SocketNote {
    fn read(&mut self, bytes: usize) -> io::Result<()> {
        let wanted = self.activity.read(bytes);
        if wanted { Ok(()) } else { Err(io::Error::other("more than anybody sends who wants something")) }
    }

    fn wrote(&mut self, bytes: usize) {
        self.activity.wrote(bytes);
    }
}
