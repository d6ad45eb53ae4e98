//! The port of a part that runs alone and leads: health and metrics over HTTPS, upstream's 10259 for the scheduler and
//! 10257 for the controllers.
//!
//! Health is everybody's; metrics are for whom the API lets `get` the path of the page (`/metrics`), asked with the bearer token of
//! the request (TokenReview, SubjectAccessReview). Client certificates are not asked for.

use crate::flags::this_program;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use coracle_listen::zpages::{self, Program, Zpages};
use coracle_metrics::{CONTENT_TYPE as PAGE, Text};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// A client that has not finished its handshake by then is not one.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// After an accept error, which is mostly a lack of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What every part's port serves.
const PATHS: [&str; 6] = [zpages::FLAGZ, "/healthz", "/livez", "/metrics", "/readyz", zpages::STATUSZ];

/// What health is judged by.
#[derive(Clone, Default)]
pub struct Life {
    pub leading: Arc<AtomicBool>,
    /// Whether everything that decisions need has been read; the check's name, where there is one.
    pub synced: Option<(&'static str, Arc<AtomicBool>)>,
}

/// Writes the samples of a part.
pub type Samples = Arc<dyn Fn(&mut Text) + Send + Sync>;

/// A page beside `/metrics`, at its path.
pub type OtherPage = (&'static str, Samples);

struct Port {
    /// As upstream calls the part.
    component: &'static str,
    program: Arc<Program>,
    client: kube::Client,
    samples: Samples,
    other: Option<OtherPage>,
    life: Life,
}

/// What the command line says of the port.
pub struct Wanted {
    pub address: IpAddr,
    /// `--secure-port`; 0 is none.
    pub port: Option<u16>,
    /// Upstream's, where nobody asks for another.
    pub default: u16,
}

impl Wanted {
    /// Takes the port; a default one that somebody else has (another one of this machine) is gone without.
    ///
    /// # Errors
    /// An address that was asked for cannot be had.
    pub async fn bind(&self) -> Result<Option<Arc<TcpListener>>, String> {
        let port = self.port.unwrap_or(self.default);
        if self.port == Some(0) {
            return Ok(None);
        }
        bind(SocketAddr::new(self.address, port), self.port.is_none()).await
    }
}

async fn bind(address: SocketAddr, default: bool) -> Result<Option<Arc<TcpListener>>, String> {
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(Arc::new(listener))),
        Err(error) if default => {
            tracing::warn!(%address, %error, "no health and metrics port; --secure-port chooses another");
            Ok(None)
        }
        Err(error) => Err(format!("{address}: {error}")),
    }
}

/// Serves the port of `component`, as upstream calls the part, until `stop`.
///
/// # Errors
/// No certificate can be made.
pub fn serve(
    component: &'static str,
    listener: Arc<TcpListener>,
    client: kube::Client,
    (samples, other): (Samples, Option<OtherPage>),
    life: Life,
    stop: CancellationToken,
) -> Result<(), String> {
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let connections = handshakes(listener, certificate(address.ip())?.into(), stop.clone());
    let mut router = Router::new()
        .route("/healthz", get(health))
        .route("/livez", get(health))
        .route("/readyz", get(ready))
        .route("/healthz/{check}", get(one))
        .route("/livez/{check}", get(one))
        .route("/readyz/{check}", get(one))
        .route(zpages::STATUSZ, get(zpage))
        .route(zpages::FLAGZ, get(zpage))
        .route("/metrics", get(page));
    if let Some((path, _)) = &other {
        router = router.route(path, get(other_page));
    }
    let router = router.with_state(Arc::new(Port {
        component,
        program: this_program(),
        client,
        samples,
        other,
        life,
    }));
    let served = axum::serve(Connections { arriving: connections, address }, router);
    tokio::spawn(async move {
        if let Err(error) = served.with_graceful_shutdown(stop.cancelled_owned()).await {
            tracing::warn!(%error, "health and metrics port");
        }
    });
    tracing::info!(%address, "health and metrics");
    Ok(())
}

/// Connections whose handshake is done.
struct Connections {
    arriving: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl Listener for Connections {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.arriving.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(self.address)
    }
}

/// Shakes hands with each client in a task of its own, so that a slow one keeps nobody waiting.
fn handshakes(
    listener: Arc<TcpListener>,
    acceptor: TlsAcceptor,
    stop: CancellationToken,
) -> mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            let Ok((stream, client)) = accepted else {
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            };
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await
                {
                    // Nobody listens when the part ends.
                    let _ = sender.send((stream, client)).await;
                }
            });
        }
    });
    receiver
}

