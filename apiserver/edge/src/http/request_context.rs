//! One request from its first byte to the last of its answer: what is counted, logged and recorded of it.

use super::latency::{LatencyTracker, Step};
use super::limits::is_long_running;
use super::seats::{Seats, Taken};
use super::{RequestHeaders, RequestInfo, large, measure};
use crate::audit::{Record, Stage};
use crate::http::ServerState;
use axum::body::Body;
use bytes::Bytes;
use coracle_component_base::metrics::{Answered, Metrics};
use coracle_component_base::traces::Span;
use coracle_listen::{Follow, Followed, Polled};
use coracle_resources::catalogue::Served;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Largest answer that is taken apart for the audit log; larger ones are recorded without their body.
const AUDITED_BYTES: u64 = 16 << 20;

pub struct RequestContext {
    pub info: RequestInfo,
    /// With the span of the request in place of its client's, if it is traced.
    pub headers: RequestHeaders,
    /// The resource that the path names, if it is served here.
    pub served: Option<Served>,
    pub steps: LatencyTracker,
    pub dry_run: bool,
    pub audit_id: HeaderValue,
    pub record: Option<Record>,
    pub seats: Seats,
    /// For the log only, and only kept if it may be written.
    pub uri: Option<String>,
    pub span: Option<Box<Span>>,
    metrics: Arc<Metrics>,
    panicked: bool,
    ended: bool,
}

/// The client went before there was an answer.
impl Drop for RequestContext {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        measure::aborted(&self.metrics, &self.info, self.known());
        self.traced(None);
        if let Some(record) = &mut self.record {
            record.stage(Stage::ResponseComplete);
        }
    }
}

impl RequestContext {
    pub fn new(info: RequestInfo, headers: RequestHeaders, server: &ServerState) -> Self {
        let served = match info.is_resource {
            true => server.registry.catalogue.find(&info.group, &info.version, &info.resource),
            false => None,
        };
        let audit_id = headers.audit_id.clone().unwrap_or_else(new_audit_id);
        Self {
            info,
            headers,
            served,
            steps: LatencyTracker::default(),
            dry_run: false,
            audit_id,
            record: None,
            seats: Seats::default(),
            uri: None,
            span: None,
            metrics: server.metrics().clone(),
            panicked: false,
            ended: false,
        }
    }

    fn known(&self) -> measure::Known<'_> {
        self.served.as_ref().map(|served| &**served.resource())
    }

    pub fn panicked(&mut self) {
        self.panicked = true;
    }

    /// Completes the answer, and sees it through to its end.
    pub async fn answer(mut self, server: &Arc<ServerState>, mut response: Response<Body>) -> Response<Body> {
        self.complete(response.headers_mut());
        self.steps.done(Step::Answered);
        let status = response.status();
        let lasting =
            is_long_running(&self.info) && (status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS);
        if lasting {
            // The initial state was found; from here on it costs no seats.
            self.seats.leave();
            if let Some(record) = &mut self.record {
                record.code(status.as_u16());
                record.stage(Stage::ResponseStarted);
            }
            measure::lasting(&self.metrics, &self.info, self.known(), 1);
        }
        let size = response.body().size_hint().exact();
        if let Some(size) = size {
            if self.record.is_some() {
                response = self.recorded(response, size).await;
            }
            self.end(status, Some(size), lasting);
            return response;
        }
        // A client that reads slowly costs memory, which the connection bounds, and no seats.
        let taken = Taken::new(&self.seats);
        let end = End { context: Some((self, status, lasting, server.clone())), sent: 0, taken, again: None };
        response.map(|body| Body::new(Followed::new(body, end)))
    }

    /// An answer in one piece, kept for the audit log.
    async fn recorded(&mut self, response: Response<Body>, size: u64) -> Response<Body> {
        let wants = self.record.as_ref().is_some_and(Record::wants_response);
        let status = response.status();
        if size > AUDITED_BYTES || (!wants && status.is_success()) {
            return response;
        }
        let (parts, body) = response.into_parts();
        let bytes = match body.collect().await {
            Ok(whole) => whole.to_bytes(),
            Err(_) => Bytes::new(),
        };
        if let Some(record) = &mut self.record {
            let kind = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
            let work = || {
                let plain = crate::wire::gzip::unpacked(&parts.headers, &bytes);
                record.response(status.as_u16(), kind, &plain);
            };
            large::make(&self.seats, bytes.len(), work).await;
        }
        Response::from_parts(parts, Body::from(bytes))
    }

    /// Whether a write asks for nothing to be kept.
    pub fn is_dry_run(&self) -> bool {
        !matches!(self.info.verb, "get" | "list" | "watch") && self.info.query.is_dry_run()
    }

    /// The headers of every answer.
    fn complete(&self, headers: &mut HeaderMap) {
        headers.insert(AUDIT_ID, self.audit_id.clone());
        headers.entry(http::header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if let Some(flow) = self.seats.flow() {
            let (schema, level) = flow.uids();
            schema.map(|uid| headers.insert(SCHEMA_UID, uid));
            level.map(|uid| headers.insert(LEVEL_UID, uid));
        }
        if let Some(text) = self.served.as_ref().and_then(super::deprecation::warning) {
            super::deprecation::header(&text).map(|value| headers.append(http::header::WARNING, value));
            measure::deprecated(&self.metrics, &self.info, self.known());
        }
    }

    fn traced(&mut self, code: Option<u16>) {
        if let Some(span) = self.span.take() {
            span.finish(self.steps.elapsed(), code, &self.steps.parts());
        }
    }

    fn end(mut self, status: StatusCode, bytes: Option<u64>, lasting: bool) {
        self.ended = true;
        self.seats.leave();
        let code = status.as_u16();
        let took = self.steps.elapsed();
        if lasting {
            measure::lasting(&self.metrics, &self.info, self.known(), -1);
        }
        let answered = Answered { code, duration: took, bytes };
        measure::answered(&self.metrics, &self.info, self.known(), self.dry_run, answered);
        if let Some(record) = &mut self.record {
            record.code(code);
            record.stage(if self.panicked { Stage::Panic } else { Stage::ResponseComplete });
        }
        super::latency::log(&self, status, lasting);
        self.traced(Some(code));
    }
}

fn new_audit_id() -> HeaderValue {
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("none"))
}

/// An answer that is made while it is sent. Ends the request when the body is dropped, sent whole or not.
struct End {
    context: Option<(RequestContext, StatusCode, bool, Arc<ServerState>)>,
    sent: u64,
    /// Its seats, if it has any.
    taken: Option<Arc<Taken>>,
    /// Waits for a seat, because the client takes something again.
    again: Option<BoxFuture<'static, ()>>,
}

impl End {
    fn poll_seated(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(taken), Some((context, _, _, server))) = (&self.taken, &self.context) else {
            return Poll::Ready(());
        };
        if self.again.is_none() && !taken.is_seated() {
            self.again = Some(Box::pin(taken.clone().again(server.clone(), context.info.clone())));
        }
        if let Some(again) = &mut self.again {
            ready!(again.as_mut().poll(cx));
            self.again = None;
        }
        Poll::Ready(())
    }
}

impl Follow for End {
    fn frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Polled {
        ready!(self.poll_seated(cx));
        let frame = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        frame
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some((context, status, lasting, _)) = self.context.take() {
            context.end(status, Some(self.sent), lasting);
        }
    }
}
