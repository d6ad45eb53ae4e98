//! The end of what lasts, when the certificate that it was asked with is revoked: a watch is one request, and may go on
//! for an hour.

use super::serve::Peer;
use crate::authn::Authenticator;
use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Extensions, Response};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Waits for the revocation of the certificate of the connection that a request came over.
pub(super) type Revoked = BoxFuture<'static, ()>;

/// `None` for callers in this process, and for those without a certificate.
pub(super) fn revoked(
    extensions: &Extensions,
    authenticator: Option<&Arc<Authenticator>>,
) -> Option<Revoked> {
    let identity = extensions.get::<Peer>()?.identity.clone()?;
    let authenticator = authenticator?.clone();
    Some(Box::pin(async move { authenticator.until_revoked(&identity).await }))
}

/// The answer, which ends early then.
pub(super) fn until(response: Response<Body>, revoked: Revoked) -> Response<Body> {
    response.map(|inner| Body::new(Until { inner, revoked }))
}

struct Until {
    inner: Body,
    revoked: Revoked,
}

impl http_body::Body for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.revoked.as_mut().poll(cx).is_ready() {
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
