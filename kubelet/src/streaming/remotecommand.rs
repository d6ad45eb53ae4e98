//! Exec and attach: the channels of a WebSocket client and the SPDY streams of the runtime.

use super::Streams;
use super::spdy::{self, Frame, Headers, Role, Sender, SpdyError};
use super::websocket::{self, Input, Output, Socket, Subprotocol, Version};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// Bytes of the runtime's final status that are kept; it is one small JSON object.
const MAX_STATUS: usize = 64 * 1024;

/// The ids of the SPDY streams of one command.
struct Ids {
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Ids {
    /// In upstream's order. The runtime starts the command once it has all that its `Exec` call announced.
    async fn open(sender: &Sender, streams: Streams) -> Result<Self, SpdyError> {
        let error = open(sender, "error").await?;
        Ok(Self {
            error,
            stdin: if streams.stdin { Some(open(sender, "stdin").await?) } else { None },
            stdout: if streams.stdout { Some(open(sender, "stdout").await?) } else { None },
            stderr: if streams.stderr && !streams.tty { Some(open(sender, "stderr").await?) } else { None },
            resize: if streams.tty { Some(open(sender, "resize").await?) } else { None },
        })
    }
}

async fn open(sender: &Sender, kind: &str) -> Result<u32, SpdyError> {
    sender.open(Headers::new([("streamType", kind)])).await
}

/// How the runtime's side ended.
enum End {
    /// With its status, or at least without a sign of trouble.
    Complete { status: Vec<u8> },
    /// The client takes no more.
    ClientGone,
}

/// Carries one command until it ends or the client goes; then both connections are closed. A client that goes takes
/// its command's streams with it: the runtime sees the connection end.
pub(super) async fn bridge<S, T>(
    client: Socket<S>,
    protocol: Subprotocol,
    server: T,
    streams: Streams,
) -> Result<(), SpdyError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut output, mut input) = client.split();
    let (sender, mut receiver) = spdy::session(server, Role::Client)?;
    let ids = Ids::open(&sender, streams).await?;
    greet(&mut output, protocol, streams).await;
    let ended = tokio::select! {
        () = up(&mut input, protocol, &sender, &ids) => return Ok(()),
        ended = down(&mut receiver, &mut output, protocol, &ids) => ended,
    };
    let (status, close, result) = match ended {
        Ok(End::ClientGone) => return Ok(()),
        Ok(End::Complete { status }) if !status.is_empty() => (status, websocket::NORMAL, Ok(())),
        Ok(End::Complete { .. }) => (lost(), (CloseCode::Error, "no status"), Ok(())),
        Err(error) => (lost(), (CloseCode::Error, "stream broken"), Err(error)),
    };
    report(&mut output, protocol, &status).await;
    websocket::close(&mut output, &mut input, close).await;
    result
}

/// Older clients take an empty message as the sign that the streams are there.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    output: &mut Output<S>,
    protocol: Subprotocol,
    streams: Streams,
) {
    let channel = if streams.stdout {
        STDOUT
    } else if streams.stderr && !streams.tty {
        STDERR
    } else {
        ERROR
    };
    if let Err(error) = output.send(protocol.encode(channel, &[])).await {
        tracing::debug!(%error, "WebSocket client");
    }
}

/// Client to runtime. Ends only with the client: a command may run on after its standard input ended.
async fn up<S>(input: &mut Input<S>, protocol: Subprotocol, sender: &Sender, ids: &Ids)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = websocket::next(input).await {
        let Some((channel, payload)) = protocol.decode(message) else { continue };
        let sent = match (channel, ids.stdin, ids.resize) {
            (STDIN, Some(stdin), _) => sender.data(stdin, payload, false).await,
            (RESIZE, _, Some(resize)) => sender.data(resize, payload, false).await,
            (CLOSE, Some(stdin), _) if protocol.version == Version::V5 && payload.first() == Some(&STDIN) => {
                sender.finish(stdin).await
            }
            _ => Ok(()),
        };
        if let Err(error) = sent {
            // The receiving half tells how the runtime ended; the client may still be waiting for that.
            tracing::debug!(error = &error as &dyn std::error::Error, "input to the container runtime");
            return std::future::pending().await;
        }
    }
}

/// Runtime to client, until all its output streams have ended.
async fn down<S, R>(
    receiver: &mut spdy::Receiver<R>,
    output: &mut Output<S>,
    protocol: Subprotocol,
    ids: &Ids,
) -> Result<End, SpdyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let mut open: Vec<u32> = [Some(ids.error), ids.stdout, ids.stderr].into_iter().flatten().collect();
    let mut status = Vec::new();
    while !open.is_empty() {
        match receiver.next().await? {
            None => break,
            Some(Frame::Reset { id, .. } | Frame::SynReply { id, fin: true, .. }) => {
                open.retain(|o| *o != id)
            }
            Some(Frame::Data { id, bytes, fin }) => {
                if fin {
                    open.retain(|o| *o != id);
                }
                if id == ids.error {
                    let room = MAX_STATUS.saturating_sub(status.len());
                    status.extend_from_slice(&bytes[..bytes.len().min(room)]);
                } else if !pass(output, protocol, ids, id, &bytes).await {
                    return Ok(End::ClientGone);
                }
            }
            Some(_) => {}
        }
    }
    Ok(End::Complete { status })
}

/// Sends output to the client; false when it takes no more.
async fn pass<S>(output: &mut Output<S>, protocol: Subprotocol, ids: &Ids, id: u32, bytes: &Bytes) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let channel = if ids.stdout == Some(id) {
        STDOUT
    } else if ids.stderr == Some(id) {
        STDERR
    } else {
        return true;
    };
    bytes.is_empty() || output.send(protocol.encode(channel, bytes)).await.is_ok()
}

/// The Status of a runtime that went away.
fn lost() -> Vec<u8> {
    let message = "Internal error occurred: the container runtime ended the stream without a status";
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "InternalError", "code": 500,
    });
    status.to_string().into_bytes()
}

/// Tells the client how the command ended: as the runtime's Status, or in the words the oldest protocol has.
async fn report<S>(output: &mut Output<S>, protocol: Subprotocol, status: &[u8])
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let message = match protocol.version {
        Version::V1 => match failure(status) {
            Some(text) => protocol.encode(ERROR, text.as_bytes()),
            None => return,
        },
        Version::V4 | Version::V5 => protocol.encode(ERROR, status),
    };
    if let Err(error) = output.send(message).await {
        tracing::debug!(%error, "WebSocket client");
    }
}

fn failure(status: &[u8]) -> Option<String> {
    let Ok(status) = serde_json::from_slice::<Value>(status) else {
        return Some(String::from_utf8_lossy(status).into_owned());
    };
    let text = || status["message"].as_str().unwrap_or("command failed").to_owned();
    (status["status"] != "Success").then(text)
}
