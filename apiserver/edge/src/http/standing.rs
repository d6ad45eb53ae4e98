//! The end of what lasts, when the credential that it was asked for with is taken back: a watch is one request, and may
//! go on for an hour.

use axum::body::Body;
use bytes::Bytes;
use coracle_access::authn::Standing;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Response;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The answer, which ends early then.
pub(super) fn until_lost(response: Response<Body>, standing: Standing) -> Response<Body> {
    let lost = async move { standing.lost().await }.boxed();
    response.map(|inner| Body::new(Until { inner, lost }))
}

struct Until {
    inner: Body,
    lost: BoxFuture<'static, ()>,
}

impl http_body::Body for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.lost.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