/// A certificate of its own, as upstream makes one when it is given none.
fn certificate(address: IpAddr) -> Result<Arc<rustls::ServerConfig>, String> {
    let names = vec!["localhost".to_owned(), address.to_string()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

type Check = (&'static str, bool);

impl Port {
    /// The process ends when it loses its lease, so whoever answers has not.
    fn alive() -> Vec<Check> {
        vec![("ping", true), ("leaderElection", true)]
    }

    /// Whoever waits to lead has nothing to read yet, and is ready to take over.
    fn ready(&self) -> Vec<Check> {
        let mut checks = Self::alive();
        if let Some((name, synced)) = &self.life.synced {
            let waits = !self.life.leading.load(Ordering::Relaxed);
            checks.push((name, waits || synced.load(Ordering::Relaxed)));
        }
        checks
    }
}

fn verdict(name: &str, checks: &[Check], query: Option<&str>) -> Response {
    let passed = checks.iter().all(|(_, ok)| *ok);
    let verbose = query.is_some_and(|q| q.split('&').any(|p| p == "verbose" || p.starts_with("verbose=")));
    if passed && !verbose {
        return "ok".into_response();
    }
    let mut text = String::new();
    for (check, ok) in checks {
        // Writing to a string cannot fail.
        let _ = match ok {
            true => writeln!(text, "[+]{check} ok"),
            false => writeln!(text, "[-]{check} failed: reason withheld"),
        };
    }
    let _ = writeln!(text, "{name} check {}", if passed { "passed" } else { "failed" });
    let code = if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (code, text).into_response()
}

async fn health(RawQuery(query): RawQuery) -> Response {
    verdict("healthz", &Port::alive(), query.as_deref())
}

async fn ready(State(port): State<Arc<Port>>, RawQuery(query): RawQuery) -> Response {
    verdict("readyz", &port.ready(), query.as_deref())
}

async fn one(State(port): State<Arc<Port>>, Path(check): Path<String>) -> Response {
    match port.ready().iter().find(|(name, _)| *name == check) {
        Some((_, true)) => "ok".into_response(),
        Some(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "internal server error: reason withheld\n").into_response()
        }
        None => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
    }
}

async fn page(State(port): State<Arc<Port>>, headers: HeaderMap) -> Response {
    if let Err(refusal) = admit(&port.client, "/metrics", &headers).await {
        return refusal;
    }
    let mut text = Text::default();
    (port.samples)(&mut text);
    coracle_client::metrics::render(&mut text);
    ([(CONTENT_TYPE, PAGE)], Body::from(text.finish())).into_response()
}

async fn zpage(State(port): State<Arc<Port>>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(refusal) = admit(&port.client, uri.path(), &headers).await {
        return refusal;
    }
    let mut paths = PATHS.to_vec();
    paths.extend(port.other.as_ref().map(|(path, _)| *path));
    paths.sort_unstable();
    let pages = Zpages { component: port.component, program: &port.program, paths: &paths };
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    pages.response(uri.path(), accept).map(Body::from)
}

async fn other_page(State(port): State<Arc<Port>>, headers: HeaderMap) -> Response {
    let Some((path, samples)) = &port.other else { return StatusCode::NOT_FOUND.into_response() };
    if let Err(refusal) = admit(&port.client, path, &headers).await {
        return refusal;
    }
    let mut text = Text::default();
    samples(&mut text);
    ([(CONTENT_TYPE, PAGE)], Body::from(text.finish())).into_response()
}

fn refusal(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, [(CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}

/// Whether whoever asks may read the page of metrics at `path`.
async fn admit(client: &kube::Client, path: &str, headers: &HeaderMap) -> Result<(), Response> {
    let broken =
        |error: kube::Error| refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &error.to_string());
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.split_once(' '));
    let user = match token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
        Some((_, token)) => known(client, token.trim()).await.map_err(broken)?,
        None => Some(UserInfo {
            username: Some("system:anonymous".to_owned()),
            groups: Some(vec!["system:unauthenticated".to_owned()]),
            ..UserInfo::default()
        }),
    };
    let Some(user) = user else {
        return Err(refusal(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"));
    };
    let name = user.username.clone().unwrap_or_default();
    if may_read(client, path, user).await.map_err(broken)? {
        return Ok(());
    }
    let text = format!("forbidden: User {name:?} cannot get path {path:?}");
    Err(refusal(StatusCode::FORBIDDEN, "Forbidden", &text))
}

async fn known(client: &kube::Client, token: &str) -> Result<Option<UserInfo>, kube::Error> {
    let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = answer.status.unwrap_or_default();
    Ok(status.user.filter(|_| status.authenticated == Some(true)))
}

async fn may_read(client: &kube::Client, path: &str, user: UserInfo) -> Result<bool, kube::Error> {
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    Ok(status.allowed && status.denied != Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(response: Response) -> (u16, String) {
        let code = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 4096).await.expect("a body");
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn health_is_told_in_upstreams_form() {
        let good = [("ping", true), ("sched-handler-sync", true)];
        assert_eq!(text(verdict("readyz", &good, None)).await, (200, "ok".to_owned()));
        let (code, said) = text(verdict("readyz", &good, Some("verbose"))).await;
        assert_eq!(
            (code, said.as_str()),
            (200, "[+]ping ok\n[+]sched-handler-sync ok\nreadyz check passed\n")
        );
        let bad = [("ping", true), ("sched-handler-sync", false)];
        let (code, said) = text(verdict("readyz", &bad, None)).await;
        assert_eq!(code, 500);
        assert_eq!(said, "[+]ping ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n");
    }
}
