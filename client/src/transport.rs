//! The two ways a `kube::Client` reaches the API server: in memory, and over HTTPS (`kube::Config`).

use crate::beat::{self, Patience};
use crate::metrics;
use bytes::Bytes;
use coracle_api::UserInfo;
use http::{Request, Response};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tower::{BoxError, Service};

/// Maps `kube`'s requests onto the API server's own service, as the given user.
#[derive(Clone)]
pub struct InProcess<S> {
    service: S,
    user: UserInfo,
}

/// A client whose requests are calls of `service`: no socket, no TLS; the identity travels as a request extension.
pub fn in_process<S, B, R>(service: S, user: UserInfo) -> kube::Client
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: From<Bytes> + Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    kube::Client::new(InProcess { service, user }.boxed_for::<B>(), "default")
}

/// [`InProcess`] with the request body of the service it calls fixed.
struct Typed<S, B> {
    inner: InProcess<S>,
    body: std::marker::PhantomData<fn(B)>,
}

impl<S> InProcess<S> {
    fn boxed_for<B>(self) -> Typed<S, B> {
        Typed { inner: self, body: std::marker::PhantomData }
    }
}

impl<S, B, R> Service<Request<kube::client::Body>> for Typed<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: From<Bytes> + Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.service.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut service = self.inner.service.clone();
        let user = self.inner.user.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            parts.extensions.insert(user);
            let bytes = body.collect_bytes().await?;
            let (method, began) = (parts.method.clone(), Instant::now());
            let asked = service.call(Request::from_parts(parts, B::from(bytes)));
            // The server has its own time limit, and may have to ask webhooks.
            let answer = beat::working(Patience::Long, asked).await.map_err(Into::into);
            let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
            metrics::requested(&method, code, began.elapsed());
            answer
        })
    }
}
