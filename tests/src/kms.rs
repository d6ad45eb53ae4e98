//! A KMS of the tests' own, version 2, over a unix socket: gRPC by hand, because three messages are not worth a
//! framework (<https://kubernetes.io/docs/tasks/administer-cluster/kms-provider/>).

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

#[derive(Default)]
struct State {
    key_id: String,
    /// Before every answer.
    slow: Duration,
    /// What it was given to encrypt: whoever has one of these reads the data.
    seeds: Vec<Vec<u8>>,
    decrypted: usize,
}

/// Dropped, it is gone.
pub struct Kms {
    socket: PathBuf,
    state: Arc<Mutex<State>>,
    runtime: Runtime,
    serving: Option<JoinHandle<()>>,
}

impl Kms {
    /// Answers at a socket in this directory, under this key.
    pub fn start(dir: &Path, key_id: &str) -> Self {
        let state = State { key_id: key_id.to_owned(), ..State::default() };
        let (state, runtime) = (Arc::new(Mutex::new(state)), Runtime::new().expect("a runtime"));
        let mut kms = Self { socket: dir.join("kms.sock"), state, runtime, serving: None };
        kms.come_back();
        kms
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Encrypts under another key from now on; what was encrypted before it still decrypts.
    pub fn rotate(&self, key_id: &str) {
        key_id.clone_into(&mut self.state().key_id);
    }

    pub fn slow_down(&self, slow: Duration) {
        self.state().slow = slow;
    }

    pub fn seeds(&self) -> Vec<Vec<u8>> {
        self.state().seeds.clone()
    }

    /// How often it has decrypted something.
    pub fn decrypted(&self) -> usize {
        self.state().decrypted
    }

    /// Ends every connection and listens no more.
    pub fn go_away(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // Cancelled, as it should be.
            let _ = self.runtime.block_on(serving);
        }
        std::fs::remove_file(&self.socket).expect("the socket was there");
    }

    pub fn come_back(&mut self) {
        let (socket, state) = (self.socket.clone(), self.state.clone());
        let listener = self.runtime.block_on(async { UnixListener::bind(&socket) }).expect("a socket");
        self.serving = Some(self.runtime.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = state.clone();
                let service = hyper::service::service_fn(move |request| answer(state.clone(), request));
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                connections.spawn(async move { http.serve_connection(TokioIo::new(stream), service).await });
            }
        }));
    }
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, hyper::Error> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let slow = state.lock().expect("nobody panics with it").slow;
    tokio::time::sleep(slow).await;
    // Behind one byte for compression and four for the length.
    let asked = fields(body.get(5..).unwrap_or_default());
    let message = work(&mut state.lock().expect("nobody panics with it"), &method, &asked);
    let mut data = vec![0];
    data.extend(u32::try_from(message.len()).expect("a short message").to_be_bytes());
    data.extend(message);
    let trailers =
        HeaderMap::from_iter([("grpc-status".parse().expect("a name"), HeaderValue::from_static("0"))]);
    let frames = [Frame::data(Bytes::from(data)), Frame::trailers(trailers)];
    let body = StreamBody::new(futures::stream::iter(frames.map(Ok::<_, Infallible>)));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).expect("a response"))
}

fn work(state: &mut State, method: &str, asked: &BTreeMap<u8, Vec<u8>>) -> Vec<u8> {
    let part = |number: u8| asked.get(&number).map(Vec::as_slice).unwrap_or_default();
    match method {
        "Status" => [field(1, b"v2"), field(2, b"ok"), field(3, state.key_id.as_bytes())].concat(),
        "Encrypt" => {
            let plain = part(1);
            state.seeds.push(plain.to_vec());
            let sealed = mask(plain, state.key_id.as_bytes());
            [field(1, &sealed), field(2, state.key_id.as_bytes())].concat()
        }
        "Decrypt" => {
            state.decrypted += 1;
            field(1, &mask(part(1), part(3)))
        }
        other => panic!("nobody asks for {other}"),
    }
}

/// There and back: enough to tell that it was done, and with which key.
fn mask(bytes: &[u8], key_id: &[u8]) -> Vec<u8> {
    bytes.iter().zip(key_id.iter().cycle()).map(|(byte, pad)| byte ^ pad ^ 0xa5).collect()
}

/// One field of a protobuf message whose value has a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).expect("seven bits"));
    out.extend(value);
    out
}

/// The fields of a message whose values all have lengths, by number.
fn fields(message: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let (mut rest, mut found) = (message, BTreeMap::new());
    while let [key, after @ ..] = rest {
        let (mut length, mut read) = (0, 0);
        for byte in after {
            length |= usize::from(byte & 0x7f) << (7 * read);
            read += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (value, others) = after[read..].split_at(length);
        found.insert(key >> 3, value.to_vec());
        rest = others;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written() {
        let long = vec![7; 300];
        let message = [field(1, b"a"), field(3, &long), field(2, b"")].concat();
        let found = fields(&message);
        assert_eq!(found, BTreeMap::from([(1, b"a".to_vec()), (2, Vec::new()), (3, long)]));
        assert_eq!(mask(&mask(b"text", b"id"), b"id"), b"text");
    }
}
