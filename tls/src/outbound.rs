//! The way to a server: TCP, TLS where it is asked for, and HTTP/1.1 over it. Whoever calls somebody goes by it, so that
//! time limits, socket options and how a host is read from a URL are the same for all.
//!
//! Whom to believe is the [`ClientConfig`]'s to say; which connections are kept for a next request is the caller's business.

use http::Uri;
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

/// For the TCP and TLS handshakes together; Go's dialer gives 30 s. A dead machine shows up after this, if the caller has no
/// shorter limit of its own.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The step that failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("connect")]
    Dial(#[source] io::Error),
    #[error("handshake")]
    Tls(#[source] io::Error),
    #[error("no connection within {CONNECT_TIMEOUT:?}")]
    Timeout,
}

/// A byte stream, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Whom a URL is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or an address, without brackets.
    pub name: String,
    pub port: u16,
    /// Whether the scheme is `https`.
    pub is_secure: bool,
}

impl Host {
    /// `None` for a URL without a host.
    pub fn of(uri: &Uri) -> Option<Self> {
        let is_secure = uri.scheme_str() == Some("https");
        let name = uri.host()?.trim_matches(['[', ']']).to_owned();
        Some(Self { name, port: uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 }), is_secure })
    }

    pub fn address(&self) -> (&str, u16) {
        (&self.name, self.port)
    }
}

/// What a certificate must be for.
///
/// # Errors
/// What is neither a DNS name nor an IP address.
pub fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// A TCP connection that sends small messages at once. Addresses are tried one after the other.
///
/// # Errors
/// [`ConnectError::Dial`] of the last address, and the time limit.
pub async fn dial(to: impl ToSocketAddrs) -> Result<TcpStream, ConnectError> {
    in_time(dialled(to)).await
}

/// TLS over a connection.
///
/// # Errors
/// [`ConnectError::Tls`], and the time limit.
pub async fn encrypt(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    in_time(encrypted(config, name, stream)).await
}

/// A connection, with TLS where `tls` says whom to believe and what the other side is called.
///
/// # Errors
/// The step that failed.
pub async fn connect(
    to: impl ToSocketAddrs,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> Result<Box<dyn Stream>, ConnectError> {
    in_time(async {
        let stream = dialled(to).await?;
        Ok(match tls {
            None => Box::new(stream) as Box<dyn Stream>,
            Some((config, name)) => Box::new(encrypted(config, name, stream).await?),
        })
    })
    .await
}

/// The one time limit of all steps together.
async fn in_time<T>(steps: impl Future<Output = Result<T, ConnectError>>) -> Result<T, ConnectError> {
    tokio::time::timeout(CONNECT_TIMEOUT, steps).await.unwrap_or(Err(ConnectError::Timeout))
}

async fn dialled(to: impl ToSocketAddrs) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect(to).await.map_err(ConnectError::Dial)?;
    stream.set_nodelay(true).map_err(ConnectError::Dial)?;
    Ok(stream)
}

async fn encrypted(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    TlsConnector::from(config).connect(name, stream).await.map_err(ConnectError::Tls)
}

/// Carries a connection's bytes, and ends the connection when it goes.
#[derive(Debug)]
pub struct Driver(AbortOnDropHandle<()>);

impl Driver {
    pub fn new(connection: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(AbortOnDropHandle::new(tokio::spawn(connection)))
    }

    /// The connection ends by itself, with the last answer's body or with what it was upgraded to.
    pub fn detach(self) {
        drop(self.0.detach());
    }
}

/// HTTP/1.1 over a connection, which may be upgraded. Its errors are those of the requests on it.
///
/// # Errors
/// As hyper has them.
pub async fn http1<B>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> hyper::Result<(SendRequest<B>, Driver)>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = Driver::new(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection ended");
        }
    });
    Ok((sender, driver))
}

/// One request over a connection of its own, within the task that asks: nobody else is woken for it. The connection ends
/// when `take` has made something of the answer.
///
/// # Errors
/// As hyper has them.
pub async fn http1_once<B, F: Future>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: http::Request<B>,
    take: impl FnOnce(http::Response<Incoming>) -> F,
) -> hyper::Result<F::Output>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut answered = std::pin::pin!(async move {
        let response = sender.send_request(request).await?;
        Ok(take(response).await)
    });
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        // What it carried to its end is there to be taken; its errors are those of the request.
        _ = connection => answered.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn hosts_are_read_from_urls() {
        let of = |url: &str| Host::of(&url.parse().unwrap());
        let host = |name: &str, port, is_secure| Some(Host { name: name.to_owned(), port, is_secure });
        assert_eq!(of("https://a.example/x"), host("a.example", 443, true));
        assert_eq!(of("http://[2001:db8::1]/"), host("2001:db8::1", 80, false));
        assert_eq!(of("http://192.0.2.1:8080"), host("192.0.2.1", 8080, false));
        assert_eq!(of("/path"), None);
    }

    #[test]
    fn names_are_those_that_certificates_have() {
        assert!(server_name("a.example").is_ok() && server_name("2001:db8::1").is_ok());
        assert_eq!(server_name("a b").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[tokio::test]
    async fn a_connection_lives_as_long_as_its_driver() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            assert!(stream.read(&mut buffer).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            stream.read(&mut buffer).await.unwrap_or_default()
        });
        let stream = connect(address, None).await.unwrap();
        let (mut sender, driver) = http1::<http_body_util::Empty<bytes::Bytes>>(stream).await.unwrap();
        let answer = sender.send_request(http::Request::default()).await.unwrap();
        assert_eq!(answer.status(), http::StatusCode::NO_CONTENT);
        drop(driver);
        assert_eq!(served.await.unwrap(), 0, "the connection is closed, though its sender is still there");
    }

    /// Writes these in turn, and says what it was sent.
    async fn one_answer(parts: &'static [&'static str]) -> hyper::Result<(u16, usize)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            for part in parts {
                stream.write_all(part.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let stream = connect(address, None).await.unwrap();
        let request = http::Request::new(http_body_util::Empty::<bytes::Bytes>::new());
        let taken = http1_once(stream, request, async |response| {
            let status = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body()).await;
            (status, body.map_or(0, |body| body.to_bytes().len()))
        });
        tokio::join!(served, taken).1
    }

    #[tokio::test]
    async fn one_request_is_answered_in_the_task_that_asks() {
        let whole = one_answer(&["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"]).await.unwrap();
        assert_eq!(whole, (200, 4));
        let pieces = one_answer(&["HTTP/1.1 503 X\r\n", "\r\nbo", "dy, up to the end"]).await.unwrap();
        assert_eq!(pieces, (503, 19), "the end of the connection is the body's");
        assert!(one_answer(&[]).await.is_err(), "it ended without an answer");
        assert!(one_answer(&["SSH-2.0-x\r\n"]).await.is_err());
    }

    #[tokio::test]
    async fn nobody_there_is_told_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let refused = connect(address, None).await.err();
        assert!(
            matches!(&refused, Some(ConnectError::Dial(e)) if e.kind() == io::ErrorKind::ConnectionRefused),
            "{refused:?}"
        );
    }
}
