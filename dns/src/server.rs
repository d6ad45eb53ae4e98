//! Listens on UDP and TCP, and answers nobody outside the cluster: an open resolver is a weapon.

use crate::forward::Forwarder;
use crate::wire::{self, Reply};
use crate::zone::{Directory, Zone};
use hickory_proto::op::{Message, Query, ResponseCode};
use ipnet::IpNet;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// Longest question over UDP that is read.
const LARGEST_QUESTION: usize = 4096;
/// Questions being answered at once; more are dropped and asked again by their resolvers.
const AT_ONCE: usize = 1000;
/// A TCP connection without a question for so long is closed (RFC 7766 asks for seconds).
const IDLE: Duration = Duration::from_secs(10);
/// Largest answer over TCP: its length stands in two bytes.
const LARGEST_TCP: usize = 65_535;

/// Addresses by node.
pub type Nodes = Arc<RwLock<HashMap<String, Vec<IpAddr>>>>;

pub struct Server<D> {
    pub zone: Zone<D>,
    pub forwarder: Forwarder,
    /// Who may ask.
    pub clients: Vec<IpNet>,
    /// And these, which come and go: the nodes, under whose addresses the questions of their pods arrive.
    pub nodes: Nodes,
    slots: Arc<Semaphore>,
}

impl<D: Directory + Send + Sync + 'static> Server<D> {
    pub fn new(zone: Zone<D>, forwarder: Forwarder, clients: Vec<IpNet>, nodes: Nodes) -> Arc<Self> {
        Arc::new(Self { zone, forwarder, clients, nodes, slots: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    fn may_ask(&self, client: IpAddr) -> bool {
        client.is_loopback()
            || self.clients.iter().any(|net| net.contains(&client))
            || self.nodes.read().values().any(|addresses| addresses.contains(&client))
    }

    pub async fn serve_udp(self: Arc<Self>, socket: UdpSocket) -> std::io::Result<()> {
        let socket = Arc::new(socket);
        let mut buffer = vec![0; LARGEST_QUESTION];
        loop {
            let (length, client) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // The kernel hands the ICMP errors of earlier answers to the next receive.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let Ok(slot) = self.slots.clone().try_acquire_owned() else { continue };
            if !self.may_ask(client.ip()) {
                continue;
            }
            let (server, socket, question) = (self.clone(), socket.clone(), buffer[..length].to_vec());
            tokio::spawn(async move {
                if let Some(answer) = server.answer(&question, false).await {
                    // A client that is gone asks no more.
                    let _ = socket.send_to(&answer, client).await;
                }
                drop(slot);
            });
        }
    }

    pub async fn serve_tcp(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        loop {
            let (stream, client) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(slot) = self.slots.clone().try_acquire_owned() else { continue };
            if self.may_ask(client.ip()) {
                let server = self.clone();
                tokio::spawn(async move {
                    server.talk(stream, client).await;
                    drop(slot);
                });
            }
        }
    }

    async fn talk(&self, mut stream: TcpStream, client: SocketAddr) {
        loop {
            let question = tokio::time::timeout(IDLE, async {
                let length = stream.read_u16().await?;
                let mut question = vec![0; usize::from(length)];
                stream.read_exact(&mut question).await?;
                Ok::<_, std::io::Error>(question)
            });
            let Ok(Ok(question)) = question.await else { return };
            let Some(answer) = self.answer(&question, true).await else { return };
            let Ok(length) = u16::try_from(answer.len()) else { return };
            let framed = [&length.to_be_bytes()[..], &answer].concat();
            if let Err(error) = stream.write_all(&framed).await {
                return tracing::debug!(%client, %error, "answer not sent");
            }
        }
    }

    /// The answer to a whole message; none for what is no question at all.
    async fn answer(&self, question: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let request = Message::from_vec(question).ok()?;
        let message = match wire::reply(&self.zone, &request) {
            Reply::Answer(message) => *message,
            Reply::Follow { answer, target } => self.follow(*answer, target, tcp).await,
            Reply::Forward => match self.forwarder.ask(question, tcp).await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    tracing::debug!(%error, "not forwarded");
                    wire::response(&request, ResponseCode::ServFail)
                }
            },
        };
        let limit = if tcp { LARGEST_TCP } else { wire::udp_limit(&request) };
        let bytes = message.to_vec().ok()?;
        if bytes.len() <= limit { Some(bytes) } else { message.truncate().to_vec().ok() }
    }

    /// Puts the addresses of an alias' target behind the alias, as far as others know them.
    async fn follow(&self, mut answer: Message, target: hickory_proto::rr::Name, tcp: bool) -> Message {
        let Some(kind) = answer.queries.first().map(Query::query_type) else { return answer };
        let mut question = Message::query();
        question.metadata.recursion_desired = true;
        question.add_query(Query::query(target, kind));
        let asked = match question.to_vec() {
            Ok(bytes) => self.forwarder.ask(&bytes, tcp).await.ok(),
            Err(_) => None,
        };
        match asked.and_then(|bytes| Message::from_vec(&bytes).ok()) {
            Some(found) => wire::join(&mut answer, found),
            // Nobody knows what the alias stands for.
            None => answer.metadata.response_code = ResponseCode::ServFail,
        }
        answer
    }
}
