//! One SPDY connection: a sending half that any task may use and a receiving half that one task drives.

use super::{Decoder, Encoder, Frame, Headers, ResetStatus, SpdyError};
use bytes::{Buf, Bytes, BytesMut};
use futures::future::poll_fn;
use parking_lot::Mutex as SyncMutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

/// Bytes asked of the connection at a time.
const READ: usize = 32 * 1024;

/// Replies to PING kept while the connection takes no bytes. A peer that lets more pile up loses some.
const MAX_REPLIES: usize = 64;

/// Which side of the connection this is: clients use odd ids, servers even ones (section 2.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

type Output = Box<dyn AsyncWrite + Send + Unpin>;

struct Writer {
    output: Output,
    encoder: Encoder,
    /// Encoded bytes that the connection has not taken. A cancelled send leaves its rest here for the next one.
    unsent: BytesMut,
    next_id: u32,
}

impl Writer {
    fn push(&mut self, frame: &Frame) -> Result<(), SpdyError> {
        self.encoder.encode(frame, &mut self.unsent)
    }

    async fn flush(&mut self) -> Result<(), SpdyError> {
        while self.unsent.has_remaining() {
            if self.output.write_buf(&mut self.unsent).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into());
            }
        }
        Ok(self.output.flush().await?)
    }

    /// Writes what the connection takes now, without waiting.
    fn poll_some(&mut self, cx: &mut Context<'_>) -> Result<(), SpdyError> {
        while self.unsent.has_remaining() {
            match Pin::new(&mut self.output).poll_write(cx, &self.unsent) {
                Poll::Ready(Ok(0)) | Poll::Pending => return Ok(()),
                Poll::Ready(Ok(n)) => self.unsent.advance(n),
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
        }
        match Pin::new(&mut self.output).poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

struct Shared {
    writer: Mutex<Writer>,
    replies: SyncMutex<Vec<Frame>>,
}

/// Sends frames. Every call waits until the connection took its bytes: that is the back-pressure. Cancelling a call
/// never tears a frame.
#[derive(Clone)]
pub struct Sender(Arc<Shared>);

/// Receives frames, and answers PING on the way.
pub struct Receiver<R> {
    input: R,
    buffer: BytesMut,
    decoder: Decoder,
    role: Role,
    shared: Arc<Shared>,
}

/// A session over a connection whose upgrade is done.
pub fn session<S>(stream: S, role: Role) -> Result<(Sender, Receiver<tokio::io::ReadHalf<S>>), SpdyError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (input, output) = tokio::io::split(stream);
    let writer = Writer {
        output: Box::new(output),
        encoder: Encoder::new()?,
        unsent: BytesMut::new(),
        next_id: if role == Role::Client { 1 } else { 2 },
    };
    let shared = Arc::new(Shared { writer: Mutex::new(writer), replies: SyncMutex::default() });
    let receiver = Receiver {
        input,
        buffer: BytesMut::new(),
        decoder: Decoder::default(),
        role,
        shared: shared.clone(),
    };
    Ok((Sender(shared), receiver))
}

impl Sender {
    /// Opens a stream and returns its id without waiting for the reply.
    pub async fn open(&self, headers: Headers) -> Result<u32, SpdyError> {
        let mut writer = self.0.writer.lock().await;
        let id = writer.next_id;
        if id > 0x7fff_ffff {
            return Err(SpdyError::StreamsExhausted);
        }
        writer.next_id += 2;
        writer.push(&Frame::SynStream { id, headers, fin: false, unidirectional: false })?;
        writer.flush().await?;
        Ok(id)
    }

    /// Accepts a stream that the peer opened.
    pub async fn accept(&self, id: u32) -> Result<(), SpdyError> {
        self.send(Frame::SynReply { id, headers: Headers::default(), fin: false }).await
    }

    /// Sends data; empty data without `fin` sends nothing.
    pub async fn data(&self, id: u32, bytes: Bytes, fin: bool) -> Result<(), SpdyError> {
        if bytes.is_empty() && !fin {
            return Ok(());
        }
        self.send(Frame::Data { id, bytes, fin }).await
    }

    /// Ends this side of a stream; the other may go on.
    pub async fn finish(&self, id: u32) -> Result<(), SpdyError> {
        self.data(id, Bytes::new(), true).await
    }

    pub async fn reset(&self, id: u32, status: ResetStatus) -> Result<(), SpdyError> {
        self.send(Frame::Reset { id, status: status as u32 }).await
    }

    pub async fn ping(&self, id: u32) -> Result<(), SpdyError> {
        self.send(Frame::Ping { id }).await
    }

    /// Says that no further streams are taken and closes this side of the connection.
    pub async fn close(&self) -> Result<(), SpdyError> {
        self.send(Frame::GoAway { last: 0, status: 0 }).await?;
        Ok(self.0.writer.lock().await.output.shutdown().await?)
    }

    async fn send(&self, frame: Frame) -> Result<(), SpdyError> {
        let mut writer = self.0.writer.lock().await;
        for reply in std::mem::take(&mut *self.0.replies.lock()) {
            writer.push(&reply)?;
        }
        writer.push(&frame)?;
        writer.flush().await
    }
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    /// The next frame; `None` when the peer closed the connection between frames. Cancel safe. Not reading holds the
    /// peer back. Never waits for the sending half, so a peer that takes no data cannot stop data from coming in.
    pub async fn next(&mut self) -> Result<Option<Frame>, SpdyError> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer)? {
                self.answer(&frame).await;
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ);
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                return if self.decoder.at_boundary(&self.buffer) {
                    Ok(None)
                } else {
                    Err(SpdyError::Truncated)
                };
            }
        }
    }

    /// Pings of our own come back with our parity and are not answered.
    async fn answer(&mut self, frame: &Frame) {
        let Frame::Ping { id } = frame else { return };
        if (id % 2 == 1) != (self.role == Role::Server) {
            return;
        }
        {
            let mut replies = self.shared.replies.lock();
            if replies.len() < MAX_REPLIES {
                replies.push(Frame::Ping { id: *id });
            }
        }
        self.reply_without_waiting().await;
    }

    /// Hands the replies to the connection if it is free. If it is not, the sender that holds it, or the next one,
    /// takes them along. A connection that is broken for sending may still hold data to receive.
    async fn reply_without_waiting(&mut self) {
        let Ok(mut writer) = self.shared.writer.try_lock() else { return };
        let replies = std::mem::take(&mut *self.shared.replies.lock());
        let pushed = replies.iter().try_for_each(|reply| writer.push(reply));
        let sent = poll_fn(|cx| Poll::Ready(writer.poll_some(cx))).await;
        if let Err(error) = pushed.and(sent) {
            tracing::debug!(%error, "SPDY reply");
        }
    }
}
