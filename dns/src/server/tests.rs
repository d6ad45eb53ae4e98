//! What one client can do to the others.

use super::*;
use crate::configuration::{Configuration, Given};
use crate::zone::tests::{Fake, zone};
use hickory_proto::op::{Edns, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use tokio::net::UdpSocket;

mod configured;

const OURS: &str = "db.default.svc.cluster.local.";

/// A running server, and a resolver outside that hears everything and says nothing.
struct Running {
    server: Arc<Server<Fake>>,
    udp: SocketAddr,
    tcp: SocketAddr,
    _silent: UdpSocket,
}

const CLUSTER: &str =
    "kubernetes cluster.local in-addr.arpa ip6.arpa {\npods insecure\nfallthrough in-addr.arpa ip6.arpa\n}";

/// A server of a Corefile's block for all names, and of more blocks behind it.
fn server(block: &str) -> Server<Fake> {
    let server = Server::new(zone(), Arc::default(), Vec::new(), Nodes::default());
    let given = Given { domain: "cluster.local".to_owned() };
    let configuration = Configuration::read(&format!(".:53 {{\n{block}\n}}\n"), &given).expect("a Corefile");
    *server.views.write() = Arc::new(Views::new(&configuration, &BTreeSet::new(), &server.metrics));
    Arc::into_inner(server).expect("the only one")
}

/// Questions a second of one client: what a build without optimisation answers on a busy machine.
const PACE: u32 = 200;

async fn running(idle: Duration) -> Running {
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("a resolver");
    let port = silent.local_addr().expect("its address").port();
    let mut server = server(&format!("{CLUSTER}\nforward . 127.0.0.1:{port}"));
    server.idle = idle;
    server.a_second = PACE;
    let server = Arc::new(server);
    let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (udp_at, tcp_at) = (udp.local_addr().expect("bound"), tcp.local_addr().expect("bound"));
    tokio::spawn(server.clone().serve_udp(udp));
    tokio::spawn(server.clone().serve_tcp(tcp));
    Running { server, udp: udp_at, tcp: tcp_at, _silent: silent }
}

fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    message.to_vec().expect("a message")
}

impl Running {
    /// How long the answer about a name of the cluster takes, by UDP from this address.
    async fn ask_from(&self, client: &str) -> Duration {
        let socket = UdpSocket::bind((client, 0)).await.expect("a socket");
        socket.connect(self.udp).await.expect("connected");
        let (began, mut buffer) = (Instant::now(), [0; 512]);
        let asked = question(OURS, RecordType::A);
        // As resolvers do, which know that datagrams get lost.
        loop {
            socket.send(&asked).await.expect("sent");
            let wait = tokio::time::timeout(Duration::from_secs(1), socket.recv(&mut buffer));
            if let Ok(Ok(length)) = wait.await {
                let answer = Message::from_vec(&buffer[..length]).expect("an answer");
                assert_eq!(answer.metadata.message_type, MessageType::Response);
                assert_eq!(answer.answers.len(), 2);
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(10), "no answer");
        }
    }

    async fn connect_from(&self, client: &str) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(client.parse().expect("an address"), 0)).expect("bound");
        socket.connect(self.tcp).await.expect("connected")
    }

    /// Whether a question by TCP is answered.
    async fn is_answered(stream: &mut TcpStream) -> bool {
        let asked = question(OURS, RecordType::A);
        let framed = [&u16::try_from(asked.len()).expect("short").to_be_bytes()[..], &asked].concat();
        stream.write_all(&framed).await.is_ok() && stream.read_u16().await.is_ok()
    }
}

#[tokio::test]
async fn silent_resolvers_outside_hold_up_no_name_of_the_cluster() {
    let running = running(IDLE_TIMEOUT).await;
    let flood = UdpSocket::bind("127.0.0.2:0").await.expect("a socket");
    flood.connect(running.udp).await.expect("connected");
    for n in 0..2_000 {
        flood.send(&question(&format!("n{n}.example.com."), RecordType::A)).await.expect("sent");
        if n % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    running.ask_from("127.0.0.2").await;
    assert!(running.ask_from("127.0.0.3").await < Duration::from_millis(500));
    // The flood has its turns, and another client has turns left.
    let turns = running.server.outside.clone();
    assert!(turns.take(IpAddr::from([127, 0, 0, 2])).is_none());
    assert!(turns.take(IpAddr::from([127, 0, 0, 3])).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_questions_leaves_others_their_answers() {
    let running = running(IDLE_TIMEOUT).await;
    let flood = UdpSocket::bind("127.0.0.2:0").await.expect("a socket");
    let target = running.udp;
    let flooding = tokio::spawn(async move {
        let asked = question(OURS, RecordType::A);
        loop {
            // It takes no answers, so its own queue overflows.
            flood.send_to(&asked, target).await.expect("sent");
            tokio::task::consume_budget().await;
        }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut lost = 0;
    for _ in 0..50 {
        lost += usize::from(running.ask_from("127.0.0.3").await >= Duration::from_secs(1));
    }
    flooding.abort();
    // A machine that stands still for a moment loses some, a queue that is always full loses most.
    assert!(lost <= 10, "{lost} of 50 questions were lost");
}

#[tokio::test]
async fn the_connections_of_one_client_are_no_others() {
    let running = running(IDLE_TIMEOUT).await;
    let mut held = vec![running.connect_from("127.0.0.4").await];
    assert!(Running::is_answered(&mut held[0]).await);
    for _ in 0..CONNECTIONS + 50 {
        held.push(running.connect_from("127.0.0.2").await);
    }
    let mut honest = running.connect_from("127.0.0.3").await;
    assert!(Running::is_answered(&mut honest).await);
    // Who was there before still is, and of the crowd the oldest went.
    assert!(Running::is_answered(&mut held[0]).await);
    assert!(!Running::is_answered(&mut held[1]).await);
    let last = held.last_mut().expect("many");
    assert!(Running::is_answered(last).await);
}

#[tokio::test]
async fn connections_end_when_nothing_is_asked_or_no_answer_is_taken() {
    let running = running(Duration::from_millis(300)).await;
    let mut idle = running.connect_from("127.0.0.2").await;
    assert_eq!(idle.read(&mut [0]).await.expect("an end"), 0);
    // It has little room for answers, so that the server soon cannot write any.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    let mut deaf = socket.connect(running.tcp).await.expect("connected");
    let asked = question(OURS, RecordType::A);
    let framed = [&u16::try_from(asked.len()).expect("short").to_be_bytes()[..], &asked].concat();
    let many = framed.repeat(100_000);
    // Its questions go on until the server, whose answers nobody takes, reads no more; then it is cut off.
    let sent =
        tokio::time::timeout(Duration::from_secs(60), async { while deaf.write_all(&many).await.is_ok() {} });
    sent.await.expect("the connection was cut off");
}
