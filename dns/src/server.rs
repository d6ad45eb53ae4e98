//! Listens on UDP and TCP, and answers nobody outside the cluster: an open resolver is a weapon.
//!
//! What the server knows itself it answers at once and waits for nobody. What others know takes turns of its own, so that
//! resolvers outside that are slow or silent keep no name of the cluster from anybody.

use crate::cache::{Key, Known};
use crate::configuration::{PodNames, is_below, normal};
use crate::forward::{ForwardError, code_name};
use crate::metrics::{Metric, Metrics, SERVER};
use crate::pace::Pace;
use crate::socket_filter;
use crate::thinning::Thinning;
use crate::views::{ActiveView, Views};
use crate::wire::{self, Reply};
use crate::zone::{Directory, Zone};
use coracle_listen::{Activity, Limits, Places, Turns};
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};
use socket2::SockRef;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::MissedTickBehavior;

/// Longest question over UDP that is read.
const LARGEST_QUESTION: usize = 4096;
/// Questions that wait for resolvers outside at once, and of one client; more are dropped and asked again by their
/// resolvers. Each is a socket.
const OUTSIDE: (usize, usize) = (1024, 128);
/// Questions over UDP that a client may ask in a second. A busy node asks some hundreds; a loop in a pod asks as many as
/// it gets answers to, and would keep the socket's queue full: from then on it is thinned out before the queue.
const A_SECOND: u32 = 5_000;
/// How often the rate of those who asked too much is measured.
const MEASURE_INTERVAL: Duration = Duration::from_millis(100);
/// TCP connections at once. When they are all taken, the oldest goes of the client that has most.
const CONNECTIONS: usize = 512;
/// A TCP connection without a question, or whose client takes no answer, for so long is closed (RFC 7766 asks for seconds).
const IDLE: Duration = Duration::from_secs(10);
/// The whole life of a TCP connection; who has more to ask comes again.
const LONGEST: Duration = Duration::from_secs(120);
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
    pace: Mutex<Pace>,
    /// [`A_SECOND`].
    a_second: u32,
    /// [`IDLE`].
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
            pace: Mutex::new(Pace::new(A_SECOND)),
            a_second: A_SECOND,
            idle: IDLE,
            turned: AtomicUsize::new(0),
        })
    }

    pub fn may_ask(&self, client: IpAddr) -> bool {
        client.is_loopback()
            || self.clients.iter().any(|net| net.contains(&client))
            || self.nodes.read().values().any(|addresses| addresses.contains(&client))
    }

    pub async fn serve_udp(self: Arc<Self>, socket: UdpSocket) -> std::io::Result<()> {
        let socket = Arc::new(socket);
        let mut thinning = Thinning::new(self.a_second, Instant::now());
        let mut buffer = vec![0; LARGEST_QUESTION];
        let mut measure = tokio::time::interval(MEASURE_INTERVAL);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let received = tokio::select! {
                _ = measure.tick(), if !thinning.is_empty() => {
                    thinning.measure(Instant::now());
                    attach(&socket, &thinning);
                    continue;
                }
                received = socket.recv_from(&mut buffer) => received,
            };
            let (length, client) = match received {
                Ok(received) => received,
                // The kernel hands the ICMP errors of earlier answers to the next receive.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let (ip, now) = (client.ip().to_canonical(), Instant::now());
            if !self.may_ask(ip) {
                continue;
            }
            let allowed = self.pace.lock().allows(ip, 1, now);
            if thinning.count(ip, !allowed, now) {
                attach(&socket, &thinning);
                measure.reset();
            }
            if allowed {
                self.answer_udp(&socket, client, &buffer[..length]);
            }
        }
    }

    /// Never waits: an answer that the socket has no room for is lost, as any other datagram may be.
    fn answer_udp(self: &Arc<Self>, socket: &Arc<UdpSocket>, client: SocketAddr, question: &[u8]) {
        match self.begin(question, client.ip().to_canonical(), false) {
            // A client that is gone asks no more.
            Some(Next::Send(answer)) => drop(socket.try_send_to(&answer, client)),
            Some(Next::SendOld(answer, outside)) => {
                drop(socket.try_send_to(&answer, client));
                self.refresh(outside, client.ip().to_canonical());
            }
            Some(Next::Outside(outside)) => {
                let Some(turn) = self.outside.take(client.ip().to_canonical()) else { return };
                let (server, socket) = (self.clone(), socket.clone());
                tokio::spawn(async move {
                    if let Some(answer) = server.ask(*outside, false).await {
                        let _ = socket.send_to(&answer, client).await;
                    }
                    drop(turn);
                });
            }
            None => {}
        }
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
            let activity = Arc::new(Activity::new(Limits { head: LONGEST, ..Limits::default() }));
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
            drop(server.from_others(&outside.view, &outside.request, &name, &outside.question, false).await);
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

    /// What the server itself says to a whole message; nothing to what is no question at all.
    fn begin(&self, question: &[u8], client: IpAddr, tcp: bool) -> Option<Next> {
        let begun = Instant::now();
        let request = Message::from_vec(question).ok()?;
        let name = name_of(&request);
        let views = self.views.read().clone();
        let Some(view) = views.of(&name) else {
            return encode(&request, wire::response(&request, ResponseCode::Refused), tcp).map(Next::Send);
        };
        self.count(view, &request, client, tcp);
        if view.settings.log {
            tracing::info!(%client, %name, "asked");
        }
        let (plugin, message) = match self.from_own(view, &request, &name) {
            Own::Answer(plugin, message) => (plugin, message),
            Own::Follow { answer, target } => {
                let outside = Outside {
                    question: question.to_vec(),
                    view: views.of(&normal(&target.to_ascii())).unwrap_or(view).clone(),
                    request,
                    follow: Some((answer, target)),
                    begun,
                };
                return Some(Next::Outside(Box::new(outside)));
            }
            Own::Others => return self.begin_outside(view, request, &name, question, tcp, begun),
        };
        self.counted(view, message.metadata.response_code.low(), plugin, begun);
        Some(Next::Send(encode(&request, message, tcp)?))
    }

    /// What is known of the names of others, or that they have to be asked.
    fn begin_outside(
        &self,
        view: &Arc<ActiveView>,
        request: Message,
        name: &str,
        question: &[u8],
        tcp: bool,
        begun: Instant,
    ) -> Option<Next> {
        if view.forwarder_of(name).is_none() {
            self.counted(view, ResponseCode::Refused.low(), "", begun);
            return encode(&request, wire::response(&request, ResponseCode::Refused), tcp).map(Next::Send);
        }
        let known =
            view.cache.as_ref().zip(Key::of(&request)).map(|(cache, key)| cache.get(&key, question, begun));
        let limit = limit(&request, tcp);
        let outside = || {
            Box::new(Outside {
                question: question.to_vec(),
                view: view.clone(),
                request,
                follow: None,
                begun,
            })
        };
        let labels = [SERVER, view.zone_label(), ""];
        match known {
            Some(Known::Fresh(answer)) => {
                let kind = if code_of(&answer) == 0 { "success" } else { "denial" };
                self.metrics.add(Metric::CacheHits, &[labels[0], kind, labels[1], labels[2]], 1);
                self.counted(view, code_of(&answer), "cache", begun);
                Some(Next::Send(shortened(answer, limit)))
            }
            Some(Known::Stale(answer)) => {
                self.metrics.add(Metric::CacheStale, &labels, 1);
                self.counted(view, code_of(&answer), "cache", begun);
                Some(Next::SendOld(shortened(answer, limit), outside()))
            }
            known => {
                if known.is_some() {
                    self.metrics.add(Metric::CacheMisses, &labels, 1);
                }
                Some(Next::Outside(outside()))
            }
        }
    }

    /// What `hosts` and `kubernetes` of a server block say.
    fn from_own(&self, view: &ActiveView, request: &Message, name: &str) -> Own {
        if let Some(hosts) = &view.settings.hosts
            && let Some(message) = wire::from_hosts(hosts, view.zone_label(), name, request)
        {
            return Own::Answer("hosts", message);
        }
        let Some(cluster) = &view.settings.cluster else { return Own::Others };
        let is_reverse = name.ends_with(".in-addr.arpa") || name.ends_with(".ip6.arpa");
        if is_reverse && !cluster.reverse {
            return Own::Others;
        }
        let goes_on = || cluster.fallthrough.iter().any(|zone| is_below(name, zone));
        let unknown = || {
            let mut message = wire::response(request, ResponseCode::NXDomain);
            wire::deny(&mut message, ResponseCode::NXDomain, &self.zone.domain);
            if goes_on() { Own::Others } else { Own::Answer("kubernetes", message) }
        };
        let is_pod = || is_below(name, &format!("pod.{}", self.zone.domain));
        if cluster.pods == PodNames::Disabled && is_pod() {
            return unknown();
        }
        match wire::reply(&self.zone, cluster.ttl, request) {
            Reply::Answer(message) => {
                let code = message.metadata.response_code;
                if code == ResponseCode::NXDomain && message.answers.is_empty() && goes_on() {
                    return Own::Others;
                }
                let mut message = *message;
                if view.settings.rotate {
                    turn(&mut message, self.turned.fetch_add(1, Ordering::Relaxed));
                }
                Own::Answer("kubernetes", message)
            }
            Reply::Follow { answer, target } => Own::Follow { answer, target },
            Reply::Forward if is_reverse => unknown(),
            Reply::Forward => Own::Others,
        }
    }

    /// The answer with the help of others.
    async fn ask(&self, outside: Outside, tcp: bool) -> Option<Vec<u8>> {
        let Outside { request, question, view, follow, begun } = outside;
        let limit = limit(&request, tcp);
        let answer = match follow {
            Some((answer, target)) => encode(&request, self.follow(&view, *answer, target, tcp).await, tcp),
            None => {
                let name = name_of(&request);
                self.from_others(&view, &request, &name, &question, tcp)
                    .await
                    .map(|answer| shortened(answer, limit))
            }
        }?;
        self.counted(&view, code_of(&answer), "forward", begun);
        Some(answer)
    }

    /// What others say to a question, or what they said once where they say nothing now.
    async fn from_others(
        &self,
        view: &ActiveView,
        request: &Message,
        name: &str,
        question: &[u8],
        tcp: bool,
    ) -> Option<Vec<u8>> {
        let kept = view.cache.as_ref().zip(Key::of(request));
        let asked = match view.forwarder_of(name) {
            Some(forwarder) => forwarder.ask(question, tcp).await,
            None => Err(ForwardError::NoResolver),
        };
        if let (Some((cache, key)), Ok(answer)) = (&kept, &asked) {
            cache.put(key.clone(), answer, Instant::now());
        }
        let answer = asked.inspect_err(|error| {
            if view.settings.errors {
                tracing::warn!(%name, %error, "a name outside of the cluster was not resolved");
            } else {
                tracing::debug!(%name, %error, "not forwarded");
            }
        });
        let failed = answer.as_ref().map_or(true, |answer| code_of(answer) == ResponseCode::ServFail.low());
        if let Some((cache, key)) = kept.filter(|_| failed)
            && let Some(old) = cache.stale(&key, question, Instant::now())
        {
            self.metrics.add(Metric::CacheStale, &[SERVER, view.zone_label(), ""], 1);
            return Some(old);
        }
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                let too_many = matches!(error, ForwardError::TooMany(_));
                let code = if too_many { ResponseCode::Refused } else { ResponseCode::ServFail };
                encode(request, wire::response(request, code), tcp)
            }
        }
    }

    /// Puts the addresses of an alias' target behind the alias, as far as others know them.
    async fn follow(&self, view: &ActiveView, mut answer: Message, target: Name, tcp: bool) -> Message {
        let Some(kind) = answer.queries.first().map(Query::query_type) else { return answer };
        let name = normal(&target.to_ascii());
        let mut question = Message::query();
        question.metadata.recursion_desired = true;
        question.add_query(Query::query(target, kind));
        let asked = match question.to_vec() {
            Ok(bytes) => match self.known_of(view, &question, &bytes) {
                Some(known) => Some(known),
                None => self.from_others(view, &question, &name, &bytes, tcp).await,
            },
            Err(_) => None,
        };
        match asked.and_then(|bytes| Message::from_vec(&bytes).ok()) {
            Some(found) => wire::join(&mut answer, found),
            // Nobody knows what the alias stands for.
            None => answer.metadata.response_code = ResponseCode::ServFail,
        }
        answer
    }

    fn known_of(&self, view: &ActiveView, request: &Message, question: &[u8]) -> Option<Vec<u8>> {
        match view.cache.as_ref()?.get(&Key::of(request)?, question, Instant::now()) {
            Known::Fresh(answer) => Some(answer),
            _ => None,
        }
    }

    fn count(&self, view: &ActiveView, request: &Message, client: IpAddr, tcp: bool) {
        let kind = request.queries.first().map_or(RecordType::ZERO, Query::query_type);
        let kind = match kind {
            RecordType::A | RecordType::AAAA | RecordType::SRV | RecordType::PTR | RecordType::TXT => {
                kind.into()
            }
            RecordType::MX | RecordType::NS | RecordType::SOA | RecordType::CNAME | RecordType::HTTPS => {
                kind.into()
            }
            _ => "other",
        };
        let (protocol, family) = (if tcp { "tcp" } else { "udp" }, if client.is_ipv4() { "1" } else { "2" });
        self.metrics.add(Metric::Requests, &[SERVER, view.zone_label(), "", protocol, family, kind], 1);
    }

    fn counted(&self, view: &ActiveView, code: u8, plugin: &str, begun: Instant) {
        let zone = view.zone_label();
        self.metrics.add(Metric::Responses, &[SERVER, zone, "", code_name(code), plugin], 1);
        self.metrics.observe(Metric::Durations, &[SERVER, zone, ""], begun.elapsed());
    }
}

