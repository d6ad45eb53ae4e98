//! A stream of bytes that tells somebody what it carries.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Is told of every read and write that moved something, or found the end.
pub trait Note: Unpin {
    /// # Errors
    /// What ends the stream: no more is to be read.
    fn read(&mut self, bytes: usize) -> io::Result<()>;
    fn wrote(&mut self, bytes: usize);
}

/// A stream and who is told of it. Whatever the note holds goes where the stream goes: into what a connection is upgraded
/// to, and away when it is closed.
pub struct Noted<I, N> {
    io: I,
    note: N,
}

impl<I, N> Noted<I, N> {
    pub fn new(io: I, note: N) -> Self {
        Self { io, note }
    }
}

impl<I: AsyncRead + Unpin, N: Note> AsyncRead for Noted<I, N> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        Poll::Ready(self.note.read(buffer.filled().len() - before))
    }
}

impl<I, N: Note> Noted<I, N> {
    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.note.wrote(bytes);
        }
        written
    }
}

impl<I: AsyncWrite + Unpin, N: Note> AsyncWrite for Noted<I, N> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.wrote(written)
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
