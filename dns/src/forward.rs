//! Names that are not the cluster's: asked of the node's own resolvers.

use rand::Rng;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// How long one resolver may take; resolvers of pods give up after 5 s and ask again.
const PATIENCE: Duration = Duration::from_secs(2);
/// Resolvers that are tried for one question.
const TRIES: usize = 3;
/// Largest answer over UDP that is read.
const LARGEST: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("no resolver outside the cluster is configured")]
    NoResolver,
    #[error("no resolver outside the cluster answered")]
    NoAnswer,
}

/// The resolvers of a resolv.conf(5), read again when the file changes.
pub struct Forwarder {
    path: PathBuf,
    /// Addresses of ourselves, which would make a loop.
    own: BTreeSet<IpAddr>,
    port: u16,
    resolvers: parking_lot::Mutex<(Option<SystemTime>, Arc<[SocketAddr]>)>,
}

impl Forwarder {
    pub fn new(path: PathBuf, own: BTreeSet<IpAddr>) -> Self {
        Self { path, own, port: 53, resolvers: parking_lot::Mutex::new((None, Arc::new([]))) }
    }

    /// Resolvers of a test may not have the port that is every resolver's.
    #[cfg(test)]
    pub fn at_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    fn resolvers(&self) -> Arc<[SocketAddr]> {
        let modified = std::fs::metadata(&self.path).and_then(|m| m.modified()).ok();
        let mut known = self.resolvers.lock();
        if modified.is_none() || known.0 != modified {
            let text = std::fs::read_to_string(&self.path).unwrap_or_default();
            *known = (modified, parse(&text, &self.own, self.port));
        }
        known.1.clone()
    }

    /// Asks one resolver after the other; `question` and the answer are whole messages. Over TCP where the client
    /// asked over TCP, so that large answers pass.
    pub async fn ask(&self, question: &[u8], tcp: bool) -> Result<Vec<u8>, ForwardError> {
        let resolvers = self.resolvers();
        if resolvers.is_empty() {
            return Err(ForwardError::NoResolver);
        }
        for resolver in resolvers.iter().take(TRIES) {
            let attempt = async {
                if tcp { over_tcp(*resolver, question).await } else { over_udp(*resolver, question).await }
            };
            match tokio::time::timeout(PATIENCE, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => tracing::debug!(%resolver, %error, "resolver failed"),
                Err(_) => tracing::debug!(%resolver, "resolver did not answer"),
            }
        }
        Err(ForwardError::NoAnswer)
    }
}

fn parse(text: &str, own: &BTreeSet<IpAddr>, port: u16) -> Arc<[SocketAddr]> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()
    });
    let servers = servers.filter_map(|s| s.split('%').next()?.parse::<IpAddr>().ok());
    servers.filter(|ip| !own.contains(ip)).map(|ip| SocketAddr::new(ip, port)).collect()
}

/// A socket of its own, with a port and an id of its own, for each question: answers cannot be guessed.
async fn over_udp(resolver: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: IpAddr = if resolver.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    let own_id: [u8; 2] = rand::rng().random();
    let mut sent = question.to_vec();
    sent[..2].copy_from_slice(&own_id);
    socket.send(&sent).await?;
    let mut answer = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut answer).await?;
        if length >= 12 && answer[..2] == own_id {
            answer.truncate(length);
            answer[..2].copy_from_slice(&question[..2]);
            return Ok(answer);
        }
    }
}

async fn over_tcp(resolver: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    let length = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_address_is_no_resolver() {
        let own = BTreeSet::from(["10.43.0.10".parse().expect("address")]);
        let text = "# a comment\nsearch x\nnameserver 10.43.0.10\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver bad\n";
        let found: Vec<String> = parse(text, &own, 53).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "[fe80::1]:53"]);
    }

    #[tokio::test]
    async fn answers_come_back_under_the_clients_id() {
        let resolver = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
        let address = resolver.local_addr().expect("address");
        let echo = tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (length, from) = resolver.recv_from(&mut buffer).await.expect("question");
            resolver.send_to(&[0; 20], from).await.expect("wrong id");
            resolver.send_to(&buffer[..length], from).await.expect("answer");
        });
        let question = [7, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 42];
        let answer = over_udp(address, &question).await.expect("an answer");
        assert_eq!(answer, question);
        echo.await.expect("echo");
    }
}
