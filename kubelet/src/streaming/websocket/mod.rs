//! The server side of WebSockets as Kubernetes' streaming uses them: handshake, subprotocols, and messages that begin
//! with their channel.

mod negotiate;

pub(super) use negotiate::{Answer, Protocol, Subprotocol, Version, negotiate, negotiate_reading};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, Stream, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

pub(super) type Socket<S> = WebSocketStream<S>;
pub(super) type Output<S> = SplitSink<Socket<S>, Message>;
pub(super) type Input<S> = SplitStream<Socket<S>>;

/// Bytes of one message from a client; upstream's limit. kubectl sends 32 KiB, some libraries a whole file at once.
const MAX_MESSAGE: usize = 32 << 20;

/// Bytes of output that are kept while the client takes none, beyond the message being written.
const MAX_UNSENT: usize = 128 << 10;

/// How long a client has to answer the closing handshake. Until then what it still sends is thrown away, because
/// closing a connection with unread bytes can cost it the last ones sent.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) const NORMAL: (CloseCode, &str) = (CloseCode::Normal, "");

/// Takes over a connection whose handshake was answered.
pub(super) async fn open<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> Socket<S> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(32 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_MESSAGE + MAX_UNSENT);
    WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await
}

/// The bytes of the next message; `None` when the client closed, vanished or broke the protocol.
pub(super) async fn next<S: AsyncRead + AsyncWrite + Unpin>(input: &mut Input<S>) -> Option<Bytes> {
    loop {
        match input.next().await? {
            Ok(Message::Binary(bytes)) => return Some(bytes),
            Ok(Message::Text(text)) => return Some(text.into()),
            Ok(Message::Close(_)) => return None,
            // Answered by the library.
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Err(error) => {
                tracing::debug!(%error, "WebSocket client");
                return None;
            }
        }
    }
}

/// Sends what comes, as text in base64 or as it is, and closes; ends early when the client goes.
pub(super) async fn pour<S, E>(
    client: Socket<S>,
    data: impl Stream<Item = Result<Bytes, E>> + Unpin,
    text: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut output, mut input) = client.split();
    let mut data = data;
    loop {
        let piece = tokio::select! {
            piece = data.next() => piece,
            // Whatever the client says is of no interest, but its end is.
            said = next(&mut input) => match said {
                Some(_) => continue,
                None => break,
            },
        };
        let Some(Ok(piece)) = piece else { break };
        let message = if text { Message::text(STANDARD.encode(&piece)) } else { Message::Binary(piece) };
        if output.send(message).await.is_err() {
            return;
        }
    }
    close(&mut output, &mut input, NORMAL).await;
}

/// The closing handshake, from our side.
pub(super) async fn close<S>(
    output: &mut Output<S>,
    input: &mut Input<S>,
    (code, reason): (CloseCode, &'static str),
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let handshake = async {
        output.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
        while input.next().await.is_some_and(|message| message.is_ok()) {}
        Ok::<_, tungstenite::Error>(())
    };
    match tokio::time::timeout(CLOSING_TIMEOUT, handshake).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "closing a WebSocket"),
        Err(_) => tracing::debug!("WebSocket client did not answer the closing handshake"),
    }
}

impl Subprotocol {
    /// Splits a message into channel and payload; `None` if it has none or is not base64 where it has to be.
    pub(super) fn decode(self, mut message: Bytes) -> Option<(u8, Bytes)> {
        let channel = message.try_get_u8().ok()?;
        if !self.base64 {
            return Some((channel, message));
        }
        let payload = STANDARD.decode(&message).ok()?;
        Some((channel.checked_sub(b'0')?, payload.into()))
    }

    pub(super) fn encode(self, channel: u8, payload: &[u8]) -> Message {
        if self.base64 {
            let mut text = String::from(char::from(b'0'.saturating_add(channel)));
            STANDARD.encode_string(payload, &mut text);
            return Message::text(text);
        }
        let mut message = BytesMut::with_capacity(1 + payload.len());
        message.put_u8(channel);
        message.put_slice(payload);
        Message::Binary(message.freeze())
    }
}
