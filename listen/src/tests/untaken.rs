//! Answers that nobody takes.

use super::*;
use crate::unsent::Memory as _;
use hyper::client::conn::http2::Builder;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;

const EACH: usize = 64 << 10;
const ALL: usize = 200 << 10;
/// One frame of [`Much`].
const FRAME: usize = 16 << 10;

/// Who asks so often for what has no end and takes nothing of it, until it is dropped.
async fn deaf(address: SocketAddr, streams: usize) -> JoinSet<()> {
    let stream = TcpStream::connect(address).await.expect("connected");
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    for _ in 0..streams {
        let request = Request::get("http://a/much").body(Body::empty()).expect("a request");
        let answer = sender.send_request(request);
        tasks.spawn(async move {
            // Its body is held, as long as the connection is.
            if let Ok(answer) = answer.await {
                std::future::pending::<()>().await;
                drop(answer);
            }
        });
    }
    tasks
}

async fn is_answered(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(b"GET /text HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    assert!(answer.ends_with(b"a text"), "{}", String::from_utf8_lossy(&answer));
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
    }
}

#[tokio::test]
async fn what_nobody_takes_is_bounded_and_the_largest_holder_goes() {
    let places = Places::with_memory(20, 20, ALL);
    let limits = Limits { unsent_bytes: EACH, ..Limits::default() };
    let (address, answers) = server_with(places.clone(), limits).await;
    let held = || places.held.load(Ordering::Relaxed);
    let first = deaf(address, 100).await;
    until("the first connection is full", || held() >= EACH).await;
    is_answered(address).await;
    assert!(held() <= EACH + FRAME, "{} bytes", held());
    let mut others = Vec::new();
    for _ in 0..6 {
        others.push(deaf(address, 100).await);
    }
    // Whoever holds something waits, so that the last frame that is over the bound is the first of a connection.
    until("together they are full", || held() >= ALL).await;
    is_answered(address).await;
    assert!(held() <= ALL + 7 * FRAME, "{} bytes", held());
    // A second later they are known to take nothing, and the next who wants memory has it.
    until("one of them has gone", || {
        places.unsent(0);
        !answers.0.lock().is_empty()
    })
    .await;
    assert!(answers.0.lock().iter().all(|why| *why == End::Stuck));
    drop((first, others));
    until("everything is given back", || held() == 0).await;
}

#[tokio::test]
async fn answers_in_one_piece_are_bounded_however_many_were_begun() {
    let places = Places::with_memory(20, 20, 1 << 30);
    let limits = Limits { unsent_bytes: EACH, ..Limits::default() };
    let (address, _) = server_with(places.clone(), limits).await;
    let stream = TcpStream::connect(address).await.expect("connected");
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    // All of them wait before they have an answer.
    let ask = |_| {
        let mut sender = sender.clone();
        let request = Request::get("http://a/slow").body(Body::empty()).expect("a request");
        async move { sender.send_request(request).await.expect("an answer") }
    };
    let answers = futures::future::join_all((0..50).map(ask)).await;
    let of = |status| answers.iter().filter(|answer| answer.status() == status).count();
    let taken = EACH / LARGE + 1;
    assert_eq!((of(StatusCode::OK), of(StatusCode::TOO_MANY_REQUESTS)), (taken, 50 - taken));
    assert!(places.held.load(Ordering::Relaxed) <= EACH + LARGE);
}
