//! Connections to a server below what a client library would send.

use super::Error;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest wait for one answer; beyond it there is none.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections from one address of the loopback network, whose ports are some 28,000.
const EACH_ADDRESS: u32 = 5_000;

#[derive(Clone)]
pub enum Who {
    Nobody,
    Token(String),
}

/// A server, and as whom to speak to it.
#[derive(Clone)]
pub struct Target {
    port: u16,
    roots: Arc<RootCertStore>,
    who: Who,
}

impl Target {
    pub fn new(port: u16, pki: &Path, who: Who) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(pki.join("ca.crt"))? {
            roots.add(root?)?;
        }
        Ok(Self { port, roots: Arc::new(roots), who })
    }

    #[must_use]
    pub fn as_nobody(self) -> Self {
        Self { who: Who::Nobody, ..self }
    }

    /// The value of the header `authorization`.
    pub fn authorization(&self) -> Option<String> {
        match &self.who {
            Who::Nobody => None,
            Who::Token(token) => Some(format!("Bearer {token}")),
        }
    }

    /// From 127.0.0.2 on, so that ports do not run out.
    pub async fn tcp(&self) -> Result<TcpStream, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed) / EACH_ADDRESS % 250;
        let source = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 0, 2)) + n);
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((source, 0)))?;
        let stream = socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn tls(&self, protocol: &[u8]) -> Result<TlsStream<TcpStream>, Error> {
        let mut config =
            ClientConfig::builder().with_root_certificates(self.roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        // Every handshake is to be a whole one.
        config.resumption = rustls::client::Resumption::disabled();
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("127.0.0.1")?;
        Ok(connector.connect(name, self.tcp().await?).await?)
    }

    pub async fn http1(&self) -> Result<Http1, Error> {
        Ok(Http1 { stream: self.tls(b"http/1.1").await?, authorization: self.authorization() })
    }

    pub async fn http2(&self) -> Result<TlsStream<TcpStream>, Error> {
        self.tls(b"h2").await
    }
}

/// HTTP/1.1 by hand.
pub struct Http1 {
    pub stream: TlsStream<TcpStream>,
    authorization: Option<String>,
}

impl Http1 {
    /// A request's head, with these lines too.
    pub fn head(&self, method: &str, path: &str, more: &str) -> String {
        let authorization = self.authorization.as_ref();
        let authorization = authorization.map_or_else(String::new, |a| format!("authorization: {a}\r\n"));
        format!("{method} {path} HTTP/1.1\r\nhost: a\r\n{authorization}{more}\r\n")
    }

    /// The status of a get.
    pub async fn get(&mut self, path: &str) -> Result<u16, Error> {
        let head = self.head("GET", path, "");
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.flush().await?;
        Ok(self.answer().await?.0)
    }

    /// Sends a body whole.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        more: &str,
        body: &[u8],
    ) -> Result<(u16, String), Error> {
        let head = self.head(method, path, &format!("content-length: {}\r\n{more}", body.len()));
        // The server may answer, and close, before it has read all.
        let sent = async {
            // In one piece: who is answered before the body is read is not waited for long.
            self.stream.write_all(&[head.as_bytes(), body].concat()).await?;
            // What TLS has taken is not on its way for that: a task whose turn was over leaves it there.
            self.stream.flush().await
        };
        let sent = sent.await;
        let answer = self.answer().await;
        match (sent, answer) {
            (_, Ok(answer)) => Ok(answer),
            (Err(error), Err(_)) => Err(error.into()),
            (Ok(()), Err(error)) => Err(error),
        }
    }

    /// Status and body of the next answer, which says how long it is.
    pub async fn answer(&mut self) -> Result<(u16, String), Error> {
        tokio::time::timeout(PATIENCE, self.read()).await.map_err(|_| "no answer")?
    }

    async fn read(&mut self) -> Result<(u16, String), Error> {
        let mut got = Vec::new();
        let end = loop {
            if let Some(at) = got.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if self.stream.read_buf(&mut got).await? == 0 {
                return Err("the connection was closed".into());
            }
        };
        let head = String::from_utf8_lossy(&got[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let whole = end + length.unwrap_or(0);
        while got.len() < whole {
            if self.stream.read_buf(&mut got).await? == 0 {
                return Err("the connection was closed".into());
            }
        }
        Ok((status, String::from_utf8_lossy(&got[end..whole]).into_owned()))
    }
}

/// Waits until the server closes the connection; whether it does in this time.
pub async fn is_closed<S: tokio::io::AsyncRead + Unpin>(stream: &mut S, within: Duration) -> bool {
    let read = async {
        let mut buffer = vec![0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    };
    tokio::time::timeout(within, read).await.is_ok()
}
