//! What the Corefile changes, over real sockets.

use super::*;
use crate::server::answering::{limit, shortened};
use tokio::sync::watch;

/// A resolver outside: answers every A question with one address, cut to nothing while it is told to be silent.
struct Outside {
    port: u16,
    asked: Arc<AtomicUsize>,
    speaks: watch::Sender<bool>,
}

async fn outside(ttl: u32, address: [u8; 4]) -> Outside {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a resolver");
    let port = socket.local_addr().expect("its address").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let (speaks, told) = watch::channel(true);
    let count = asked.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, Ordering::Relaxed);
            let request = Message::from_vec(&buffer[..length]).expect("a question");
            let mut answer = Message::response(request.metadata.id, OpCode::Query);
            answer.add_queries(request.queries.iter().cloned());
            let name = request.queries[0].name().clone();
            answer.add_answer(Record::from_rdata(name, ttl, RData::A(A(address.into()))));
            if *told.borrow() {
                let _ = socket.send_to(&answer.to_vec().expect("bytes"), from).await;
            }
        }
    });
    Outside { port, asked, speaks }
}

/// Runs the server, and gives where it listens.
async fn run(server: Server<Fake>) -> SocketAddr {
    let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let at = udp.local_addr().expect("bound");
    tokio::spawn(Arc::new(server).serve_udp(udp));
    at
}

async fn ask(server: SocketAddr, name: &str, kind: RecordType) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.send_to(&question(name, kind), server).await.expect("sent");
    let mut buffer = [0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(20), socket.recv(&mut buffer)).await;
    let length = read.expect("in time").expect("an answer");
    Message::from_vec(&buffer[..length]).expect("a message")
}

fn addresses(message: &Message) -> Vec<String> {
    message.answers.iter().map(|record| record.data.to_string()).collect()
}

fn code(message: &Message) -> ResponseCode {
    message.metadata.response_code
}

#[tokio::test]
async fn others_are_asked_once_while_their_answer_lasts_and_old_ones_bridge_their_silence() {
    let outside = outside(1, [192, 0, 2, 7]).await;
    let settings = format!(
        "{CLUSTER}\nforward . 127.0.0.1:{}\ncache 30 {{\nsuccess 100 30 1\nserve_stale 1h verify\n}}",
        outside.port
    );
    let server = run(server(&settings)).await;
    for name in ["www.example.org.", "WWW.example.org."] {
        let answer = ask(server, name, RecordType::A).await;
        assert_eq!(addresses(&answer), ["192.0.2.7"]);
        assert_eq!(answer.queries[0].name().to_ascii(), name);
    }
    assert_eq!(outside.asked.load(Ordering::Relaxed), 1);
    outside.speaks.send_replace(false);
    // Until the answer's second is over it is fresh, and then others are asked, who say nothing.
    let begun = Instant::now();
    while outside.asked.load(Ordering::Relaxed) == 1 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never grew old");
        let answer = ask(server, "www.example.org.", RecordType::A).await;
        assert_eq!(addresses(&answer), ["192.0.2.7"]);
        // Fewer a second than a client is left on the slowest machine: of a flood some are not answered.
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let unknown = ask(server, "new.example.org.", RecordType::A).await;
    assert_eq!(code(&unknown), ResponseCode::ServFail);
}

