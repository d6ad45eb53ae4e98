//! A request from its first byte to the answer: who, may they, what, and how it is told.

use super::admit_connect::{self, Admitted};
use super::handler::Handler;
use super::latency::{self, Step};
use super::limits::{self, is_long_running};
use super::request_context::RequestContext;
use super::resources::Call;
use super::route::NoRoute;
use super::seats::Seats;
use super::serve::Peer;
use super::{RequestHeaders, RequestInfo, measure, non_resource, standing, upload};
use crate::audit;
use crate::connect;
use crate::flowcontrol::{self, Asker, Flow, width};
use crate::http::ServerState;
use crate::wire::negotiation::Wanted;
use crate::wire::respond::{Reply, error_response, method_not_allowed};
use axum::body::Body;
use coracle_access::authn::{self, Known, Proof, Standing};
use coracle_access::authz::{Attributes, Authorizer, Decision, Verdict};
use coracle_admission::{annotations, deadline};
use coracle_api::{ApiError, UserInfo};
use coracle_component_base::traces::{self, Attribute, Context};
use coracle_listen::Place;
use coracle_registry::list::rest_token;
use coracle_resources::catalogue::Served;
use futures::FutureExt;
use http::header::{CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Extensions, HeaderValue, Request, Response, StatusCode};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

/// Answers every request; errors and panics become Status objects.
///
/// In upstream's order: authentication, the audit log, impersonation, priority and fairness, authorization, and then
/// the request itself, within its time.
pub async fn handle(server: Arc<ServerState>, request: Request<Body>) -> Response<Body> {
    let info = RequestInfo::new(request.method(), request.uri());
    let headers = RequestHeaders::of(request.headers());
    let wanted = Wanted::new(&headers, &info.query, info.is_resource);
    let shown = *wanted.as_ref().unwrap_or(&Wanted::default());
    let mut context = RequestContext::new(info, headers, &server);
    if latency::verbose() {
        context.uri = request.uri().path_and_query().map(ToString::to_string);
    }
    let work = AssertUnwindSafe(admit(&server, &mut context, wanted, shown, request)).catch_unwind();
    let outcome = work.await.unwrap_or_else(|_| {
        context.panicked();
        tracing::error!(verb = context.info.verb, path = context.info.path, "panic while serving a request");
        Err(ApiError::internal("the server panicked while serving this request"))
    });
    let response = outcome.unwrap_or_else(|error| failure(&error, shown));
    context.answer(&server, response).await
}

/// Health, metrics, logs and streams are not negotiated, and what other servers answer is theirs to negotiate.
fn needs_json(server: &ServerState, info: &RequestInfo) -> bool {
    let aggregator = &server.aggregator;
    let own = || aggregator.local(&info.group, &info.version).is_none() && aggregator.find(info).is_none();
    info.is_resource && !connect::handles(&info.resource, &info.subresource) && own()
}

fn failure(error: &ApiError, wanted: Wanted) -> Response<Body> {
    let Some(token) = rest_token(error) else { return error_response(error, wanted) };
    let mut status = error.to_status();
    status["metadata"]["continue"] = token.into();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("details");
    }
    Reply::json(http::StatusCode::GONE, status).into_response(wanted)
}

/// Everything before the request itself.
async fn admit(
    server: &Arc<ServerState>,
    context: &mut RequestContext,
    wanted: Result<Wanted, ApiError>,
    shown: Wanted,
    mut request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let began = Instant::now();
    let found = authenticate(server, context, request.extensions()).await;
    let known = found.as_ref().ok().map(|known| &known.user);
    server.metrics().authenticated(known.map(|user| user.name.as_str()), began.elapsed());
    context.steps.done(Step::Authenticated);
    record(server, context, known.unwrap_or(&UserInfo::default()), &request);
    if let Some(record) = &mut context.record {
        record.arrived().await?;
    }
    let Known { mut user, proof } = found?;
    if let Some(place) =
        request.extensions().get::<Arc<Place>>().filter(|_| !user.in_group("system:unauthenticated"))
    {
        place.known();
    }
    trace(server, context, &user, &mut request);
    let asked = attributes(&context.info, &user);
    let other = impersonate(server, &asked, &context.headers.credentials).await?;
    if let Some(other) = other {
        user = other;
        if let Some(record) = &mut context.record {
            record.impersonated(&user);
        }
    }
    if context.info.verb == "watch" || !is_long_running(&context.info) {
        if !seat(server, context, &user).await {
            return Ok(too_many());
        }
        if matches!(context.info.verb, "list" | "watch") {
            // What takes long begins after everybody has arrived who is there: only those wait their turn for seats who
            // were seen.
            tokio::task::yield_now().await;
        }
    }
    context.steps.done(Step::Seated);
    authorize(server, context, &user).await?;
    context.steps.done(Step::Authorized);
    let wanted = match wanted {
        Err(error) if needs_json(server, &context.info) => return Err(error),
        _ => shown,
    };
    if is_long_running(&context.info) {
        return Box::pin(lasting(server, context, wanted, &user, proof, request)).await;
    }
    in_time(server, context, wanted, &user, request).await
}

