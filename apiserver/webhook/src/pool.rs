//! Connections to one webhook, kept for the next call.

use super::error::TransportError;
use super::resolve::Endpoint;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use coracle_component_base::traces;
use coracle_tls::outbound::{self, ConnectError, Driver};
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Idle connections that are kept, and for how long: the numbers of upstream's transport.
const IDLE_CONNECTIONS: usize = 25;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Addresses of a service that are tried, one after the other.
const ATTEMPTS: usize = 3;

/// An answer, read to its end.
pub(super) struct Received {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Finds out whom to connect to; only asked for a new connection.
pub(super) type Endpoints<'a> = dyn Fn() -> Result<Vec<Endpoint>, TransportError> + Send + Sync + 'a;

/// HTTP/1.1: one call at a time.
struct Single {
    sender: http1::SendRequest<Body>,
    /// Ends with its last user.
    _driver: Driver,
    idle_since: Instant,
}

/// HTTP/2: all calls at once.
#[derive(Clone)]
struct Shared {
    sender: http2::SendRequest<Body>,
    _driver: Arc<Driver>,
}

enum Connection {
    Single(Single),
    Shared(Shared),
}

pub(super) struct Pool {
    tls: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// Of every call: who asks.
    headers: HeaderMap,
    idle: Arc<Mutex<Vec<Single>>>,
    shared: Mutex<Option<Shared>>,
    /// Spreads new connections over the addresses of a service.
    turn: AtomicUsize,
}

impl Pool {
    pub fn new(tls: Arc<ClientConfig>, name: ServerName<'static>, headers: HeaderMap) -> Self {
        let turn = AtomicUsize::new(rand::random::<u16>().into());
        Self { tls, name, headers, idle: Arc::default(), shared: Mutex::default(), turn }
    }

    /// `None` for an answer of more than `most` bytes. A kept connection that turns out to be closed is replaced.
    pub async fn post(
        &self,
        url: &str,
        body: Bytes,
        most: usize,
        endpoints: &Endpoints<'_>,
    ) -> Result<Option<Received>, TransportError> {
        loop {
            let (connection, kept) = match self.take() {
                Some(kept) => (kept, true),
                None => (self.connect(endpoints).await?, false),
            };
            let sent = match connection {
                Connection::Single(single) => self.by_single(single, url, body.clone(), most).await,
                Connection::Shared(shared) => self.by_shared(shared, url, body.clone(), most).await,
            };
            match sent {
                Err(error) if kept && was_closed(&error) => {}
                sent => return sent.map_err(TransportError::Http),
            }
        }
    }

    fn take(&self) -> Option<Connection> {
        let mut shared = self.shared.lock();
        if shared.as_ref().is_some_and(|shared| shared.sender.is_closed()) {
            *shared = None;
        }
        if let Some(shared) = &*shared {
            return Some(Connection::Shared(shared.clone()));
        }
        let mut idle = self.idle.lock();
        while let Some(single) = idle.pop() {
            if single.sender.is_ready() && single.idle_since.elapsed() < IDLE_TIMEOUT {
                return Some(Connection::Single(single));
            }
        }
        None
    }

    async fn connect(&self, endpoints: &Endpoints<'_>) -> Result<Connection, TransportError> {
        let all = endpoints()?;
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut last = None;
        for i in 0..all.len().min(ATTEMPTS) {
            match dial(&all[(first.wrapping_add(i)) % all.len()]).await {
                Ok(stream) => return self.secure(stream).await,
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| TransportError::NoEndpoints(String::new())))
    }

    async fn secure(&self, stream: TcpStream) -> Result<Connection, TransportError> {
        let stream = outbound::encrypt(self.tls.clone(), self.name.clone(), stream).await;
        let stream = stream.map_err(|error| TransportError::Tls(io_error(error)))?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(TransportError::Http)?;
            // An error of the connection also ends the request that is sent over it, which returns it to its caller.
            let driver = Driver::new(async move { drop(connection.await) });
            let shared = Shared { sender, _driver: Arc::new(driver) };
            *self.shared.lock() = Some(shared.clone());
            return Ok(Connection::Shared(shared));
        }
        let (sender, driver) = outbound::http1(stream).await.map_err(TransportError::Http)?;
        Ok(Connection::Single(Single { sender, _driver: driver, idle_since: Instant::now() }))
    }

    async fn by_single(
        &self,
        single: Single,
        url: &str,
        body: Bytes,
        most: usize,
    ) -> Result<Option<Received>, hyper::Error> {
        let mut single = single;
        single.sender.ready().await?;
        let response = single.sender.send_request(self.request(url, body, Version::HTTP_11)).await?;
        let received = receive(response, most).await?;
        if received.is_some() {
            self.keep(single);
        }
        Ok(received)
    }

    async fn by_shared(
        &self,
        shared: Shared,
        url: &str,
        body: Bytes,
        most: usize,
    ) -> Result<Option<Received>, hyper::Error> {
        let mut shared = shared;
        shared.sender.ready().await?;
        let response = shared.sender.send_request(self.request(url, body, Version::HTTP_2)).await?;
        receive(response, most).await
    }

    /// HTTP/2 names the host in the URI, HTTP/1.1 in a header.
    fn request(&self, url: &str, body: Bytes, version: Version) -> Request<Body> {
        let uri: http::Uri = url.parse().unwrap_or_default();
        let mut request = Request::post(url)
            .version(version)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(trace) = traces::current() {
            request = request.header(traces::HEADER, trace);
        }
        if version == Version::HTTP_11 {
            let host = uri.authority().map_or("", |a| a.as_str());
            request = request.uri(uri.path_and_query().map_or("/", |p| p.as_str())).header(HOST, host);
        }
        // Made of a URL that was parsed when the target was.
        request.body(Body::from(body)).unwrap_or_default()
    }

    fn keep(&self, single: Single) {
        let mut idle = self.idle.lock();
        if idle.len() >= IDLE_CONNECTIONS {
            return;
        }
        if idle.is_empty() {
            tokio::spawn(sweep(Arc::downgrade(&self.idle)));
        }
        idle.push(Single { idle_since: Instant::now(), ..single });
    }
}

/// Closes what nobody has used for long; ends when nothing is left.
async fn sweep(idle: std::sync::Weak<Mutex<Vec<Single>>>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = idle.lock();
        idle.retain(|single| single.idle_since.elapsed() < IDLE_TIMEOUT);
        if idle.is_empty() {
            return;
        }
    }
}

pub(super) async fn dial(endpoint: &Endpoint) -> Result<TcpStream, TransportError> {
    let Endpoint { host, port } = endpoint;
    outbound::dial((host.as_str(), *port)).await.map_err(|error| {
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        TransportError::Dial { address, source: io_error(error) }
    })
}

/// What the system said, or would have said had it not been too slow.
pub(super) fn io_error(error: ConnectError) -> io::Error {
    match error {
        ConnectError::Dial(source) | ConnectError::Tls(source) => source,
        ConnectError::Timeout => io::ErrorKind::TimedOut.into(),
    }
}

pub(super) async fn receive(
    response: Response<Incoming>,
    most: usize,
) -> Result<Option<Received>, hyper::Error> {
    let (parts, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(Received { status: parts.status, headers: parts.headers, body: bytes.freeze() }))
}

/// Questions are repeatable, so a call whose kept connection went away before an answer is made once more.
fn was_closed(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let reset = error.source().and_then(|source| source.downcast_ref::<io::Error>()).is_some_and(|source| {
        matches!(source.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    });
    error.is_canceled() || error.is_closed() || error.is_incomplete_message() || reset
}
