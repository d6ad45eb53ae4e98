//! A body that somebody looks after while it is sent.

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A frame, the end, or nothing yet.
pub type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

/// Stands between a body and whoever sends it.
pub trait Follow: Send + Unpin + 'static {
    /// What is sent next: mostly the next frame of `body`.
    fn frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Polled;

    /// Nothing comes after what was sent; no frame is asked for then. False where that is not known yet.
    fn is_end(&self, body: &Body) -> bool {
        body.is_end_stream()
    }
}

/// A body with its follower, who is dropped when the body is: sent whole or not.
pub struct Followed<F> {
    body: Body,
    follow: F,
}

impl<F: Follow> Followed<F> {
    pub fn new(body: Body, follow: F) -> Self {
        Self { body, follow }
    }
}

impl<F: Follow> http_body::Body for Followed<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        this.follow.frame(&mut this.body, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.follow.is_end(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
