//! Real sockets under limits of fractions of a second.

mod unread;
mod untaken;

use super::*;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const HEAD: Duration = Duration::from_millis(300);
const IDLE: Duration = Duration::from_millis(600);
const LARGE: usize = 10_000;

/// `/wait` is a watch without events, `/much` an answer without end, `/text` a short one, `/slow` one of [`LARGE`] bytes
/// that comes late, everything else is empty.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<End>>>);

impl Front for Answers {
    type Peer = SocketAddr;

    fn peer(&self, address: SocketAddr, _: Option<&[CertificateDer<'static>]>) -> SocketAddr {
        address
    }

    async fn answer(self, _: SocketAddr, request: Request<Body>) -> Response<Body> {
        match request.uri().path() {
            "/wait" => Response::new(Body::new(Waits)),
            "/much" => Response::new(Body::new(Much)),
            "/slow" => {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Response::new(Body::from(vec![b'x'; LARGE]))
            }
            "/text" => Response::new(Body::from("a text")),
            _ => Response::new(Body::empty()),
        }
    }

    fn ended(&self, why: End) {
        self.0.lock().push(why);
    }
}

struct Waits;

impl http_body::Body for Waits {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Pending
    }
}

struct Much;

impl http_body::Body for Much {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 16_384])))))
    }
}

async fn server(places: Arc<Places>) -> (SocketAddr, Answers) {
    server_with(places, Limits { head: HEAD, idle: IDLE, stuck: IDLE, ..Limits::default() }).await
}

async fn server_with(places: Arc<Places>, limits: Limits) -> (SocketAddr, Answers) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let settings = Settings { limits, places, tls: None, drain: Duration::ZERO };
    let answers = Answers::default();
    tokio::spawn(serve(answers.clone(), settings, listener, CancellationToken::new()));
    (address, answers)
}

/// Reads to the end; how long that took.
async fn until_end(stream: &mut TcpStream) -> Duration {
    let began = Instant::now();
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    began.elapsed()
}

#[tokio::test]
async fn who_says_nothing_and_who_says_little_is_ended() {
    let (address, answers) = server(Places::new(10, 10)).await;
    let mut silent = TcpStream::connect(address).await.expect("connected");
    assert!(until_end(&mut silent).await >= HEAD - Duration::from_millis(50));
    for begun in ["PRI * HTTP", "GET / HTTP/1.1\r\nx-slow: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut slow = TcpStream::connect(address).await.expect("connected");
        slow.write_all(begun.as_bytes()).await.expect("sent");
        until_end(&mut slow).await;
    }
    assert_eq!(*answers.0.lock(), [End::Head; 4]);
}

#[tokio::test]
async fn idle_connections_of_both_protocols_end_and_waiting_ones_do_not() {
    let (address, answers) = server(Places::new(10, 10)).await;
    let mut http1 = TcpStream::connect(address).await.expect("connected");
    http1.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    assert!(until_end(&mut http1).await >= IDLE - Duration::from_millis(50));
    let stream = TcpStream::connect(address).await.expect("connected");
    let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let request =
        |path: &str| Request::get(format!("http://a{path}")).body(Body::empty()).expect("a request");
    let watch = sender.send_request(request("/wait")).await.expect("a watch");
    tokio::time::sleep(IDLE * 3).await;
    assert_eq!(sender.send_request(request("/")).await.expect("an answer").status(), StatusCode::OK);
    drop(watch);
    connection.await.expect("no panic").expect("an orderly end");
    assert_eq!(*answers.0.lock(), [End::Idle, End::Idle]);
}

#[tokio::test]
async fn who_takes_nothing_of_an_answer_is_ended() {
    let (address, answers) = server(Places::new(10, 10)).await;
    let mut deaf = TcpStream::connect(address).await.expect("connected");
    deaf.write_all(b"GET /much HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let began = Instant::now();
    while answers.0.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(began.elapsed() < Duration::from_secs(20), "still there");
    }
    assert_eq!(*answers.0.lock(), [End::Stuck]);
}

#[tokio::test]
async fn strangers_give_way_to_those_who_come() {
    let (address, answers) = server(Places::new(10, 3)).await;
    let mut crowd = Vec::new();
    for _ in 0..6 {
        crowd.push(TcpStream::connect(address).await.expect("connected"));
    }
    let began = Instant::now();
    until_end(&mut crowd[0]).await;
    assert!(began.elapsed() < HEAD, "it went by time");
    let mut last = TcpStream::connect(address).await.expect("connected");
    last.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut status = [0; 12];
    last.read_exact(&mut status).await.expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 200");
    assert!(answers.0.lock().iter().all(|why| *why == End::Evicted));
}
