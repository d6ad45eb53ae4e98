//! The end of streams on which nothing moves: exec, attach, port-forward, and whatever else was upgraded.

use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Knows when a stream moved last. Clones are of one stream.
#[derive(Clone)]
pub struct Quiet(Arc<Mutex<Instant>>);

impl Default for Quiet {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Quiet {
    /// Notes every byte that goes through `io`, in either direction.
    pub fn stamp<I>(&self, io: I) -> Stamped<I> {
        Stamped { io, quiet: self.clone() }
    }

    /// Returns once nothing has moved for so long. Zero is never.
    pub async fn lasts(&self, time: Duration) {
        if time.is_zero() {
            std::future::pending::<()>().await;
        }
        loop {
            let due = *self.0.lock() + time;
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }

    fn moved<T>(&self, outcome: &Poll<io::Result<T>>) {
        if matches!(outcome, Poll::Ready(Ok(_))) {
            *self.0.lock() = Instant::now();
        }
    }
}

/// One end of a stream.
pub struct Stamped<I> {
    io: I,
    quiet: Quiet,
}

impl<I: AsyncRead + Unpin> AsyncRead for Stamped<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.quiet.moved(&read);
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Stamped<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.quiet.moved(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.quiet.moved(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_quiet_from_its_last_byte_on() {
        let quiet = Quiet::default();
        let (mut far, near) = tokio::io::duplex(64);
        let mut near = quiet.stamp(near);
        let began = Instant::now();
        let talk = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.write_all(b"x").await.expect("sent");
                near.read_u8().await.expect("received");
            }
        };
        tokio::join!(talk, quiet.lasts(Duration::from_secs(60)));
        assert_eq!(began.elapsed().as_secs(), 310);
    }

    #[tokio::test(start_paused = true)]
    async fn zero_is_never() {
        let quiet = Quiet::default();
        let ended = tokio::time::timeout(Duration::from_secs(86_400), quiet.lasts(Duration::ZERO)).await;
        assert!(ended.is_err());
    }
}
