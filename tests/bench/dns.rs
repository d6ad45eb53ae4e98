//! How soon names are answered while five thousand are asked for in a second: names of the cluster, and names from outside
//! that are cached.
//!
//! Forty clients ask over loopback, at moments that do not wait for answers. The node has no network here, so its DNS
//! answers at the first address of its range of pods, which is one of loopback's.

use crate::http::Call;
use crate::load::percentile;
use crate::server::{Server, free_port};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

const FLAGS: [&str; 6] =
    ["--disable", "kubelet,proxy,network", "--node-name", "bench", "--cluster-cidr", "127.1.0.0/16"];
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
const PORT: u16 = 10_053;
/// A client has its share, and no more.
const CLIENTS: u8 = 40;
/// All together, a second.
const RATE: u32 = 5_000;
/// An answer that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// Until the server answers at all.
const START: Duration = Duration::from_secs(20);

const OF_CLUSTER: &str = "kubernetes.default.svc.cluster.local";
const FROM_OUTSIDE: &str = "www.example.org";

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let server = Server::start(&settings.binary, &FLAGS).await?;
    let resolver = resolver(free_port()?).await?;
    prepare(&server, resolver).await?;
    let mut rows = Vec::new();
    for (what, name) in [("of the cluster", OF_CLUSTER), ("cached", FROM_OUTSIDE)] {
        answered(name).await?;
        let before = server.process().exact_cpu()?;
        let (mut times, lost) = ask_all(name, settings.time(10)).await?;
        let used = server.process().exact_cpu()?.saturating_sub(before);
        times.sort_unstable();
        let n = times.len();
        let each = used.as_secs_f64() * 1e6 / crate::load::count(n.max(1));
        let label = format!("DNS at 5,000 a second, {what}");
        rows.extend([
            figure(format!("{label}: p50"), percentile(&times, 50), "ms", n),
            figure(format!("{label}: p99"), percentile(&times, 99), "ms", n),
            figure(format!("{label}: CPU each"), each, "us", n),
            figure(format!("{label}: not answered"), crate::load::count(lost), "", n + lost),
        ]);
    }
    Ok(rows)
}

/// A node, so that there is an address to answer at, and a resolver that is not the machine's.
async fn prepare(server: &Server, resolver: SocketAddr) -> Result<(), Error> {
    let mut connection = server.target.connect().await?;
    let node = json!({ "metadata": { "name": "bench" } });
    connection.call(Call::post("/api/v1/nodes", node.to_string())).await?;
    let corefile =
        format!(".:53 {{\n    kubernetes cluster.local\n    forward . {resolver}\n    cache 300\n}}\n");
    let patch = json!({ "data": { "Corefile": corefile } }).to_string();
    connection.call(Call::merge_patch("/api/v1/namespaces/kube-system/configmaps/coredns", patch)).await?;
    Ok(())
}

/// A resolver outside: it has an address for every name.
async fn resolver(port: u16) -> Result<SocketAddr, Error> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = socket.local_addr()?;
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let Some(answer) = answer(&buffer[..length]) else { continue };
            if socket.send_to(&answer, from).await.is_err() {
                return;
            }
        }
    });
    Ok(address)
}

/// The question again, and an address for it: what comes after the question (EDNS) is left out.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let name = question.get(12..)?.iter().position(|length| *length == 0)?;
    let mut answer = question.get(..12 + name + 5)?.to_vec();
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 80]);
    Some(answer)
}

fn question(id: u16, name: &str) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap_or(63));
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// The identifier of an answer that has an address.
fn answered_id(packet: &[u8]) -> Option<u16> {
    let good = packet.len() > 12 && packet[3] & 15 == 0 && (packet[6], packet[7]) != (0, 0);
    good.then(|| u16::from_be_bytes([packet[0], packet[1]]))
}

async fn client(n: u8) -> Result<UdpSocket, Error> {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 1, 2, n), 0)).await?;
    socket.connect((SERVER, PORT)).await?;
    Ok(socket)
}

/// Waits until the name has an address.
async fn answered(name: &str) -> Result<(), Error> {
    let (socket, begun, mut buffer) = (client(255).await?, Instant::now(), [0; 512]);
    while begun.elapsed() < START {
        // Nobody may listen yet: that is told at the next call.
        let _ = socket.send(&question(1, name)).await;
        let received = tokio::time::timeout(Duration::from_millis(200), socket.recv(&mut buffer)).await;
        if let Ok(Ok(length)) = received
            && answered_id(&buffer[..length]).is_some()
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("{name} is not answered within {START:?}").into())
}

/// Times of all that were answered, and how many were not.
async fn ask_all(name: &'static str, time: Duration) -> Result<(Vec<Duration>, usize), Error> {
    let mut clients = JoinSet::new();
    for n in 1..=CLIENTS {
        let socket = client(n).await?;
        let every = Duration::from_secs(1) * u32::from(CLIENTS) / RATE;
        // Not all at one moment.
        let offset = every * u32::from(n) / u32::from(CLIENTS);
        clients.spawn(async move { ask(socket, name, (offset, every), time).await });
    }
    let (mut times, mut lost) = (Vec::new(), 0);
    while let Some(asked) = clients.join_next().await {
        let (answered, missing) = asked??;
        times.extend(answered);
        lost += missing;
    }
    Ok((times, lost))
}

async fn ask(
    socket: UdpSocket,
    name: &str,
    (offset, every): (Duration, Duration),
    time: Duration,
) -> Result<(Vec<Duration>, usize), Error> {
    let socket = Arc::new(socket);
    let amount = usize::try_from(time.as_nanos() / every.as_nanos())?;
    let receiving = tokio::spawn(receive(socket.clone(), amount));
    let mut sent = Vec::with_capacity(amount);
    let begun = tokio::time::Instant::now() + offset;
    for n in 0..amount {
        tokio::time::sleep_until(begun + every * u32::try_from(n)?).await;
        sent.push(Instant::now());
        socket.send(&question(u16::try_from(n % 65_536)?, name)).await?;
    }
    let received = receiving.await?;
    let times: Vec<_> =
        received.iter().filter_map(|(id, at)| Some(*at - *sent.get(usize::from(*id))?)).collect();
    let lost = amount.saturating_sub(times.len());
    Ok((times, lost))
}

async fn receive(socket: Arc<UdpSocket>, amount: usize) -> Vec<(u16, Instant)> {
    let (mut received, mut buffer) = (Vec::with_capacity(amount), [0; 512]);
    while received.len() < amount {
        match tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                received.extend(answered_id(&buffer[..length]).map(|id| (id, Instant::now())));
            }
            _ => break,
        }
    }
    received
}
