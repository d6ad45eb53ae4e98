//! The end of what lasts, when the certificate that it was asked with is revoked: a watch is one request, and may go on
//! for an hour.

use super::serve::Peer;
use crate::authn::Authenticator;
use axum::body::Body;
use coracle_listen::{Follow, Followed, Polled};
use futures::future::BoxFuture;
use http::{Extensions, Response};
use http_body::Body as _;
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
    response.map(|body| Body::new(Followed::new(body, Until(revoked))))
}

struct Until(Revoked);

impl Follow for Until {
    fn frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Polled {
        if self.0.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(body).poll_frame(cx)
    }
}
