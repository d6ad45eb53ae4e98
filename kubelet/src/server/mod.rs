//! The kubelet's own port, 10250: logs, exec, attach, port-forward, the node's pods, statistics and metrics.
//!
//! Everything but the TLS handshake is authenticated and authorized through the API (upstream's delegated
//! authentication and authorization, with fine-grained subresources of `nodes`, KEP-2862).

mod access;
mod auth;
mod error;
mod logs;
mod metrics;
mod node_logs;
mod routes;
mod stats;
mod streams;

pub use stats::{Cgroups, Files, Share, VolumeStats};

use crate::pods_api::PodsApi;
use auth::Gate;
use axum::body::Body;
use coracle_client::Context;
use error::HttpError;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls_pki_types::CertificateDer;
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time for a client's TLS handshake and for each request's head. Slower clients are dropped, so that idle
/// connections of strangers cost nothing for long.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A client that vanished without a word (no FIN) is noticed after about 30 + 3 x 10 seconds.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Pause after `accept` failed (out of file descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Whether a client's certificate chain (its own first) is signed by the cluster's CA and in force; the reason if
/// not. The TLS handshake proves only that the client holds the key.
pub type Judge = Arc<dyn Fn(&[CertificateDer<'_>]) -> Result<(), String> + Send + Sync>;

/// What the server is told when it starts.
#[derive(Clone)]
pub struct ServerConfig {
    /// Upstream: `0.0.0.0:10250`.
    pub addresses: Vec<SocketAddr>,
    /// With the kubelet's serving certificate; asks clients for a certificate without demanding one.
    pub tls: Arc<rustls::ServerConfig>,
    pub judge: Judge,
    /// `metadata.name` of the Node, which authorization is asked about.
    pub node_name: String,
    /// What `/logs/` shows; upstream: `/var/log`.
    pub log_root: PathBuf,
    /// Where the volumes of pods lie: `<data-dir>/kubelet/pods`.
    pub pods_dir: PathBuf,
    /// What `/configz` shows as `kubeletconfig`.
    pub configz: serde_json::Value,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("kubelet server on {address}")]
    Bind { address: SocketAddr, source: io::Error },
}

/// What every request needs.
pub(crate) struct Server {
    pub(crate) pods: Arc<dyn PodsApi>,
    pub(crate) node_name: String,
    pub(crate) log_root: PathBuf,
    pub(crate) pods_dir: PathBuf,
    pub(crate) configz: serde_json::Value,
    /// Where the kernel counts what pods use.
    pub(crate) cgroups: Arc<Cgroups>,
    /// What they had used when statistics were last asked for.
    pub(crate) rates: stats::Rates,
    /// Ends streams.
    pub(crate) stop: CancellationToken,
    gate: Gate,
}

/// Serves until `context.stop` is cancelled; then all connections are closed. `context.client` is the kubelet's own
/// identity, which may create TokenReviews and SubjectAccessReviews.
pub async fn run(context: Context, config: ServerConfig, pods: Arc<dyn PodsApi>) -> Result<(), ServerError> {
    let mut listeners = Vec::with_capacity(config.addresses.len());
    for address in &config.addresses {
        let bound = TcpListener::bind(address).await;
        listeners.push(bound.map_err(|source| ServerError::Bind { address: *address, source })?);
    }
    serve(context, config, pods, listeners).await;
    Ok(())
}

/// [`run`] on listeners that are open already.
pub async fn serve(
    context: Context,
    config: ServerConfig,
    pods: Arc<dyn PodsApi>,
    listeners: Vec<TcpListener>,
) {
    let server = Arc::new(Server {
        pods,
        gate: Gate::new(context.client, config.node_name.clone(), config.judge),
        node_name: config.node_name,
        log_root: config.log_root,
        pods_dir: config.pods_dir,
        configz: config.configz,
        cgroups: Arc::new(Cgroups::here()),
        rates: stats::Rates::default(),
        stop: context.stop.clone(),
    });
    let acceptor = TlsAcceptor::from(config.tls);
    let tasks = TaskTracker::new();
    for listener in listeners {
        let accept = accept(listener, acceptor.clone(), server.clone(), tasks.clone());
        tasks.spawn(context.stop.clone().run_until_cancelled_owned(accept));
    }
    context.stop.cancelled().await;
    tasks.close();
    tasks.wait().await;
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, server: Arc<Server>, tasks: TaskTracker) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connection = connection(stream, acceptor.clone(), server.clone());
                let stop = server.stop.clone();
                tasks.spawn(async move {
                    if let Some(Err(error)) = stop.run_until_cancelled_owned(connection).await {
                        tracing::debug!(%peer, %error, "connection to the kubelet");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting connections to the kubelet");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    server: Arc<Server>,
) -> Result<(), ConnectionError> {
    stream.set_nodelay(true)?;
    let (idle, interval, tries) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(tries);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await??;
    let chain: Vec<CertificateDer<'static>> =
        stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    let peer = Arc::new(server.gate.peer(&chain));
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, peer) = (server.clone(), peer.clone());
        async move { Ok::<_, Infallible>(server.handle(request.map(Body::new), &peer).await) }
    });
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    http.serve_connection_with_upgrades(TokioIo::new(stream), service).await
}

impl Server {
    /// Authenticates, authorizes and answers. Errors become plain text, as upstream's kubelet words them.
    async fn handle(self: Arc<Self>, request: Request<Body>, peer: &auth::Peer) -> Response<Body> {
        let answer = async {
            let (parts, body) = request.into_parts();
            self.gate.admit(&parts, peer).await?;
            routes::answer(&self, Request::from_parts(parts, body)).await
        };
        answer.await.unwrap_or_else(HttpError::into_response)
    }
}

#[cfg(test)]
mod tests;
