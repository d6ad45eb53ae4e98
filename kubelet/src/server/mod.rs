//! The kubelet's own port, 10250: logs, exec, attach, port-forward, the node's pods, statistics and metrics.
//!
//! Everything but the TLS handshake is authenticated and authorized through the API (upstream's delegated
//! authentication and authorization, with fine-grained subresources of `nodes`, KEP-2862).

mod access;
mod auth;
mod checkpoint;
mod error;
mod healthz;
mod local_path;
mod logs;
mod metrics;
mod node_logs;
mod routes;
mod stats;
mod streams;

pub use healthz::healthz;
pub use stats::Cgroups;

use crate::configuration::port::PortSettings;
use crate::metrics::{Metric, Metrics};
use crate::pods_api::PodsApi;
use crate::streaming::Ends;
use auth::{Admitted, Gate};
use axum::body::Body;
use coracle_client::Context;
use coracle_listen::zpages::Program;
use coracle_listen::{Limits, Place, Places, Settings};
use coracle_storage::transfer::NodeVolumes;
use error::HttpError;
use http::{Method, Request, Response};
use rustls_pki_types::CertificateDer;
use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// First parts of the paths that are served.
const PATHS: [&str; 17] = [
    "attach",
    "configz",
    "containerLogs",
    "exec",
    "flagz",
    "healthz",
    "livez",
    "localPath",
    "logs",
    "metrics",
    "pods",
    "portForward",
    "readyz",
    "run",
    "runningpods",
    "stats",
    "statusz",
];
/// Of the process's descriptors, in eighths.
const SHARE: usize = 1;

/// Whether a client's certificate chain (its own first) is signed by the cluster's CA and in force; the reason if
/// not. The TLS handshake proves only that the client holds the key.
pub type Judge = Arc<dyn Fn(&[CertificateDer<'_>]) -> Result<(), String> + Send + Sync>;

/// What the server is told when it starts.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where to listen, who gets in, and what there is.
    pub port: PortSettings,
    /// With the kubelet's serving certificate; asks clients for a certificate without demanding one.
    pub tls: Arc<rustls::ServerConfig>,
    pub judge: Judge,
    /// `metadata.name` of the Node, which authorization is asked about.
    pub node_name: String,
    /// What `/logs/` shows; upstream: `/var/log`.
    pub log_root: PathBuf,
    /// Where the volumes of pods lie: `<data-dir>/kubelet/pods`.
    pub pods_dir: PathBuf,
    /// Volumes that this node keeps, to be moved.
    pub volumes: NodeVolumes,
    /// How long nothing may move on exec, attach and port-forward; zero is for ever.
    pub stream_idle: Duration,
    /// What `/configz` shows as `kubeletconfig`.
    pub configz: Configz,
    /// What `/statusz` and `/flagz` tell.
    pub program: Arc<Program>,
    /// The kubelet's own.
    pub metrics: Metrics,
    /// What `/metrics` tells of the process beside them.
    pub process_metrics: ProcessMetrics,
}

/// Says the settings in force.
pub type Configz = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Samples in Prometheus' text form.
pub type ProcessMetrics = Arc<dyn Fn() -> String + Send + Sync>;

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
    pub(crate) volumes: NodeVolumes,
    pub(crate) configz: Configz,
    pub(crate) metrics: Metrics,
    pub(crate) process_metrics: ProcessMetrics,
    pub(crate) program: Arc<Program>,
    /// Whether there are exec, logs and their like, and the machine's own logs.
    pub(crate) debugging: bool,
    pub(crate) system_logs: bool,
    /// Where the kernel counts what pods use.
    pub(crate) cgroups: Arc<Cgroups>,
    /// CPU time of each cgroup at the last request for statistics: a rate is the difference to it.
    pub(crate) rates: stats::Rates,
    /// Ends streams.
    pub(crate) stop: CancellationToken,
    /// Likewise, when nothing moves for so long.
    pub(crate) stream_idle: Duration,
    gate: Arc<Gate>,
}

