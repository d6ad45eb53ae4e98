//! A request and its answer, as the connection's clock and its memory see them.

use crate::activity::Activity;
use crate::follow::{Follow, Followed, Polled};
use crate::places::Place;
use crate::unsent::{Held, Unsent};
use crate::upload::Rest;
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Answers of known length up to here are not counted as memory: 250 of them, a connection's streams, are 1 MiB.
const SMALL_BYTES: u64 = 4096;

/// A request that has no answer yet. Dropped without one, it was taken back.
pub(crate) struct Open {
    activity: Option<Arc<Activity>>,
    unsent: Arc<Unsent>,
    http2: bool,
    /// It changes nothing, so that it may be refused when its answer is there.
    reads: bool,
    /// The client is to take other answers first.
    kept_waiting: bool,
}

impl Open {
    pub fn new(activity: Arc<Activity>, place: &Place, request: &Request<Incoming>) -> Self {
        let http2 = request.version() == Version::HTTP_2;
        activity.asked(http2);
        let (activity, unsent) = (Some(activity), place.unsent().clone());
        Self { activity, unsent, http2, reads: request.method().is_safe(), kept_waiting: false }
    }

    /// Waits until the client has taken enough of earlier answers. Nothing is done for the request before that.
    pub async fn room(&mut self) {
        poll_fn(|cx| self.poll_room(cx)).await;
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let room = self.unsent.poll_room(cx);
        if let Some(activity) = self.activity.as_ref().filter(|_| self.kept_waiting != room.is_pending()) {
            activity.took(self.kept_waiting, room.is_pending());
            self.kept_waiting = room.is_pending();
        }
        room
    }

    /// The answer as it is sent. In HTTP/1.1 the rest of the request is read before that.
    pub async fn answer(mut self, response: Response<Body>, rest: Option<Rest>) -> Response<Answer> {
        let activity = self.activity.take();
        if let Some(activity) = &activity {
            activity.sending(response.status() == StatusCode::SWITCHING_PROTOCOLS);
        }
        // Many requests may have been begun before the first of them had its answer.
        let is_refused = self.reads && large(&response).is_some() && !self.unsent.has_room();
        let mut response = if is_refused { too_many() } else { response };
        let held = large(&response).map(|bytes| self.unsent.hold(bytes));
        let (unsent, http2) = (self.unsent.clone(), self.http2);
        let is_counted = response.body().size_hint().exact().is_none();
        let mut answering =
            Answering { activity, sending: true, unsent, held, is_counted, rest, http2, last: None };
        if !http2 && !answering.can_follow().await {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            answering.activity.iter().for_each(|activity| activity.leaves_unread());
        }
        response.map(|body| Followed::new(body, answering))
    }
}

/// The size of an answer in one piece that is worth counting.
fn large(response: &Response<Body>) -> Option<usize> {
    let size = response.body().size_hint().exact().filter(|size| *size > SMALL_BYTES)?;
    usize::try_from(size).ok()
}

/// To whoever has asked for much and taken nothing.
fn too_many() -> Response<Body> {
    let text = "Too many answers have not been taken, please try again later.\n";
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(activity) = self.activity.take() {
            activity.taken_back(self.kept_waiting);
        }
    }
}

/// The body of an answer while it is sent.
pub type Answer = Followed<Answering>;

/// What looks after it.
pub struct Answering {
    activity: Option<Arc<Activity>>,
    /// The client is to take what is there.
    sending: bool,
    unsent: Arc<Unsent>,
    /// The part of an answer in one piece that is here still.
    held: Option<Held>,
    /// The answer is made while it is sent: each frame counts from then on.
    is_counted: bool,
    rest: Option<Rest>,
    http2: bool,
    /// The last frame, while the rest of the request is read.
    last: Option<Frame<Bytes>>,
}

impl Answering {
    fn turn(&mut self, client: bool) {
        if let Some(activity) = &self.activity {
            activity.took(self.sending, client);
        }
        self.sending = client;
    }

    fn counted(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let (held, unsent) = (&mut self.held, &self.unsent);
        match held {
            Some(held) => frame.map_data(|bytes| held.part(bytes)),
            None if self.is_counted => frame.map_data(|bytes| Held::whole(unsent, bytes)),
            None => frame,
        }
    }

    /// Reads what nobody has read of the request: whether another one can follow it.
    async fn can_follow(&mut self) -> bool {
        match &mut self.rest {
            Some(rest) => poll_fn(|cx| rest.poll_read(cx)).await,
            None => true,
        }
    }

    fn is_rest_left(&self) -> bool {
        self.rest.as_ref().is_some_and(Rest::is_left)
    }

    /// The end, or the last frame before it, once the rest of the request is read.
    fn end(&mut self, cx: &mut Context<'_>) -> Polled {
        if let Some(rest) = &mut self.rest {
            // In HTTP/1.1 only what a handler has held until now is left, and it is too late to say that it cannot be read.
            ready!(rest.poll_read(cx));
            self.rest = None;
        }
        Poll::Ready(self.last.take().map(Ok))
    }
}

impl Follow for Answering {
    fn frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Polled {
        if self.last.is_some() {
            return self.end(cx);
        }
        // What is there in one piece costs no more by being sent.
        if self.is_counted && self.unsent.poll_room(cx).is_pending() {
            if !self.sending {
                self.turn(true);
            }
            return Poll::Pending;
        }
        let frame = Pin::new(&mut *body).poll_frame(cx);
        self.turn(frame.is_ready());
        match frame {
            Poll::Ready(Some(Ok(frame))) => {
                let frame = self.counted(frame);
                // Nothing can follow the last frame in HTTP/1.1, where the length is known.
                if !self.http2 && body.is_end_stream() && self.is_rest_left() {
                    self.last = Some(frame);
                    return self.end(cx);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => self.end(cx),
            other => other,
        }
    }

    fn is_end(&self, body: &Body) -> bool {
        self.last.is_none() && body.is_end_stream() && !self.is_rest_left()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(activity) = &self.activity {
            activity.answered(self.sending);
        }
    }
}
