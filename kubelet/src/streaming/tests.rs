//! A runtime of our own behind the bridge, real WebSocket and SPDY clients in front of it.

use super::spdy::{self, Frame, Headers, Role, Sender};
use super::*;
use base64::Engine;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use hyper::body::Incoming;
use hyper::service::service_fn;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const STREAMS: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
const FAILURE: &str = r#"{"status":"Failure","message":"exit 7","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;

async fn http<F, Fut>(answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<Body>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(async move {
                http.serve_connection(TokioIo::new(stream), service).with_upgrades().await
            });
        }
    });
    address
}

/// Streams by type, with the header `port` where there is one.
type Open = HashMap<String, u32>;

/// A runtime that accepts `expected` streams and then acts.
async fn runtime<F, Fut>(version: &'static str, expected: usize, act: F) -> (String, oneshot::Receiver<()>)
where
    F: FnOnce(Sender, spdy::Receiver<tokio::io::ReadHalf<TokioIo<hyper::upgrade::Upgraded>>>, Open) -> Fut
        + Clone
        + Send
        + 'static,
    Fut: Future<Output = ()> + Send,
{
    let (done, finished) = oneshot::channel();
    let done = std::sync::Arc::new(parking_lot::Mutex::new(Some(done)));
    let address = http(move |mut request| {
        let (act, done) = (act.clone(), done.clone());
        async move {
            assert_eq!(request.headers()[header::UPGRADE], SPDY);
            assert_eq!(request.headers()[runtime::PROTOCOL], version);
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let (sender, mut receiver) =
                    spdy::session(TokioIo::new(upgrade.await.unwrap()), Role::Server).unwrap();
                let mut open = Open::new();
                while open.len() < expected {
                    match receiver.next().await.unwrap().unwrap() {
                        Frame::SynStream { id, headers, .. } => {
                            sender.accept(id).await.unwrap();
                            let port = headers.get("port").unwrap_or_default();
                            open.insert(format!("{}{port}", headers.get("streamtype").unwrap()), id);
                        }
                        Frame::Data { bytes, fin: true, .. } if bytes.is_empty() => {}
                        other => panic!("{other:?}"),
                    }
                }
                act(sender, receiver, open).await;
                let done = done.lock().take();
                done.unwrap().send(()).ok();
            });
            Response::builder()
                .status(StatusCode::SWITCHING_PROTOCOLS)
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, SPDY)
                .header(runtime::PROTOCOL, version)
                .body(Body::empty())
                .unwrap()
        }
    })
    .await;
    (format!("http://{address}/exec/token"), finished)
}

/// `serve` behind a real HTTP server.
async fn bridge(url: String, kind: Kind) -> SocketAddr {
    bridge_until(url, kind, Duration::ZERO).await
}

/// Likewise, but streams end when nothing moves on them for so long.
async fn bridge_until(url: String, kind: Kind, idle: Duration) -> SocketAddr {
    http(move |request| {
        let (url, kind) = (url.clone(), kind.clone());
        async move {
            let ends =
                Ends { stop: CancellationToken::new(), idle, refused: Box::pin(std::future::pending()) };
            serve(request.map(Body::new), &url, kind, ends).await.unwrap_or_else(|error| {
                Response::builder().status(error.status()).body(Body::from(error.to_string())).unwrap()
            })
        }
    })
    .await
}

async fn websocket(address: SocketAddr, protocol: &str) -> WebSocketStream<TcpStream> {
    let mut request = format!("ws://{address}/").into_client_request().unwrap();
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    let (socket, response) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let chosen = protocol.rsplit(',').next().unwrap().trim();
    assert_eq!(response.headers()[header::SEC_WEBSOCKET_PROTOCOL], chosen);
    socket
}

/// Everything the server sends until its close frame, by channel, and the close code.
async fn collect(socket: &mut WebSocketStream<TcpStream>) -> (HashMap<u8, Vec<u8>>, Option<CloseCode>) {
    let mut channels: HashMap<u8, Vec<u8>> = HashMap::new();
    while let Some(message) = socket.next().await {
        match message.unwrap() {
            Message::Binary(bytes) => channels.entry(bytes[0]).or_default().extend_from_slice(&bytes[1..]),
            Message::Text(text) => {
                let (channel, payload) = text.split_at(1);
                let payload = base64::engine::general_purpose::STANDARD.decode(payload).unwrap();
                channels.entry(channel.parse().unwrap()).or_default().extend(payload);
            }
            Message::Close(frame) => return (channels, frame.map(|frame| frame.code)),
            other => panic!("{other:?}"),
        }
    }
    (channels, None)
}

/// Echoes stdin to stdout until its end, then fails with exit code 7 as containerd does: status, then resets.
async fn cat(sender: Sender, mut receiver: spdy::Receiver<impl tokio::io::AsyncRead + Unpin>, open: Open) {
    sender.data(open["stderr"], Bytes::from_static(b"oops"), false).await.unwrap();
    while let Some(frame) = receiver.next().await.unwrap() {
        let Frame::Data { id, bytes, fin } = frame else { continue };
        assert_eq!(id, open["stdin"]);
        sender.data(open["stdout"], bytes, false).await.unwrap();
        if fin {
            break;
        }
    }
    sender.data(open["error"], Bytes::from_static(FAILURE.as_bytes()), false).await.unwrap();
    for id in open.values() {
        sender.reset(*id, spdy::ResetStatus::Cancel).await.unwrap();
    }
    sender.close().await.unwrap();
}