/// Serves until `context.stop` is cancelled; then all connections are closed. `context.client` is the kubelet's own
/// identity, which may create TokenReviews and SubjectAccessReviews.
pub async fn run(context: Context, config: ServerConfig, pods: Arc<dyn PodsApi>) -> Result<(), ServerError> {
    let address = SocketAddr::new(config.port.address, config.port.port);
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|source| ServerError::Bind { address, source })?;
    serve(context, config, pods, vec![listener]).await;
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
        gate: Arc::new(Gate::new(
            context.client,
            config.node_name.clone(),
            config.judge,
            config.port.access.clone(),
        )),
        node_name: config.node_name,
        log_root: config.log_root,
        pods_dir: config.pods_dir,
        volumes: config.volumes,
        configz: config.configz,
        metrics: config.metrics,
        process_metrics: config.process_metrics,
        program: config.program,
        debugging: config.port.debugging,
        system_logs: config.port.system_logs,
        cgroups: Arc::new(Cgroups::here()),
        rates: stats::Rates::default(),
        stop: context.stop.clone(),
        stream_idle: config.stream_idle,
    });
    let settings = Settings {
        limits: Limits::default(),
        places: Places::eighths(SHARE),
        tls: Some(config.tls),
        drain: Duration::ZERO,
    };
    let tasks = TaskTracker::new();
    for listener in listeners {
        let (front, stop) = (Front(server.clone()), context.stop.clone());
        tasks.spawn(coracle_listen::serve(front, settings.clone(), listener, stop));
    }
    context.stop.cancelled().await;
    tasks.close();
    tasks.wait().await;
}

/// The kubelet's side of a connection.
#[derive(Clone)]
struct Front(Arc<Server>);

impl coracle_listen::Front for Front {
    type Peer = Arc<auth::Peer>;

    fn peer(&self, _: SocketAddr, chain: Option<&[CertificateDer<'static>]>) -> Self::Peer {
        Arc::new(self.0.gate.peer(chain.unwrap_or_default()))
    }

    async fn answer(self, peer: Self::Peer, request: Request<Body>) -> Response<Body> {
        self.0.handle(request, &peer).await
    }
}

impl Server {
    /// What ends that which an admitted request begins.
    fn ends(&self, admitted: Admitted) -> Ends {
        let refused = Box::pin(self.gate.clone().refused(admitted));
        Ends { stop: self.stop.clone(), idle: self.stream_idle, refused }
    }

    /// Authenticates, authorizes and answers. Errors become plain text, as upstream's kubelet words them.
    async fn handle(self: Arc<Self>, request: Request<Body>, peer: &auth::Peer) -> Response<Body> {
        let (began, labels) = (Instant::now(), labels(&request));
        let _in_flight = InFlight::of(&self.metrics, &labels);
        let answer = async {
            let (parts, body) = request.into_parts();
            let admitted = self.gate.admit(&parts, peer).await?;
            if let Some(place) = parts.extensions.get::<Arc<Place>>() {
                place.known();
            }
            routes::answer(&self, Request::from_parts(parts, body), admitted).await
        };
        let answer = answer.await.unwrap_or_else(HttpError::into_response);
        let labels = labels.each_ref().map(|label| &**label);
        self.metrics.add(Metric::Requests, &labels);
        self.metrics.took(Metric::RequestDuration, &labels, began.elapsed());
        answer
    }
}

/// Counts a request among those that are being answered, until it goes.
struct InFlight<'a> {
    metrics: &'a Metrics,
    labels: &'a [Cow<'static, str>; 4],
}

impl<'a> InFlight<'a> {
    fn of(metrics: &'a Metrics, labels: &'a [Cow<'static, str>; 4]) -> Self {
        metrics.change(Metric::InFlight, &labels.each_ref().map(|label| &**label), 1);
        Self { metrics, labels }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.change(Metric::InFlight, &self.labels.each_ref().map(|label| &**label), -1);
    }
}

/// By what a request is counted: method, path as far as upstream tells paths apart, `readwrite`, and whether it lasts.
/// What nobody serves has no names of its own.
fn labels(request: &Request<Body>) -> [Cow<'static, str>; 4] {
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        _ => "OTHER",
    };
    let mut segments = request.uri().path().trim_start_matches('/').split('/');
    let path: Cow<'static, str> = match (segments.next().unwrap_or_default(), segments.next()) {
        ("metrics", Some(page @ ("cadvisor" | "probes" | "resource" | "slis"))) => {
            format!("metrics/{page}").into()
        }
        ("stats", Some("summary")) => "stats/summary".into(),
        (first, _) => PATHS.into_iter().find(|path| *path == first).unwrap_or("other").into(),
    };
    let lasts = ["exec", "attach", "portForward", "containerLogs", "localPath", "run"].contains(&&*path);
    [method.into(), path, "readwrite".into(), if lasts { "true" } else { "false" }.into()]
}

#[cfg(test)]
mod tests;