/// Begins the span of the request, if it is to be traced; whoever it leads to is told.
fn trace(server: &ServerState, context: &mut RequestContext, user: &UserInfo, request: &mut Request<Body>) {
    let Some(tracer) = &server.tracer else { return };
    // As upstream: others could have everything traced.
    let trusted = user.in_group("system:masters") || user.in_group("system:monitoring");
    let parent = context.headers.trace_parent.as_ref().and_then(Context::parse);
    let describe = || {
        let text = |value: &HeaderValue| Attribute::Text(value.to_str().unwrap_or_default().to_owned());
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        let mut attributes = vec![
            ("http.request.method", Attribute::Text(request.method().to_string())),
            ("http.target", Attribute::Text(target.to_owned())),
            ("audit-id", text(&context.audit_id)),
        ];
        attributes
            .extend(context.headers.user_agent.as_ref().map(|agent| ("user_agent.original", text(agent))));
        (context.info.pattern(request.method()), attributes)
    };
    let Some(span) = tracer.begin(parent, trusted, describe) else { return };
    request.headers_mut().insert(traces::HEADER, span.header());
    context.headers.trace_parent = Some(span.header());
    context.span = Some(Box::new(span));
}

/// Begins the record of the audit log, if the request is to have one.
fn record(server: &ServerState, context: &mut RequestContext, user: &UserInfo, request: &Request<Body>) {
    let Some(log) = &server.audit else { return };
    let source = audit::Source {
        audit_id: context.audit_id.to_str().unwrap_or_default(),
        uri: request.uri().path_and_query().map_or("", |p| p.as_str()),
        user_agent: context.headers.user_agent(),
        address: request.extensions().get::<Peer>().map(|peer| peer.address.ip()),
        forwarded_for: context.headers.forwarded_for(),
    };
    context.record = log.begin(source, user, &context.info);
}

/// Seats for the request; false if it is refused.
async fn seat(server: &ServerState, context: &mut RequestContext, user: &UserInfo) -> bool {
    let info = &context.info;
    let Some(flow) = server.flow.classify(user, info) else { return false };
    let seats = if flow.is_exempt() { 1 } else { seats(server, info, &flow) };
    let entered = server.flow.enter(&flow, seats, Asker { user: &user.name, info }).await;
    let is_seated = entered.is_ok();
    context.seats = Seats::new(&user.name);
    context.seats.sit(flow, entered.ok());
    is_seated
}

fn seats(server: &ServerState, info: &RequestInfo, flow: &Flow) -> u32 {
    if !matches!(info.verb, "list" | "watch") {
        return 1;
    }
    let count = || {
        let resource = server.registry.catalogue.by_plural(&info.group, &info.version, &info.resource);
        resource.map_or(0, |r| server.registry.cache.snapshot(&r.storage.key).objects.len())
    };
    width::seats(info, || flow.max_seats(), count)
}

