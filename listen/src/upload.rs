//! The body of a request, of which nothing stays unread.
//!
//! Who answers a request before its body is read (it is forbidden, or too large) ends a conversation in which the other side
//! still speaks: HTTP/1.1 closes the connection under what comes in, HTTP/2 resets the stream, and clients lose the answer
//! over it. So what nobody has read is read away, within bounds: in HTTP/1.1 before the answer begins, whose head says
//! `Connection: close` if that was not enough, so that nobody sends another request into a connection that ends; in HTTP/2
//! before the answer ends.

use crate::follow::Polled;
use axum::body::Body;
use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body as _, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Most of an unread body that is read away: what the API takes (3 MiB), and as much again of one that is refused for its
/// size. Whoever sends more finds that the connection ends ([`crate::linger`]).
const UNREAD_BYTES: usize = 8 << 20;

/// And for so long. What a client has sent before it could see the answer is here by then, over any line that it would wait
/// for.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(1);

/// What is left of a body.
#[derive(Default)]
enum Left {
    /// Its handler has it.
    #[default]
    Held,
    /// It was read to its end.
    Nothing,
    /// The client waits to be asked for it, and nobody asked.
    Unasked,
    Unread(Incoming),
}

type Slot = Arc<Mutex<Left>>;

/// The request as its handler gets it, and what its answer needs to end well: nothing if there is no body.
pub(crate) fn watched(request: Request<Incoming>) -> (Request<Body>, Option<Rest>) {
    if request.body().is_end_stream() {
        return (request.map(Body::new), None);
    }
    // Such a client sends its body when it is asked to, which reading does.
    let expects = request.version() < Version::HTTP_2 && request.headers().contains_key(EXPECT);
    let slot = Slot::default();
    let rest = Rest { slot: slot.clone(), unread: None };
    let upload = |body| Body::new(Upload { body: Some(body), asked_for: !expects, slot });
    (request.map(upload), Some(rest))
}

/// The body while its handler has it.
struct Upload {
    body: Option<Incoming>,
    /// The client sends it.
    asked_for: bool,
    slot: Slot,
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        self.asked_for = true;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        *self.slot.lock() = match self.body.take() {
            Some(body) if body.is_end_stream() => Left::Nothing,
            None => Left::Nothing,
            Some(_) if !self.asked_for => Left::Unasked,
            Some(body) => Left::Unread(body),
        };
    }
}

/// What a handler leaves unread.
pub(crate) struct Rest {
    slot: Slot,
    unread: Option<Unread>,
}

struct Unread {
    body: Incoming,
    bytes: usize,
    time: Pin<Box<Sleep>>,
}

impl Rest {
    /// Something is left. A body that somebody still holds is not.
    pub fn is_left(&self) -> bool {
        self.unread.is_some() || matches!(*self.slot.lock(), Left::Unread(_))
    }

    /// Ready when it is read, or the bounds are reached: whether another request can follow on the connection.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut slot = self.slot.lock();
        match std::mem::replace(&mut *slot, Left::Nothing) {
            Left::Unread(body) => {
                self.unread = Some(Unread { body, bytes: 0, time: Box::pin(sleep(UNREAD_TIMEOUT)) });
            }
            other => *slot = other,
        }
        let unasked = matches!(*slot, Left::Unasked);
        drop(slot);
        let Some(unread) = &mut self.unread else { return Poll::Ready(!unasked) };
        let whole = ready!(unread.poll(cx));
        self.unread = None;
        Poll::Ready(whole)
    }
}

impl Unread {
    /// Whether it was read to its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.bytes <= UNREAD_BYTES {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.bytes += frame.data_ref().map_or(0, Bytes::len),
                Poll::Ready(end) => return Poll::Ready(end.is_none()),
                Poll::Pending => return self.time.as_mut().poll(cx).map(|()| false),
            }
        }
        Poll::Ready(false)
    }
}
