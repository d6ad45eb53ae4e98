//! One request, to whichever server is asked.

use super::{Clients, Place, Servers};
use axum::body::HttpBody;
use axum::http::{Method, Request, Response};
use bytes::Bytes;
use http_body::Frame;
use kube::client::Body;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

type BoxError = Box<dyn Error + Send + Sync>;

pub(super) fn client(servers: Arc<Servers>, clients: Clients) -> kube::Client {
    let service = tower::service_fn(move |request| call(servers.clone(), clients.clone(), request));
    kube::Client::new(service, "default")
}

/// A request that changed nothing, for certain, is sent once more where another server answers; any other failure is the
/// caller's to judge.
async fn call(
    servers: Arc<Servers>,
    clients: Clients,
    request: Request<Body>,
) -> Result<Response<Cut>, BoxError> {
    let (parts, mut body) = request.into_parts();
    let mut left = servers.all().len();
    loop {
        let place = servers.place();
        let again = body.try_clone();
        let client = clients.of(&place.server)?;
        let answer = tokio::select! {
            answer = client.send(Request::from_parts(parts.clone(), body)) => answer.map_err(BoxError::from),
            () = place.gone.cancelled() => Err(given_up().into()),
        };
        let error = match answer {
            Ok(answer) => return Ok(answer.map(|body| Cut::new(body, &place))),
            Err(error) => error,
        };
        left -= 1;
        let moved = left > 0 && servers.reconsider(&place, &clients, false).await;
        match again {
            Some(again) if moved && may_be_repeated(&parts.method, &*error) => body = again,
            _ => return Err(error),
        }
    }
}

fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server does not answer, another one is asked")
}

/// It changes nothing, or there was no connection to send it over.
pub(super) fn may_be_repeated(method: &Method, error: &(dyn Error + 'static)) -> bool {
    method.is_safe() || is_unconnected(error)
}

fn is_unconnected(error: &(dyn Error + 'static)) -> bool {
    let of_system = error.downcast_ref::<io::Error>();
    let refused = of_system.is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
        )
    });
    refused || error.source().is_some_and(is_unconnected)
}

/// An answer that ends when its server is given up.
pub(super) struct Cut {
    body: Body,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Cut {
    fn new(body: Body, place: &Place) -> Self {
        let gone: CancellationToken = place.gone.clone();
        Self { body, gone: Box::pin(gone.cancelled_owned()) }
    }
}

impl HttpBody for Cut {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match self.gone.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(given_up().into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
