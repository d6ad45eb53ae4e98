//! A request and its answer, as the connection's clock sees them.

use crate::activity::Activity;
use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A request that has no answer yet. Dropped without one, it was taken back.
pub(crate) struct Open(Option<Arc<Activity>>);

impl Open {
    pub fn new(activity: Arc<Activity>, http2: bool) -> Self {
        activity.asked(http2);
        Self(Some(activity))
    }

    pub fn answer(mut self, response: Response<Body>) -> Response<Answer> {
        let activity = self.0.take();
        if let Some(activity) = &activity {
            activity.sending(response.status() == StatusCode::SWITCHING_PROTOCOLS);
        }
        response.map(|body| Answer { body, activity, sending: true })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(activity) = self.0.take() {
            activity.taken_back();
        }
    }
}

/// The body of an answer while it is sent.
pub struct Answer {
    body: Body,
    activity: Option<Arc<Activity>>,
    /// The client is to take what is there.
    sending: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let more = frame.is_ready();
        if let Some(activity) = &self.activity {
            activity.took(self.sending, more);
        }
        self.sending = more;
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(activity) = &self.activity {
            activity.answered(self.sending);
        }
    }
}