/// Upstream's answer to those whom no seat was found for.
fn too_many() -> Response<Body> {
    let mut response = Response::new(Body::from(flowcontrol::TOO_MANY));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A request without an end of its own: until the server stops, or whoever asked is known no more.
async fn lasting(
    server: &Arc<ServerState>,
    context: &mut RequestContext,
    wanted: Wanted,
    user: &UserInfo,
    proof: Proof,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    context.dry_run = context.is_dry_run();
    let mut request = request;
    let authenticator = server.authenticator.as_ref();
    let standing = authenticator.and_then(|a| Standing::of(a, &server.registry.cache, proof));
    if let Some(standing) = &standing {
        request.extensions_mut().insert(standing.clone());
    }
    let RequestContext { info, headers, served, record, seats, .. } = context;
    let asked = AuthorizedRequest { info, headers, served: served.as_ref(), wanted, user, seats };
    let work = Box::pin(serve(server, asked, request));
    let answer = annotated(record.as_mut(), work).await?;
    Ok(match standing {
        Some(standing) => standing::until_lost(answer, standing),
        None => answer,
    })
}

/// The request itself, with its annotations, until its time is over.
async fn in_time(
    server: &Arc<ServerState>,
    context: &mut RequestContext,
    wanted: Wanted,
    user: &UserInfo,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    context.dry_run = context.is_dry_run();
    let _counted = measure::in_flight(server.metrics(), &context.info);
    let time = limits::deadline(&context.info.query, server.request_timeout)?
        .saturating_sub(context.steps.elapsed());
    let end = tokio::time::Instant::now() + time;
    let request = Box::pin(upload::whole(server, context, user, request, end)).await?;
    let RequestContext { info, headers, served, record, seats, .. } = context;
    let asked = AuthorizedRequest { info, headers, served: served.as_ref(), wanted, user, seats };
    // Boxed, because it is wrapped twice below, and each layer would hold it again.
    let work = Box::pin(serve(server, asked, request));
    let work = traces::within(headers.trace_parent.clone(), work);
    let work = tokio::time::timeout_at(end, deadline::until(end, work));
    let outcome = annotated(record.as_mut(), work).await;
    outcome.unwrap_or_else(|_| Err(limits::timed_out()))
}

/// Runs a request and records what it was annotated with.
async fn annotated<F: Future>(record: Option<&mut audit::Record>, work: F) -> F::Output {
    let Some(record) = record else { return work.await };
    let (outcome, annotations) = annotations::collect(work).await;
    for (key, value) in &annotations {
        if record.wants_request() || !annotations::is_of_request(key) {
            record.annotate(key, value);
        }
    }
    outcome
}

/// What is asked for, as it was read, and by whom.
struct AuthorizedRequest<'a> {
    info: &'a RequestInfo,
    headers: &'a RequestHeaders,
    served: Option<&'a Served>,
    wanted: Wanted,
    user: &'a UserInfo,
    seats: &'a Seats,
}

async fn serve(
    server: &Arc<ServerState>,
    asked: AuthorizedRequest<'_>,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let AuthorizedRequest { info, headers, served, wanted, user, seats } = asked;
    // What is seldom taken must not make every request's future large.
    match Handler::find(server, info, served, request.method()) {
        Ok(Handler::Aggregated(remote)) => {
            Ok(Box::pin(server.aggregator.answer(&remote, user, request, &server.stop)).await)
        }
        Ok(Handler::NonResource) => non_resource::answer(server, (info, seats), wanted, headers).await,
        Ok(Handler::Local(service)) => service.answer(info, headers).await,
        Ok(Handler::Connect) => Box::pin(stream(server, info, user, request)).await,
        Ok(Handler::Resource(route)) => {
            let (parts, body) = request.into_parts();
            let wanted = match route.served.custom().filter(|_| info.subresource != "scale") {
                Some(_) => Wanted::of_custom(headers, &info.query)?,
                None => wanted,
            };
            let pieces = parts.extensions.get();
            let call = Call { server, info, user, seats, headers, wanted, route, pieces };
            call.answer(body).await
        }
        Err(NoRoute::Refused(error)) => Err(error),
        Err(NoRoute::Method(allowed)) => Ok(method_not_allowed(&allowed, wanted)),
    }
}

/// In memory the caller says who it is; over a socket, its credentials do.
async fn authenticate(
    server: &ServerState,
    context: &RequestContext,
    extensions: &Extensions,
) -> Result<Known, ApiError> {
    let path = &context.info.path;
    let known = extensions.get::<UserInfo>().cloned();
    match (known, &server.authenticator) {
        (Some(user), _) => Ok(Known::unproven(user)),
        (None, Some(authenticator)) => {
            let identity = extensions.get::<Peer>().and_then(|peer| peer.identity.as_ref());
            authenticator.authenticate(identity, &context.headers.credentials, path).await
        }
        (None, None) if authn::is_public(path) => Ok(Known::unproven(UserInfo::anonymous())),
        (None, None) => Err(ApiError::unauthorized()),
    }
}

