//! Listens on UDP and TCP, and answers nobody outside the cluster: an open resolver is a weapon.
//!
//! What the server knows itself it answers at once and waits for nobody. What others know takes turns of its own, so that
//! resolvers outside that are slow or silent keep no name of the cluster from anybody.

mod answering;
mod udp;

use crate::metrics::Metrics;
use crate::views::{ActiveView, Views};
use crate::wire;
use crate::zone::{Directory, Zone};
use answering::{encode, name_of};
use coracle_listen::{Activity, Limits, Places, Turns};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::Name;
use ipnet::IpNet;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longest question over UDP that is read.
const LARGEST_QUESTION: usize = 4096;
/// Questions that wait for resolvers outside at once, and of one client; more are dropped and asked again by their
/// resolvers. Each is a socket.
const OUTSIDE: (usize, usize) = (1024, 128);
/// Questions over UDP that a client may ask in a second. A busy node asks some hundreds; a loop in a pod asks as many as
/// it gets answers to, and would keep the socket's queue full: from then on it is thinned out before the queue.
const A_SECOND: u32 = 5_000;
/// TCP connections at once. When they are all taken, the oldest goes of the client that has most.
const CONNECTIONS: usize = 512;
/// A TCP connection without a question, or whose client takes no answer, for so long is closed (RFC 7766 asks for seconds).
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The whole life of a TCP connection; who has more to ask comes again.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(120);
/// Largest answer over TCP: its length stands in two bytes.
const LARGEST_TCP: usize = 65_535;

/// Addresses by node.
pub type Nodes = Arc<RwLock<HashMap<String, Vec<IpAddr>>>>;

pub struct Server<D> {
    pub zone: Zone<D>,
    pub views: Arc<RwLock<Arc<Views>>>,
    pub metrics: Arc<Metrics>,
    /// Who may ask.
    pub clients: Vec<IpNet>,
    /// And these, which come and go: the nodes, under whose addresses the questions of their pods arrive.
    pub nodes: Nodes,
    outside: Arc<Turns<IpAddr>>,
    connections: Arc<Places>,
    /// [`A_SECOND`].
    a_second: u32,
    /// [`IDLE_TIMEOUT`].
    idle: Duration,
    /// How far the order of addresses has been turned.
    turned: AtomicUsize,
}

/// What is to be done for an answer.
enum Next {
    /// Nothing any more.
    Send(Vec<u8>),
    /// Send this, and ask anew for the next who asks.
    SendOld(Vec<u8>, Box<Outside>),
    Outside(Box<Outside>),
}

/// A question that others have to be asked for.
struct Outside {
    request: Message,
    question: Vec<u8>,
    view: Arc<ActiveView>,
    /// The answer so far, and the name that it leads to.
    follow: Option<(Box<Message>, Name)>,
    begun: Instant,
}

impl<D: Directory + Send + Sync + 'static> Server<D> {
    pub fn new(zone: Zone<D>, metrics: Arc<Metrics>, clients: Vec<IpNet>, nodes: Nodes) -> Arc<Self> {
        Arc::new(Self {
            zone,
            views: Arc::default(),
            metrics,
            clients,
            nodes,
            outside: Turns::new(OUTSIDE.0, OUTSIDE.1),
            connections: Places::new(CONNECTIONS, CONNECTIONS),
            a_second: A_SECOND,
            idle: IDLE_TIMEOUT,
            turned: AtomicUsize::new(0),
        })
    }

    pub fn may_ask(&self, client: IpAddr) -> bool {
        client.is_loopback()
            || self.clients.iter().any(|net| net.contains(&client))
            || self.nodes.read().values().any(|addresses| addresses.contains(&client))
    }

    pub async fn serve_tcp(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        loop {
            let (stream, client) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    self.connections.give_way();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let ip = client.ip().to_canonical();
            if !self.may_ask(ip) {
                continue;
            }
            let activity = Arc::new(Activity::new(Limits { head: MAX_CONNECTION_AGE, ..Limits::default() }));
            let Some(place) = self.connections.take(ip, &activity) else { continue };
            let server = self.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = server.talk(stream, ip) => {}
                    why = activity.ended() => tracing::debug!(%client, %why, "a connection was ended"),
                }
                drop(place);
            });
        }
    }

    /// Asks anew for what was answered from a cache beyond its time.
    fn refresh(self: &Arc<Self>, outside: Box<Outside>, client: IpAddr) {
        let Some(turn) = self.outside.take(client) else { return };
        let server = self.clone();
        tokio::spawn(async move {
            let name = name_of(&outside.request);
            drop(
                server
                    .answer_of_others(&outside.view, &outside.request, &name, &outside.question, false)
                    .await,
            );
            drop(turn);
        });
    }

    async fn talk(self: &Arc<Self>, mut stream: TcpStream, client: IpAddr) {
        loop {
            let question = tokio::time::timeout(self.idle, async {
                let length = stream.read_u16().await?;
                let mut question = vec![0; usize::from(length)];
                stream.read_exact(&mut question).await?;
                Ok::<_, std::io::Error>(question)
            });
            let Ok(Ok(question)) = question.await else { return };
            let Some(answer) = self.answer_tcp(&question, client).await else { return };
            let Ok(length) = u16::try_from(answer.len()) else { return };
            let framed = [&length.to_be_bytes()[..], &answer].concat();
            let sent = tokio::time::timeout(self.idle, stream.write_all(&framed));
            if !matches!(sent.await, Ok(Ok(()))) {
                return tracing::debug!(%client, "answer not taken");
            }
        }
    }

    async fn answer_tcp(self: &Arc<Self>, question: &[u8], client: IpAddr) -> Option<Vec<u8>> {
        match self.begin(question, client, true)? {
            Next::Send(answer) => {
                // Who asks without a pause lets others in between.
                tokio::task::yield_now().await;
                Some(answer)
            }
            Next::SendOld(answer, outside) => {
                self.refresh(outside, client);
                Some(answer)
            }
            Next::Outside(outside) => match self.outside.take(client) {
                Some(_turn) => self.ask(*outside, true).await,
                None => {
                    encode(&outside.request, wire::response(&outside.request, ResponseCode::ServFail), true)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
