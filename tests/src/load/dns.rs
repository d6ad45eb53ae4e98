//! The cluster's DNS under one client's flood.
//!
//! DNS answers nodes and pods alone, so all of this happens in a network of its own ([`crate::apart()`]) that has the addresses
//! of a node and of two pods.

use super::{Error, Stage};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// How long a client waits for one datagram until it asks again; as resolvers do, but quicker.
const AGAIN: Duration = Duration::from_secs(1);
/// And altogether; a lost datagram is no refusal, and a busy machine loses many in a row.
const PATIENCE: Duration = Duration::from_secs(60);

/// The node's address, the flooding pod's and another pod's, as `ip address add` takes them.
pub const NETWORK: [&str; 3] = ["10.77.0.1/24", "10.42.0.66/32", "10.42.0.67/32"];
const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const FLOODER: &str = "10.42.0.66";
const OTHER: &str = "10.42.0.67";
const PORT: u16 = 10_053;

/// A server that answers in that network.
pub fn stage() -> Result<Stage, Error> {
    Stage::start(&["--node-ip", &NODE.to_string(), "--disable", "kubelet,proxy,network"])
}

/// What the other pod saw.
pub struct Answered {
    /// Sorted times of questions by UDP.
    pub udp: Vec<Duration>,
    /// One by TCP, connection and all.
    pub tcp: Duration,
}

impl Answered {
    /// The smallest time that this percentage of the questions did not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        self.udp[(self.udp.len() * percent).div_ceil(100).max(1) - 1]
    }
}

/// One pod sends as many datagrams as it can and holds so many connections; another asks so many questions meanwhile.
pub async fn attack(connections: usize, questions: usize) -> Result<(String, Answered), Error> {
    let server = SocketAddr::new(NODE, PORT);
    // Before the flood: whether it answers at all.
    honest(server, OTHER, 1).await?;
    let mut floods = tokio::task::JoinSet::new();
    floods.spawn(flood(server, FLOODER));
    let held = hold(server, FLOODER, connections).await?;
    let udp = honest(server, OTHER, questions).await?;
    let tcp = by_tcp(server, OTHER).await?;
    if floods.try_join_next().is_some() {
        return Err("the flood ended by itself".into());
    }
    drop(held);
    let answered = Answered { udp, tcp };
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let (p50, p99) = (millis(answered.percentile(50)), millis(answered.percentile(99)));
    let seen = format!("by UDP p50 {p50:.1} ms, p99 {p99:.1} ms; by TCP {:.1} ms", millis(answered.tcp));
    Ok((seen, answered))
}

/// A question for the addresses of a name (RFC 1035).
fn question(name: &str) -> Vec<u8> {
    let mut message = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.extend(u8::try_from(label.len()));
        message.extend_from_slice(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// Asks for the API's own Service from this address, by UDP, so often; sorted times.
async fn honest(server: SocketAddr, client: &str, times: usize) -> Result<Vec<Duration>, Error> {
    let socket = UdpSocket::bind((client, 0)).await?;
    socket.connect(server).await?;
    let asked = question("kubernetes.default.svc.cluster.local");
    let (mut took, mut buffer) = (Vec::new(), [0; 512]);
    for _ in 0..times {
        let began = Instant::now();
        loop {
            socket.send(&asked).await?;
            let answered = tokio::time::timeout(AGAIN, socket.recv(&mut buffer)).await;
            match answered {
                Ok(Ok(length)) if length > 12 && buffer[3] & 15 == 0 && buffer[7] > 0 => break,
                Ok(Ok(_)) => return Err("an answer without addresses".into()),
                _ if began.elapsed() > PATIENCE => return Err("no answer".into()),
                _ => {}
            }
        }
        took.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    took.sort_unstable();
    Ok(took)
}

/// As many questions as a socket takes, for names here and outside, until it is dropped.
async fn flood(server: SocketAddr, client: &str) -> Result<(), Error> {
    let socket = UdpSocket::bind((client, 0)).await?;
    for n in 0_u64.. {
        let name = if n % 2 == 0 { "kubernetes.default.svc.cluster.local" } else { "example.invalid" };
        // A full queue is what is wanted.
        let _ = socket.send_to(&question(name), server).await;
        if n % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// So many connections from this address that ask nothing.
async fn hold(server: SocketAddr, client: &str, count: usize) -> Result<Vec<TcpStream>, Error> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        held.push(connect(server, client).await?);
    }
    Ok(held)
}

async fn connect(server: SocketAddr, client: &str) -> Result<TcpStream, Error> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(client.parse()?, 0))?;
    Ok(socket.connect(server).await?)
}

/// How long one question by TCP takes from this address, connection and all.
async fn by_tcp(server: SocketAddr, client: &str) -> Result<Duration, Error> {
    let began = Instant::now();
    let asked = question("kubernetes.default.svc.cluster.local");
    let mut stream = connect(server, client).await?;
    let length = u16::try_from(asked.len())?.to_be_bytes();
    stream.write_all(&[&length[..], &asked].concat()).await?;
    let length = tokio::time::timeout(PATIENCE, stream.read_u16()).await??;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(began.elapsed())
}