#[tokio::test]
async fn v5_carries_input_its_end_output_and_the_exit_code() {
    let (url, _) = runtime(REMOTE_COMMAND, 4, cat).await;
    let address = bridge(url, Kind::RemoteCommand(STREAMS)).await;
    let socket = websocket(address, "nonsense, v5.channel.k8s.io").await;
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let (mut output, input) = socket.split();
    let payload = sent.clone();
    let write = tokio::spawn(async move {
        for piece in payload.chunks(30_000) {
            let message = [&[0], piece].concat();
            output.send(Message::Binary(message.into())).await.unwrap();
        }
        output.send(Message::Binary(vec![255, 0].into())).await.unwrap();
        output
    });
    let mut got: HashMap<u8, Vec<u8>> = HashMap::new();
    let mut input = input;
    let code = loop {
        match input.next().await.unwrap().unwrap() {
            Message::Binary(bytes) => got.entry(bytes[0]).or_default().extend_from_slice(&bytes[1..]),
            Message::Close(frame) => break frame.unwrap().code,
            other => panic!("{other:?}"),
        }
    };
    drop(write.await.unwrap());
    assert_eq!(code, CloseCode::Normal);
    assert!(got[&1] == sent, "{} of {} bytes", got[&1].len(), sent.len());
    assert_eq!(got[&2], b"oops");
    assert_eq!(got[&3], FAILURE.as_bytes());
}

#[tokio::test]
async fn a_stream_on_which_nothing_moves_is_ended() {
    let (url, ended) = runtime(REMOTE_COMMAND, 4, |_sender, mut receiver, _open| async move {
        while let Ok(Some(_)) = receiver.next().await {}
    })
    .await;
    let idle = Duration::from_millis(400);
    let address = bridge_until(url, Kind::RemoteCommand(STREAMS), idle).await;
    let mut socket = websocket(address, "v5.channel.k8s.io").await;
    let began = std::time::Instant::now();
    for _ in 0..6 {
        tokio::time::sleep(idle / 4).await;
        socket.send(Message::Binary(vec![0, b'x'].into())).await.unwrap();
    }
    assert!(began.elapsed() > idle);
    // The command's side goes with it.
    ended.await.unwrap();
    while let Some(Ok(_)) = socket.next().await {}
    assert!(began.elapsed() > idle * 2);
}

