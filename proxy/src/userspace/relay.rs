//! Carries bytes between clients and endpoints. What is under way goes on when a relay ends; only nothing new comes.

use super::balancer::Balancer;
use coracle_listen::Quiet;
use ipnet::IpNet;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How long each endpoint may take to accept; upstream's userspace proxy had these.
const CONNECT_TIMES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// A UDP client that is silent for so long is forgotten, and its answers no longer carried; the kernel forgets assured
/// flows after 120 s, others after 30 s.
const UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// So many clients of one UDP port are served at a time; each takes a file descriptor. Others' packets are dropped.
const UDP_CLIENTS: usize = 1000;
/// A TCP connection on which nothing moves for so long is ended, as the kernel forgets established ones that other modes
/// lead (nf_conntrack_tcp_timeout_established as kube-proxy sets it).
const TCP_IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest UDP packet.
const DATAGRAM: usize = 65_535;
/// Packets of a client that wait for its relay; more are dropped, as a full socket buffer drops them.
const UDP_QUEUE: usize = 64;

/// Descriptors of a TCP connection: one at the client's end and one at the endpoint's.
const OF_A_CONNECTION: u32 = 2;

/// Descriptors for whoever is relayed, of all Services of this process. Where they are used up, new clients are turned
/// away and those that are there go on; the process keeps the others for itself. Cloning shares it.
#[derive(Clone)]
pub struct Room {
    left: Arc<Semaphore>,
    told: Arc<AtomicBool>,
}

impl Default for Room {
    /// Half of what the process may open: 262,144 connections with the 1,048,576 that systemd gives.
    fn default() -> Self {
        Self::of(coracle_listen::descriptors() / 2)
    }
}

impl Room {
    fn of(descriptors: usize) -> Self {
        let left = Arc::new(Semaphore::new(descriptors.min(Semaphore::MAX_PERMITS)));
        Self { left, told: Arc::default() }
    }

    fn take(&self, descriptors: u32) -> Option<OwnedSemaphorePermit> {
        let taken = self.left.clone().try_acquire_many_owned(descriptors).ok();
        if taken.is_none() && !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "half of the files that this process may open are connections to Services: more are turned away, and this is said once"
            );
        }
        taken
    }
}

/// Who may use an entrance, and where it leads.
#[derive(Clone)]
pub struct Door {
    pub room: Room,
    pub balancer: Arc<Balancer>,
    /// To endpoints on this node only.
    pub local: bool,
    /// Only the Service's source ranges are let in.
    pub guarded: bool,
    /// The networks of addresses of ours that answer; empty: all.
    pub networks: Vec<IpNet>,
}

impl Door {
    fn admits(&self, client: SocketAddr) -> bool {
        !self.guarded || self.balancer.admits(client.ip().to_canonical())
    }

    fn answers_at(&self, own: SocketAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|net| net.contains(&own.ip().to_canonical()))
    }
}

/// Relays every connection until it is aborted.
pub async fn tcp(listener: TcpListener, door: Door) {
    loop {
        let client = coracle_listen::page::next(|| listener.accept()).await;
        tokio::spawn(carry(client, door.clone()));
    }
}

async fn carry(client: TcpStream, door: Door) {
    let (Ok(peer), Ok(own)) = (client.peer_addr(), client.local_addr()) else { return };
    if !door.admits(peer) || !door.answers_at(own) {
        return;
    }
    let Some(_room) = door.room.take(OF_A_CONNECTION) else { return };
    if let Some(mut endpoint) = connected(peer, &door).await {
        between(client, &mut endpoint).await;
    }
}

/// Until either side ends it, or nothing has moved for [`TCP_IDLE_TIMEOUT`].
async fn between(
    client: impl AsyncRead + AsyncWrite + Unpin,
    endpoint: &mut (impl AsyncRead + AsyncWrite + Unpin),
) {
    // Whatever moves goes through this end.
    let quiet = Quiet::default();
    let mut client = quiet.stamp(client);
    tokio::select! {
        // Either side may go at any time; the other one is told by the end of its connection.
        _ = tokio::io::copy_bidirectional(&mut client, endpoint) => {}
        () = quiet.lasts(TCP_IDLE_TIMEOUT) => {}
    }
}

/// A connection to an endpoint, whichever accepts first in turn.
async fn connected(client: SocketAddr, door: &Door) -> Option<TcpStream> {
    let mut tried = Vec::new();
    for time in CONNECT_TIMES {
        let endpoint = door.balancer.pick(client.ip().to_canonical(), door.local, &tried)?;
        match tokio::time::timeout(time, TcpStream::connect(endpoint)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%endpoint, %error, "endpoint not reached"),
            Err(_) => tracing::debug!(%endpoint, "endpoint does not accept"),
        }
        tried.push(endpoint);
    }
    None
}

/// Relays every packet until it is aborted.
pub async fn udp(socket: UdpSocket, door: Door) {
    let socket = Arc::new(socket);
    let mut clients: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // Mostly an ICMP message about an answer to a client that is gone.
                tracing::debug!(%error, "no packet");
                tokio::task::yield_now().await;
                continue;
            }
        };
        if !door.admits(client) {
            continue;
        }
        let packet = buffer[..length].to_vec();
        let packet = match clients.get(&client).map(|queue| queue.try_send(packet)) {
            Some(Ok(()) | Err(mpsc::error::TrySendError::Full(_))) => continue,
            Some(Err(mpsc::error::TrySendError::Closed(packet))) => packet,
            None => buffer[..length].to_vec(),
        };
        clients.retain(|_, queue| !queue.is_closed());
        let room = if clients.len() < UDP_CLIENTS { door.room.take(1) } else { None };
        let Some(room) = room else { continue };
        let (sender, receiver) = mpsc::channel(UDP_QUEUE);
        // There is room in a new queue.
        let _ = sender.try_send(packet);
        clients.insert(client, sender);
        let exchange = exchange(socket.clone(), client, receiver, door.clone());
        tokio::spawn(async move {
            exchange.await;
            drop(room);
        });
    }
}

/// One client's packets, until it has been silent for a time or its endpoint is gone.
async fn exchange(
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    mut packets: mpsc::Receiver<Vec<u8>>,
    door: Door,
) {
    let Some(endpoint) = door.balancer.pick(client.ip().to_canonical(), door.local, &[]) else { return };
    if let Err(error) = exchange_with(endpoint, &socket, client, &mut packets).await {
        tracing::debug!(%endpoint, %error, "a client's UDP packets are no longer carried");
    }
}

async fn exchange_with(
    endpoint: SocketAddr,
    socket: &UdpSocket,
    client: SocketAddr,
    packets: &mut mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    let any: SocketAddr = if endpoint.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let outer = UdpSocket::bind(any).await?;
    outer.connect(endpoint).await?;
    let mut buffer = vec![0; DATAGRAM];
    loop {
        tokio::select! {
            packet = packets.recv() => match packet {
                Some(packet) => drop(outer.send(&packet).await?),
                None => return Ok(()),
            },
            length = outer.recv(&mut buffer) => {
                let length = length?;
                socket.send_to(&buffer[..length], client).await?;
            }
            () = tokio::time::sleep(UDP_IDLE_TIMEOUT) => return Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
