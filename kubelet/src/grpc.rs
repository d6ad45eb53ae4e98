//! gRPC over unix sockets of the kubelet's own: calls with one request and one answer.

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// The longest request, in bytes. None of these services is sent a list; a client that sends more is refused.
const MOST: usize = 64 << 10;
/// Before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Connections at once; more wait. Each takes some 20 KiB, and these sockets' users keep one.
const CONNECTIONS: usize = 64;

#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Answers a call of the method with this path, `/package.Service/Method`.
    async fn call(&self, path: &str, request: Bytes) -> Result<Vec<u8>, Status>;
}

/// What a request says.
pub fn decode<M: Message + Default>(request: Bytes) -> Result<M, Status> {
    M::decode(request).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// For methods that a service does not have.
pub fn unknown(path: &str) -> Status {
    Status::unimplemented(format!("unknown method {path}"))
}

/// A socket that nobody else listens at, in a directory that is made where it is missing.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = socket.parent() {
        std::fs::create_dir_all(dir)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(socket)
}

/// Answers at the socket for ever.
pub async fn serve(listener: UnixListener, service: Arc<dyn Service>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS || connections.try_join_next().is_some() {
            if connections.len() >= CONNECTIONS {
                connections.join_next().await;
            }
        }
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(converse(stream, service.clone()))),
            Err(error) => {
                tracing::warn!(%error, "a connection to a socket of the kubelet is not taken");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, service: Arc<dyn Service>) {
    let respond = hyper::service::service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(respond(service.as_ref(), request).await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), respond);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to a socket of the kubelet ended");
    }
}

type Body = StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn respond(service: &dyn Service, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answer = match message(request.into_body()).await {
        Ok(message) => service.call(&path, message).await,
        Err(status) => Err(status),
    };
    let (message, status) = match answer {
        Ok(message) => (Some(framed(&message)), Status::ok("")),
        Err(status) => (None, status),
    };
    let mut trailers = HeaderMap::new();
    // Codes and percent-encoded text are good headers.
    if status.add_header(&mut trailers).is_err() {
        trailers.insert("grpc-status", HeaderValue::from(i32::from(Code::Internal)));
    }
    let frames: Vec<_> =
        message.map(Frame::data).into_iter().chain([Frame::trailers(trailers)]).map(Ok).collect();
    let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

async fn message(body: Incoming) -> Result<Bytes, Status> {
    let body = Limited::new(body, MOST).collect().await;
    let mut body = body.map_err(|error| Status::invalid_argument(error.to_string()))?.to_bytes();
    if body.len() < PREFIX {
        return Err(Status::invalid_argument("no message"));
    }
    let prefix = body.split_to(PREFIX);
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    match prefix[0] {
        0 if u32::try_from(body.len()) == Ok(length) => Ok(body),
        0 => Err(Status::invalid_argument("the message is not as long as it says")),
        _ => Err(Status::unimplemented("compressed messages are not understood")),
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}
