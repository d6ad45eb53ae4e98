//! Sends spans by gRPC, in batches.

use super::config::Endpoint;
use super::encode;
use super::span::{Attribute, Finished};
use crate::metrics::Counter;
use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use coracle_tls::outbound::{self, ConnectError, Stream};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// The figures of OpenTelemetry's batch processor: a batch is sent when it is full, or so long after its first span.
const BATCH: usize = 512;
const BATCH_INTERVAL: Duration = Duration::from_secs(5);
/// A collector that takes longer gets no more of this batch; OpenTelemetry's default.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// At the end of the process.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("connect to the collector")]
    Dial(#[from] ConnectError),
    #[error("connect to the collector's socket")]
    Connect(#[source] std::io::Error),
    #[error("speak HTTP/2 to the collector")]
    Http(#[source] hyper::Error),
    #[error("make a request for the collector")]
    Request(#[source] http::Error),
    #[error("the collector answered {0}")]
    Status(StatusCode),
    #[error("the collector refused: code {code}: {message}")]
    Grpc { code: String, message: String },
    #[error("the collector took too long")]
    Late,
}

/// Requests whose spans were sent, and those whose could not be.
#[derive(Debug, Default)]
pub struct Figures {
    pub sent: Counter,
    pub failed: Counter,
}

pub struct Exporter {
    endpoint: Endpoint,
    resource: [(&'static str, Attribute); 2],
    connection: Option<SendRequest<Body>>,
    figures: Arc<Figures>,
    /// Failures are logged once, not for every batch.
    failing: bool,
}

impl Exporter {
    pub fn new(endpoint: Endpoint, figures: Arc<Figures>) -> Self {
        let instance = format!("apiserver-{}", uuid::Uuid::new_v4());
        let resource = [
            ("service.name", Attribute::Text("apiserver".to_owned())),
            ("service.instance.id", Attribute::Text(instance)),
        ];
        Self { endpoint, resource, connection: None, figures, failing: false }
    }

    /// Ends with `stop`, after what is there by then was sent.
    pub async fn run(mut self, mut spans: Receiver<Finished>, stop: CancellationToken) {
        let mut batch = Vec::new();
        while let Some(first) = stop.run_until_cancelled(spans.recv()).await.flatten() {
            batch.push(first);
            let gather =
                async { while batch.len() < BATCH && spans.recv_many(&mut batch, BATCH).await > 0 {} };
            // Full, late, or the last: in each case it is sent.
            let _ = tokio::time::timeout(BATCH_INTERVAL, stop.run_until_cancelled(gather)).await;
            let within = if stop.is_cancelled() { LAST_EXPORT_TIMEOUT } else { EXPORT_TIMEOUT };
            self.export(&std::mem::take(&mut batch), within).await;
        }
        while let Ok(span) = spans.try_recv() {
            batch.push(span);
        }
        if !batch.is_empty() {
            self.export(&batch, LAST_EXPORT_TIMEOUT).await;
        }
    }

    async fn export(&mut self, batch: &[Finished], within: Duration) {
        let body = framed(&encode::request(&self.resource, batch));
        let outcome = tokio::time::timeout(within, self.send(body)).await.unwrap_or(Err(ExportError::Late));
        let count = batch.len() as u64;
        match outcome {
            Ok(()) => {
                self.failing = false;
                self.figures.sent.add(count);
            }
            Err(error) => {
                self.connection = None;
                self.figures.failed.add(count);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(error = &error as &dyn std::error::Error, endpoint = ?self.endpoint, "traces are lost");
                }
            }
        }
    }

    /// A kept connection may turn out to be closed; then it is replaced, once.
    async fn send(&mut self, body: Bytes) -> Result<(), ExportError> {
        if let Some(mut kept) = self.connection.take().filter(|kept| !kept.is_closed()) {
            match call(&mut kept, body.clone()).await {
                Err(ExportError::Http(_)) => {}
                outcome => {
                    self.connection = Some(kept);
                    return outcome;
                }
            }
        }
        let mut fresh = self.connect().await?;
        let outcome = call(&mut fresh, body).await;
        self.connection = Some(fresh);
        outcome
    }

    async fn connect(&self) -> Result<SendRequest<Body>, ExportError> {
        let stream: Box<dyn Stream> = match &self.endpoint {
            Endpoint::Host { host, port } => Box::new(outbound::dial((host.as_str(), *port)).await?),
            Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(ExportError::Connect)?),
        };
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(ExportError::Http)?;
        // Its errors are those of the calls on it; it ends with its sender.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// A message as gRPC sends it: not compressed, its length, and itself.
fn framed(message: &[u8]) -> Bytes {
    let mut body = BytesMut::with_capacity(message.len() + 5);
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    body.put_slice(message);
    body.freeze()
}

async fn call(connection: &mut SendRequest<Body>, body: Bytes) -> Result<(), ExportError> {
    connection.ready().await.map_err(ExportError::Http)?;
    let request = Request::post(format!("http://collector{METHOD}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Body::from(body))
        .map_err(ExportError::Request)?;
    let answer = connection.send_request(request).await.map_err(ExportError::Http)?;
    let (parts, body) = answer.into_parts();
    if parts.status != StatusCode::OK {
        return Err(ExportError::Status(parts.status));
    }
    let body = body.collect().await.map_err(ExportError::Http)?;
    verdict(body.trailers().unwrap_or(&parts.headers))
}

/// The outcome stands in the trailers, or in the headers of an answer without a body.
fn verdict(headers: &HeaderMap) -> Result<(), ExportError> {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    match text("grpc-status").as_str() {
        "0" => Ok(()),
        code => Err(ExportError::Grpc { code: code.to_owned(), message: text("grpc-message") }),
    }
}
