//! Names that are not the cluster's: asked of others, as `forward` in the configuration says.

use crate::configuration::{Forward, Policy, Upstream, is_below};
use crate::metrics::{Metric, Metrics};
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// How long one resolver may take; resolvers of pods give up after 5 s and ask again.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Resolvers that are tried for one question.
const TRIES: usize = 3;
/// Of the resolvers in files.
const PORT: u16 = 53;
/// Largest answer over UDP that is read.
const LARGEST: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("no resolver outside the cluster is configured")]
    NoResolver,
    #[error("no resolver outside the cluster answered")]
    NoAnswer,
    #[error("{0} questions are asked outside at once already")]
    TooMany(usize),
}

type Known = (Option<SystemTime>, Arc<[SocketAddr]>);

/// Asks the servers of one `forward`; files of resolvers, resolv.conf(5), are read again when they change.
pub struct Forwarder {
    settings: Forward,
    /// Addresses of ourselves, which would make a loop.
    own: BTreeSet<IpAddr>,
    files: parking_lot::Mutex<HashMap<PathBuf, Known>>,
    next: AtomicUsize,
    under_way: AtomicUsize,
    metrics: Arc<Metrics>,
}

/// A question that is being asked.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Forwarder {
    pub fn new(settings: Forward, own: BTreeSet<IpAddr>, metrics: Arc<Metrics>) -> Self {
        let (files, next, under_way) =
            (parking_lot::Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { settings, own, files, next, under_way, metrics }
    }

    /// Whether this name is asked for here; in lower case, without the final dot.
    pub fn serves(&self, name: &str) -> bool {
        is_below(name, &self.settings.from) && !self.settings.except.iter().any(|zone| is_below(name, zone))
    }

    fn in_file(&self, path: &Path) -> Arc<[SocketAddr]> {
        let modified = std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let mut files = self.files.lock();
        let known = files.entry(path.to_owned()).or_insert_with(|| (None, Arc::new([])));
        if modified.is_none() || known.0 != modified {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            *known = (modified, parse(&text, &self.own));
        }
        known.1.clone()
    }

    /// In the order in which they are to be asked.
    fn resolvers(&self) -> Vec<SocketAddr> {
        let mut all = Vec::new();
        for upstream in &self.settings.upstreams {
            match upstream {
                Upstream::ResolvConf(path) => all.extend_from_slice(&self.in_file(path)),
                Upstream::Address(address) => {
                    all.extend(Some(*address).filter(|a| !self.own.contains(&a.ip())))
                }
            }
        }
        match self.settings.policy {
            Policy::Sequential => {}
            Policy::Random => all.shuffle(&mut rand::rng()),
            Policy::RoundRobin if all.is_empty() => {}
            Policy::RoundRobin => {
                let first = self.next.fetch_add(1, Ordering::Relaxed) % all.len();
                all.rotate_left(first);
            }
        }
        all
    }

    /// Asks one resolver after the other; `question` and the answer are whole messages. Over TCP where the client
    /// asked over TCP, so that large answers pass.
    ///
    /// # Errors
    /// Nobody is there to be asked, nobody answered, or too many questions are asked already.
    pub async fn ask(&self, question: &[u8], tcp: bool) -> Result<Vec<u8>, ForwardError> {
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed);
        let _under_way = UnderWay(&self.under_way);
        if let Some(most) = self.settings.max_concurrent.filter(|most| under_way >= *most) {
            self.metrics.add(Metric::ForwardRejects, &[], 1);
            return Err(ForwardError::TooMany(most));
        }
        let resolvers = self.resolvers();
        if resolvers.is_empty() {
            return Err(ForwardError::NoResolver);
        }
        for resolver in resolvers.into_iter().take(TRIES) {
            if let Some(answer) = self.ask_one(resolver, question, tcp || self.settings.force_tcp).await {
                return Ok(answer);
            }
        }
        Err(ForwardError::NoAnswer)
    }

    async fn ask_one(&self, resolver: SocketAddr, question: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let begun = Instant::now();
        let attempt = async {
            if tcp { over_tcp(resolver, question).await } else { over_udp(resolver, question).await }
        };
        let answer = match tokio::time::timeout(WAIT_TIMEOUT, attempt).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                tracing::debug!(%resolver, %error, "resolver failed");
                None
            }
            Err(_) => {
                tracing::debug!(%resolver, "resolver did not answer");
                None
            }
        };
        let code = answer.as_ref().and_then(|answer| answer.get(3)).map_or("", |flags| code_name(flags & 15));
        let to = resolver.to_string();
        self.metrics.observe(Metric::ForwardDurations, &["forward", &to, code], begun.elapsed());
        answer
    }
}

/// As labels have it.
pub fn code_name(code: u8) -> &'static str {
    match code {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        _ => "other",
    }
}

fn parse(text: &str, own: &BTreeSet<IpAddr>) -> Arc<[SocketAddr]> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()
    });
    let servers = servers.filter_map(|s| s.split('%').next()?.parse::<IpAddr>().ok());
    servers.filter(|ip| !own.contains(ip)).map(|ip| SocketAddr::new(ip, PORT)).collect()
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
        let found: Vec<String> = parse(text, &own).iter().map(ToString::to_string).collect();
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