#[tokio::test]
async fn the_oldest_protocol_gets_its_failure_as_text_and_base64_is_spoken() {
    let (url, _) = runtime(REMOTE_COMMAND, 3, |sender, _receiver, open: Open| async move {
        sender.data(open["stdout"], Bytes::from_static(b"hi"), true).await.unwrap();
        sender.data(open["error"], Bytes::from_static(FAILURE.as_bytes()), true).await.unwrap();
        sender.finish(open["stderr"]).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let kind = Kind::RemoteCommand(Streams { stdin: false, ..STREAMS });
    let address = bridge(url, kind).await;
    let mut socket = websocket(address, "base64.channel.k8s.io").await;
    let (got, code) = collect(&mut socket).await;
    assert_eq!(code, Some(CloseCode::Normal));
    assert_eq!(got[&1], b"hi");
    assert_eq!(got[&3], b"exit 7");
}

#[tokio::test]
async fn a_terminal_gets_its_size_and_no_stderr() {
    let (url, _) = runtime(REMOTE_COMMAND, 4, |sender, mut receiver, open: Open| async move {
        assert!(!open.contains_key("stderr"));
        loop {
            match receiver.next().await.unwrap().unwrap() {
                Frame::Data { id, bytes, .. } if id == open["resize"] => {
                    sender.data(open["stdout"], bytes, true).await.unwrap();
                    break;
                }
                _ => {}
            }
        }
        sender.data(open["error"], Bytes::from_static(br#"{"status":"Success"}"#), true).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let address = bridge(url, Kind::RemoteCommand(Streams { tty: true, ..STREAMS })).await;
    let mut socket = websocket(address, "v4.channel.k8s.io").await;
    let size = br#"{"Width":80,"Height":24}"#;
    socket.send(Message::Binary([&[4], &size[..]].concat().into())).await.unwrap();
    let (got, _) = collect(&mut socket).await;
    assert_eq!(got[&1], size);
    assert_eq!(got[&3], br#"{"status":"Success"}"#);
}

#[tokio::test]
async fn a_client_that_vanishes_takes_its_session_along() {
    let (url, finished) = runtime(REMOTE_COMMAND, 4, |_sender, mut receiver, _open| async move {
        while matches!(receiver.next().await, Ok(Some(_))) {}
    })
    .await;
    let address = bridge(url, Kind::RemoteCommand(STREAMS)).await;
    let socket = websocket(address, "v5.channel.k8s.io").await;
    drop(socket);
    tokio::time::timeout(Duration::from_secs(60), finished).await.expect("the runtime saw no end").unwrap();
}

#[tokio::test]
async fn a_runtime_that_vanishes_is_an_internal_error() {
    let (url, _) = runtime(REMOTE_COMMAND, 4, |sender, receiver, _open| async move {
        drop((sender, receiver));
    })
    .await;
    let address = bridge(url, Kind::RemoteCommand(STREAMS)).await;
    let mut socket = websocket(address, "v5.channel.k8s.io").await;
    let (got, code) = collect(&mut socket).await;
    assert_eq!(code, Some(CloseCode::Error));
    let status: serde_json::Value = serde_json::from_slice(&got[&3]).unwrap();
    assert_eq!((status["status"].as_str(), status["code"].as_u64()), (Some("Failure"), Some(500)));
}

#[tokio::test]
async fn refusals_come_before_the_upgrade() {
    let refusing = http(|_| async {
        Response::builder().status(404).body(Body::from("cannot find request token")).unwrap()
    })
    .await;
    let url = format!("http://{refusing}/exec/gone");
    let address = bridge(url, Kind::RemoteCommand(STREAMS)).await;
    for (protocol, code) in [("v5.channel.k8s.io", 500), ("v9.channel.k8s.io", 403)] {
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        let stream = TcpStream::connect(address).await.unwrap();
        let error = tokio_tungstenite::client_async(request, stream).await.unwrap_err();
        let tokio_tungstenite::tungstenite::Error::Http(response) = error else { panic!("{error}") };
        assert_eq!(response.status().as_u16(), code, "{protocol}");
    }
}

/// Answers on the data stream with the port, and on the error stream with a complaint.
async fn forwarder(
    sender: Sender,
    mut receiver: spdy::Receiver<impl tokio::io::AsyncRead + Unpin>,
    open: Open,
) {
    while let Ok(Some(frame)) = receiver.next().await {
        let Frame::Data { id, bytes, .. } = frame else { continue };
        if bytes.is_empty() {
            continue;
        }
        let (name, _) = open.iter().find(|(_, open)| **open == id).unwrap();
        let port = name.strip_prefix("data").unwrap();
        sender.data(id, Bytes::from(format!("{port}:")), false).await.unwrap();
        sender.data(id, bytes, true).await.unwrap();
        sender.data(open[&format!("error{port}")], Bytes::from_static(b"e"), true).await.unwrap();
    }
}

#[tokio::test]
async fn old_port_forward_numbers_its_channels() {
    let (url, _) = runtime(PORT_FORWARD, 4, forwarder).await;
    let address = bridge(url, Kind::PortForward { ports: vec![80, 8080] }).await;
    let mut socket = websocket(address, "v4.channel.k8s.io").await;
    socket.send(Message::Binary(b"\x02two".to_vec().into())).await.unwrap();
    socket.send(Message::Binary(b"\x00one".to_vec().into())).await.unwrap();
    let (got, code) = collect(&mut socket).await;
    assert_eq!(code, Some(CloseCode::Normal));
    assert_eq!(got[&0], b"\x50\x0080:one");
    assert_eq!(got[&1], b"\x50\x00e");
    assert_eq!(got[&2], b"\x90\x1f8080:two");
    assert_eq!(got[&3], b"\x90\x1fe");
}

#[tokio::test]
async fn a_tunnel_carries_spdy_within_messages() {
    let (url, _) = runtime(PORT_FORWARD, 2, forwarder).await;
    let address = bridge(url, Kind::PortForward { ports: Vec::new() }).await;
    let mut socket = websocket(address, "SPDY/3.1+portforward.k8s.io").await;
    let (near, far) = tokio::io::duplex(1 << 16);
    let (sender, mut receiver) = spdy::session(near, Role::Client).unwrap();
    let carry = tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(far);
        loop {
            let mut bytes = bytes::BytesMut::with_capacity(100);
            tokio::select! {
                n = tokio::io::AsyncReadExt::read_buf(&mut read, &mut bytes) => {
                    n.unwrap();
                    socket.send(Message::Binary(bytes.freeze())).await.unwrap();
                }
                message = socket.next() => match message.unwrap().unwrap() {
                    Message::Binary(bytes) => {
                        tokio::io::AsyncWriteExt::write_all(&mut write, &bytes).await.unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    let headers = |kind| Headers::new([("streamType", kind), ("port", "80"), ("requestID", "0")]);
    sender.open(headers("error")).await.unwrap();
    let data = sender.open(headers("data")).await.unwrap();
    sender.data(data, Bytes::from_static(b"GET"), false).await.unwrap();
    let (mut got, mut finished) = (Vec::new(), false);
    while !finished {
        if let Some(Frame::Data { id, bytes, fin }) = receiver.next().await.unwrap()
            && id == data
        {
            got.extend_from_slice(&bytes);
            finished = fin;
        }
    }
    assert_eq!(got, b"80:GET");
    carry.abort();
}
