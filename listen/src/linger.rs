//! The end of a connection whose client still sends.
//!
//! A socket that is closed with something in it that nobody has read resets the connection, and a client that still sends
//! loses the answer over it. So our side ends first, and what comes in is read away until the client ends its own.

use crate::activity::Activity;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// For so long, and so much. Who sends more has had the time to look at the answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_LINGER_BYTES: usize = 64 << 20;
const PIECE_BYTES: usize = 16 << 10;

/// A stream that ends so where its [`Activity`] has left something unread.
pub struct Lingering<I> {
    io: I,
    activity: Arc<Activity>,
    /// Our side has ended.
    reading: Option<Reading>,
}

struct Reading {
    bytes: usize,
    piece: Box<[u8]>,
    time: Pin<Box<Sleep>>,
}

impl<I> Lingering<I> {
    pub fn new(io: I, activity: Arc<Activity>) -> Self {
        Self { io, activity, reading: None }
    }
}

impl Reading {
    /// Ready when the client has ended, too, or the bounds are reached.
    fn poll(&mut self, io: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<()> {
        while self.bytes <= MAX_LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut self.piece);
            match Pin::new(&mut *io).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.bytes += buffer.filled().len(),
                // Its end, or nothing more can come.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.time.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Lingering<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, activity, reading } = &mut *self;
        if reading.is_none() {
            ready!(Pin::new(&mut *io).poll_shutdown(cx))?;
            if !activity.has_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        let reading = reading.get_or_insert_with(|| Reading {
            bytes: 0,
            piece: vec![0; PIECE_BYTES].into(),
            time: Box::pin(sleep(LINGER_TIMEOUT)),
        });
        reading.poll(io, cx).map(Ok)
    }
}