/// The user that the request's headers ask to go on as.
async fn impersonate(
    server: &ServerState,
    asked: &Attributes<'_>,
    said: &authn::Credentials,
) -> Result<Option<UserInfo>, ApiError> {
    if !said.ask_to_impersonate() {
        return Ok(None);
    }
    let work = |authorizer: &dyn Authorizer| authn::impersonate_request(asked, said, authorizer);
    Box::pin(server.authorizer.settle(work)).await
}

async fn authorize(
    server: &ServerState,
    context: &mut RequestContext,
    user: &UserInfo,
) -> Result<(), ApiError> {
    let info = &context.info;
    // Upstream's --authorization-always-allow-paths.
    let root = info.path.split('/').nth(1).unwrap_or_default();
    if !info.is_resource && matches!(root, "livez" | "readyz" | "healthz") {
        return Ok(());
    }
    let attributes = attributes(info, user);
    let verdict = judged(server, &attributes).await;
    if let Some(record) = &mut context.record {
        let allowed = verdict.is_allowed();
        let (Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason)) =
            &verdict.decision;
        // Upstream's annotations: a decision that could not be made is none.
        let failed = verdict.error.is_some() && !allowed;
        if !failed {
            record.annotate("authorization.k8s.io/decision", if allowed { "allow" } else { "forbid" });
        }
        record.annotate("authorization.k8s.io/reason", if failed { "internal error" } else { reason });
    }
    verdict.into_result(|reason| attributes.forbidden(reason))
}

/// Asks who decides, and counts what is said.
async fn judged(server: &ServerState, attributes: &Attributes<'_>) -> Verdict {
    let began = Instant::now();
    let verdict = server.authorizer.authorize(attributes).await;
    server.metrics().authorized(verdict.is_allowed(), began.elapsed());
    verdict
}

/// What is asked, for those who allow it.
fn attributes<'a>(info: &'a RequestInfo, user: &'a UserInfo) -> Attributes<'a> {
    if !info.is_resource {
        return Attributes::path(user, info.verb, &info.path);
    }
    Attributes {
        version: &info.version,
        subresource: &info.subresource,
        name: &info.name,
        field_selector: info.selectors.as_ref().map_or("", |selectors| &selectors.field_text),
        label_selector: info.selectors.as_ref().map_or("", |selectors| &selectors.label_text),
        ..Attributes::resource(user, info.verb, &info.group, &info.resource, &info.namespace)
    }
}

/// A WebSocket begins with a GET, and a right to read is none to enter a pod: who opens a stream by GET may `create` it, too, as
/// upstream asks since 1.35 (`AuthorizePodWebsocketUpgradeCreatePermission`), behind admission and in its words.
async fn may_create(server: &ServerState, info: &RequestInfo, user: &UserInfo) -> Result<(), ApiError> {
    let opens = info.resource == "pods" && matches!(&*info.subresource, "exec" | "attach" | "portforward");
    if !opens || info.verb == "create" {
        return Ok(());
    }
    let asked = Attributes { verb: "create", ..attributes(info, user) };
    let forbidden = |reason: &str| ApiError::forbidden(&info.group, &info.resource, &info.name, reason);
    // Not counted among the requests that were authorized: upstream counts a request once.
    server.authorizer.authorize(&asked).await.into_result(forbidden)
}

async fn stream(
    server: &Arc<ServerState>,
    info: &RequestInfo,
    user: &UserInfo,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let Admitted { request, query } = admit_connect::admit(server, info, user, request).await?;
    may_create(server, info, user).await?;
    let Some(kubelets) = &server.kubelets else {
        return Err(ApiError::unavailable("this server has no client for kubelets"));
    };
    let target = connect::Target {
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: if info.resource == "nodes" { "" } else { &info.namespace },
        name: &info.name,
        rest_at: info.rest_at,
    };
    let query = query.as_ref().unwrap_or(&info.query);
    connect::connect(request, target, query, &*server.registry.cache, kubelets).await
}