/// What a server block itself says.
enum Own {
    /// By the plugin of this name.
    Answer(&'static str, Message),
    Follow {
        answer: Box<Message>,
        target: Name,
    },
    Others,
}

/// In lower case, without the final dot; empty where there is not one question.
fn name_of(request: &Message) -> String {
    match request.queries.as_slice() {
        [question] => normal(&question.name().to_ascii()),
        _ => String::new(),
    }
}

fn code_of(answer: &[u8]) -> u8 {
    answer.get(3).map_or(0, |flags| flags & 15)
}

/// Turns the order of the answers, where all are addresses.
fn turn(message: &mut Message, by: usize) {
    let is_address = |kind| matches!(kind, RecordType::A | RecordType::AAAA);
    if message.answers.len() > 1 && message.answers.iter().all(|record| is_address(record.record_type())) {
        let by = by % message.answers.len();
        message.answers.rotate_left(by);
    }
}

fn limit(request: &Message, tcp: bool) -> usize {
    if tcp { LARGEST_TCP } else { wire::udp_limit(request) }
}

/// An answer of others, cut to its question where it is too long: the client asks again over TCP.
fn shortened(mut answer: Vec<u8>, limit: usize) -> Vec<u8> {
    if answer.len() <= limit {
        return answer;
    }
    let Some(end) = wire::end_of_question(&answer) else { return answer };
    answer.truncate(end);
    answer[2] |= 2;
    answer[6..12].fill(0);
    answer
}

/// Hands the shares to the kernel. Without that the flood is still answered at its pace alone.
fn attach(socket: &UdpSocket, thinning: &Thinning) {
    if let Err(error) = SockRef::from(socket).attach_filter(&socket_filter::program(&thinning.shares())) {
        tracing::debug!(%error, "no socket filter");
    }
}

/// The message as it is sent, cut where it is too long.
fn encode(request: &Message, message: Message, tcp: bool) -> Option<Vec<u8>> {
    let bytes = message.to_vec().ok()?;
    if bytes.len() <= limit(request, tcp) { Some(bytes) } else { message.truncate().to_vec().ok() }
}

#[cfg(test)]
mod tests;