#[tokio::test]
async fn names_go_to_the_block_that_is_for_them() {
    let (whole, stub) = (outside(30, [192, 0, 2, 1]).await, outside(30, [192, 0, 2, 2]).await);
    let settings = format!(
        "{CLUSTER}\nhosts {{\n10.1.1.1 box.home\nfd00::7 box.home\nfallthrough\n}}\nforward . 127.0.0.1:{} {{\nexcept secret.test\n}}\n}}\ncorp.example:53 {{\nforward . 127.0.0.1:{}",
        whole.port, stub.port
    );
    let server = run(server(&settings)).await;
    for (name, expected) in [
        ("a.example.", "192.0.2.1"),
        ("a.corp.example.", "192.0.2.2"),
        ("corp.example.", "192.0.2.2"),
        ("box.home.", "10.1.1.1"),
    ] {
        assert_eq!(addresses(&ask(server, name, RecordType::A).await), [expected], "{name}");
    }
    assert_eq!(addresses(&ask(server, "box.home.", RecordType::AAAA).await), ["fd00::7"]);
    let back = ask(server, "1.1.1.10.in-addr.arpa.", RecordType::PTR).await;
    assert_eq!(addresses(&back), ["box.home."]);
    assert_eq!(code(&ask(server, "x.secret.test.", RecordType::A).await), ResponseCode::Refused);
    assert_eq!(addresses(&ask(server, OURS, RecordType::A).await).len(), 2);
    assert_eq!(
        code(&ask(server, "db.default.svc.cluster.local.corp.example.", RecordType::A).await),
        ResponseCode::NoError
    );
}

#[tokio::test]
async fn pods_reverse_names_and_unknown_names_are_as_configured() {
    let outside = outside(30, [192, 0, 2, 3]).await;
    let forward = format!("forward . 127.0.0.1:{}", outside.port);
    let strict = run(server(&format!("kubernetes cluster.local in-addr.arpa\n{forward}"))).await;
    for name in ["10-1-2-3.default.pod.cluster.local.", "none.default.svc.cluster.local."] {
        assert_eq!(code(&ask(strict, name, RecordType::A).await), ResponseCode::NXDomain, "{name}");
    }
    assert_eq!(code(&ask(strict, "9.9.9.10.in-addr.arpa.", RecordType::PTR).await), ResponseCode::NXDomain);
    assert_eq!(outside.asked.load(Ordering::Relaxed), 0);
    let open = format!("kubernetes cluster.local {{\npods insecure\nttl 60\nfallthrough\n}}\n{forward}");
    let open = run(server(&open)).await;
    assert_eq!(
        addresses(&ask(open, "10-1-2-3.default.pod.cluster.local.", RecordType::A).await),
        ["10.1.2.3"]
    );
    assert_eq!(ask(open, OURS, RecordType::A).await.answers[0].ttl, 60);
    assert_eq!(addresses(&ask(open, "none.default.svc.cluster.local.", RecordType::A).await), ["192.0.2.3"]);
    let none = run(server("kubernetes cluster.local")).await;
    assert_eq!(code(&ask(none, "example.org.", RecordType::A).await), ResponseCode::Refused);
}

#[tokio::test]
async fn addresses_of_a_service_take_turns() {
    let server = run(server(&format!("{CLUSTER}\nloadbalance"))).await;
    let first = addresses(&ask(server, OURS, RecordType::A).await);
    let second = addresses(&ask(server, OURS, RecordType::A).await);
    assert_eq!((first.len(), first.iter().rev().collect::<Vec<_>>()), (2, second.iter().collect::<Vec<_>>()));
}

#[tokio::test]
async fn what_is_too_long_for_udp_is_cut_and_whole_for_those_who_take_it() {
    let mut long = Message::response(7, OpCode::Query);
    let name = Name::from_ascii("long.example.org.").expect("a name");
    long.add_query(Query::query(name.clone(), RecordType::A));
    for n in 0..60 {
        long.add_answer(Record::from_rdata(name.clone(), 30, RData::A(A([10, 0, 0, n].into()))));
    }
    let bytes = long.to_vec().expect("bytes");
    assert!(bytes.len() > 512);
    let mut request = Message::query();
    request.add_query(Query::query(name, RecordType::A));
    let cut = Message::from_vec(&shortened(bytes.clone(), limit(&request, false))).expect("a message");
    assert!(cut.metadata.truncation && cut.answers.is_empty() && cut.queries.len() == 1);
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    request.set_edns(edns);
    assert_eq!(shortened(bytes.clone(), limit(&request, false)), bytes);
    assert_eq!(shortened(bytes.clone(), limit(&request, true)), bytes);
}
