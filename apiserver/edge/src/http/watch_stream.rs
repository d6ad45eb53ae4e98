//! A watch on its way to the client: whatever is ready is sent together. It is polled by hand, because it is polled for
//! every event of every watcher: between two events nothing is set up and nothing torn down.

use super::watch_body::{Piece, WatchBody};
use bytes::{BufMut, Bytes, BytesMut};
use coracle_registry::Message;
use futures::future::BoxFuture;
use http_body::{Body, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// What is ready at once is sent together up to this size: initial events come in few pieces.
const PIECE_BYTES: usize = 64 * 1024;

pub struct WatchStream {
    /// `None` while a message is waited for, and after the end.
    body: Option<Box<WatchBody>>,
    /// A message that a webhook has to convert.
    waiting: Option<BoxFuture<'static, (Box<WatchBody>, Piece)>>,
    /// The next message, taken already.
    held: Option<Message>,
    ready: VecDeque<Bytes>,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl WatchStream {
    pub fn new(body: WatchBody) -> Self {
        let stopped = Box::pin(body.stop.clone().cancelled_owned());
        Self { body: Some(Box::new(body)), waiting: None, held: None, ready: VecDeque::new(), stopped }
    }

    /// Ready when the watch is over, or there is something to send.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(waiting) = &mut self.waiting {
            let (body, piece) = ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
            self.body = Some(body);
            self.send(piece);
            return Poll::Ready(true);
        }
        let Some(body) = &mut self.body else { return Poll::Ready(false) };
        let message = match self.held.take() {
            Some(message) => Some(message),
            None => match body.watch.poll_next(cx) {
                Poll::Ready(message) => message.filter(|_| !body.stop.is_cancelled()),
                Poll::Pending => {
                    ready!(self.stopped.as_mut().poll(cx));
                    None
                }
            },
        };
        match message {
            Some(message) => self.take(message),
            None => self.body = None,
        }
        Poll::Ready(true)
    }

    fn take(&mut self, message: Message) {
        let Some(body) = &mut self.body else { return };
        if let Some(pieces) = body.pieces(&message) {
            self.ready.extend(pieces);
            return;
        }
        match body.encode_now(message) {
            Ok(piece) => self.gather(piece),
            Err(message) => {
                let Some(mut body) = self.body.take() else { return };
                self.waiting = Some(Box::pin(async move {
                    let piece = body.encode(message).await;
                    (body, piece)
                }));
            }
        }
    }

    /// Adds to the first piece what else is ready.
    fn gather(&mut self, first: Piece) {
        let second = if first.last { None } else { self.next_now() };
        let Some(second) = second else { return self.send(first) };
        let mut joined = BytesMut::with_capacity(first.bytes.len() * 4);
        joined.put_slice(&first.bytes);
        let mut next = Some(second);
        let mut last = false;
        while let Some(piece) = next {
            joined.put_slice(&piece.bytes);
            last = piece.last;
            next = if last || joined.len() >= PIECE_BYTES { None } else { self.next_now() };
        }
        self.send(Piece { bytes: joined.freeze(), last });
    }

    /// A message that is there and needs no waiting.
    fn next_now(&mut self) -> Option<Piece> {
        let body = self.body.as_mut().filter(|body| !body.in_pieces)?;
        let message = body.watch.ready()?;
        match body.encode_now(message) {
            Ok(piece) => Some(piece),
            Err(message) => {
                self.held = Some(message);
                None
            }
        }
    }

    fn send(&mut self, piece: Piece) {
        if piece.last {
            self.body = None;
        }
        // An event that this watcher does not see has no bytes.
        if !piece.bytes.is_empty() {
            self.ready.push_back(piece.bytes);
        }
    }
}

impl Body for WatchStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if !ready!(self.poll_more(cx)) {
                return Poll::Ready(None);
            }
        }
    }
}
