//! Store, certificates, API server and the objects every cluster begins with.

use super::following::Following;
use super::identity::Clients;
use super::rotation::Rotation;
use super::{belongs, door, reached, reloaded, revoked, role, stored};
use crate::backup;
use crate::config::{Backend, Component, Config};
use crate::process::StartError;
use coracle_apiserver::Resources;
use coracle_apiserver::admission;
use coracle_apiserver::aggregation::FrontProxy;
use coracle_apiserver::authn::{Authenticator, ServiceAccountTokens};
use coracle_apiserver::authz::Locals;
use coracle_apiserver::bootstrap::{self, BootstrapConfig, ClusterDns};
use coracle_apiserver::cache::Cache;
use coracle_apiserver::config_file;
use coracle_apiserver::connect::{Guard, KubeletClient};
use coracle_apiserver::encryption::reload;
use coracle_apiserver::health::Health;
use coracle_apiserver::kubeconfig;
use coracle_apiserver::metrics::Metrics;
use coracle_apiserver::pki::{Pki, PkiOptions};
use coracle_apiserver::server::{self, ApiServer, EdgeOptions, ServerConfig};
use coracle_apiserver::store::sled::{Incidents, Options as SledOptions};
use coracle_apiserver::store::{MemoryStore, SledStore, Store};
use coracle_client::Recorder;
use futures::future::BoxFuture;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than the server lets requests end.
const SERVING_DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// A file is written; it is copied into a bucket by the next start.
const ARCHIVE_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

pub struct ControlPlane {
    pub api: ApiServer,
    pub pki: Arc<Pki>,
    pub tokens: Arc<ServiceAccountTokens>,
    /// Where other machines reach the API.
    pub following: Arc<Following>,
    store: Arc<dyn Store>,
    /// Ends requests that last, after the components have ended.
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    /// Ends when the store has closed and its last commits are written.
    archive: Option<JoinHandle<()>>,
}

/// The `n`th address of the service range: 1 is the API's, 10 is DNS'.
pub fn service_address(config: &Config, n: u8) -> IpAddr {
    match config.service_cidr.first().map(|net| net.network()) {
        Some(IpAddr::V4(first)) => IpAddr::from((u32::from(first) + u32::from(n)).to_be_bytes()),
        Some(IpAddr::V6(first)) => IpAddr::from((u128::from(first) + u128::from(n)).to_be_bytes()),
        // The configuration was checked; only a caller that made one by hand can get here.
        None => IpAddr::from([10, 43, 0, n]),
    }
}

/// The embedded store, and its commits where they are archived.
struct Embedded {
    sled: Arc<SledStore>,
    tap: Option<backup::Tap>,
}

/// The embedded one also as what it is.
async fn open_store(
    config: &Config,
    metrics: &Metrics,
) -> Result<(Arc<dyn Store>, Option<Embedded>), StartError> {
    match &config.backend {
        Backend::Memory => return Ok((MemoryStore::new(), None)),
        Backend::Etcd(options) => {
            let store = crate::etcd::open(options).await.map_err(|e| StartError::new("open the store", e))?;
            return Ok((store, None));
        }
        Backend::Sled => crate::migrate::refuse_moved(&config.data_dir)
            .map_err(|e| StartError::new("open the store", std::io::Error::other(e)))?,
    }
    let dir = config.data_dir.join("db");
    let copy_before_lift = !config.upgrade_store_without_copy;
    let plan = config.backup.plan(&config.data_dir, &mut Vec::new());
    let archived = plan.filter(|plan| plan.journal_interval.is_some());
    let since = archived.as_ref().map(|plan| backup::Tap::since(plan, &config.node_name)).unwrap_or_default();
    let options = SledOptions { copy_before_lift, since, ..SledOptions::default() };
    let opened = tokio::task::spawn_blocking(move || SledStore::open(&dir, options));
    let store = opened.await.map_err(|e| StartError::new("open the store", e))?;
    let store = store.map_err(|e| StartError::new("open the store", e))?;
    coracle_apiserver::store::metrics::collect(metrics, Arc::downgrade(&store));
    let tap = archived.map(|_| backup::Tap::open(&store));
    Ok((store.clone(), Some(Embedded { sled: store, tap })))
}

async fn open_pki(config: &Config) -> Result<Arc<Pki>, StartError> {
    let options = PkiOptions {
        node_name: config.node_name.clone(),
        extra_names: config.node_ips().all().map(|ip| ip.to_string()).collect(),
        service_ip: service_address(config, 1),
        ..PkiOptions::default()
    };
    let dir = config.data_dir.join("pki");
    let made = tokio::task::spawn_blocking(move || Pki::ensure(&dir, options));
    let pki = made.await.map_err(|e| StartError::new("certificates", e))?;
    pki.map_err(|e| StartError::new("certificates", e))
}

impl ControlPlane {
    /// Returns when `/readyz` answers ok.
    pub async fn start(config: &Config, stop: CancellationToken) -> Result<Self, StartError> {
        let (listener, port) = listen(config).await?;
        let metrics = Arc::<Metrics>::default();
        let (store, pki) = tokio::join!(open_store(config, &metrics), open_pki(config));
        let ((store, embedded), pki) = (store?, pki?);
        let (sled, tap) = embedded.map_or((None, None), |embedded| (Some(embedded.sled), embedded.tap));
        let (encrypting, source) = config.encryption.open(&config.data_dir.join("pki"), store).await?;
        let store: Arc<dyn Store> = encrypting.clone();
        if config.backend.is_shared() {
            belongs::wait(&store, &pki, config.join.is_some()).await;
        }
        let resources = server::load_resources(store.clone(), metrics.clone()).await;
        let resources = resources.map_err(|e| StartError::new("load the store", e))?;
        let issuing = config.access.issuing(&found_at(config.node_ip, port));
        let tokens = Arc::new(ServiceAccountTokens::with(pki.service_account_key(), issuing));
        let edge = config.edge.options().await.map_err(|e| StartError::new("audit log and traces", &*e))?;
        let edge = EdgeOptions { address: SocketAddr::new(config.node_ip, port).to_string(), ..edge };
        let authenticator = authenticator(&pki, &tokens, &resources.cache, config).await?;
        let api = assemble(&pki, authenticator.clone(), store.clone(), resources, config, edge)?;
        let url = own_url(config, port);
        bootstrap::apply(api.registry(), &first_objects(config, &pki, port))
            .await
            .map_err(|e| StartError::new("make the cluster's first objects", e))?;
        api.health().started();
        kubeconfig::write_admin(&pki, &url, &config.kubeconfig)
            .map_err(|e| StartError::new("write the administrator's kubeconfig", e))?;
        let own_stop = api.stop().clone();
        let tellers = tellers(&api, config, &store, sled.as_ref().map(|sled| sled.incidents()));
        let followed = config.access.configure(&authenticator, own_stop.clone());
        let followed = followed.map_err(|e| StartError::new("authentication", std::io::Error::other(e)))?;
        let tls = pki.server_tls().map_err(|e| StartError::new("certificates", e))?;
        let (serving, until) = (api.clone(), own_stop.clone());
        let mut tasks = vec![tokio::spawn(async move { serving.serve(listener, Some(tls), until).await })];
        tasks.extend(upkeep(&api));
        let config_of = Arc::new(config.clone());
        let following = Arc::new(Following {
            pki: pki.clone(),
            api: api.clone(),
            tokens: tokens.clone(),
            config: config_of.clone(),
            port,
            addresses: watch::Sender::new(config.node_ips()),
        });
        let rotation = rotation(&following, url.clone());
        let backups = sled.clone().and_then(|sled| backups(sled, &api, &config_of, tap));
        let (scheduled, archive) =
            backups.map_or((None, None), |(scheduled, archive)| (Some(scheduled), archive));
        tasks.extend(scheduled);
        tasks.extend(sled.and_then(|sled| door(sled, config_of, rotation, own_stop.clone())));
        tasks.extend(tellers);
        tasks.extend(followed);
        tasks.push(reload::maintain(encrypting, source, (api.health().clone(), metrics), own_stop.clone()));
        tasks.extend(keepers(&api, &pki, &url, config, &stop));
        tracing::info!(%url, kubeconfig = %config.kubeconfig.display(), "the API is ready");
        Ok(Self { api, pki, tokens, following, store, stop: own_stop, tasks, archive })
    }

    /// Whether locks of the store and of the watch cache can be had: what a beat of the API server is. Asks nobody, and
    /// stands in no log.
    pub fn pulse(&self) -> impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
        let (store, cache) = (self.store.clone(), self.api.cache().clone());
        move || {
            let (store, cache) = (store.clone(), cache.clone());
            Box::pin(async move {
                let _ = cache.changed_at("namespaces");
                let found = store.get("/registry/namespaces/kube-system").await;
                found.map(drop).map_err(|e| coracle_api::error::chain(&e))
            })
        }
    }

    /// Ends watches and connections, and makes everything durable.
    pub async fn shut_down(self) {
        self.stop.cancel();
        for mut task in self.tasks {
            // Requests under way are answered; the server itself bounds the time they get.
            if tokio::time::timeout(SERVING_DRAIN_TIMEOUT, &mut task).await.is_err() {
                task.abort();
            }
        }
        if let Some(tracer) = self.api.tracer() {
            tracer.close().await;
        }
        if let Some(log) = self.api.audit_log() {
            // It writes what is left, for some seconds at most.
            log.close().await;
        }
        if let Err(error) = self.store.close().await {
            tracing::error!(error = &error as &dyn std::error::Error, "the store was not closed cleanly");
        }
        if let Some(archive) = self.archive
            && tokio::time::timeout(ARCHIVE_DRAIN_TIMEOUT, archive).await.is_err()
        {
            tracing::warn!("the last commits are not archived yet; the next start does it");
        }
    }
}

/// The port of the API, which may be any free one.
async fn listen(config: &Config) -> Result<(TcpListener, u16), StartError> {
    let address = SocketAddr::new(config.bind_address, config.https_port);
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|e| StartError::new(&format!("listen on {address}"), e))?;
    let port = listener.local_addr().map_err(|e| StartError::new("listen", e))?.port();
    Ok((listener, port))
}

/// Where this machine's own clients find the API.
fn own_url(config: &Config, port: u16) -> String {
    let host = match config.bind_address {
        any if any.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        address => address,
    };
    format!("https://{}", SocketAddr::new(host, port))
}

fn rotation(following: &Following, url: String) -> Rotation {
    Rotation {
        pki: following.pki.clone(),
        api: following.api.clone(),
        config: following.config.clone(),
        port: following.port,
        url,
        addresses: following.addresses.subscribe(),
    }
}

/// Who keep this machine's certificates, its node's role and its administrator's kubeconfig as they have to be.
fn keepers(
    api: &ApiServer,
    pki: &Arc<Pki>,
    url: &str,
    config: &Config,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let clients = Clients::new(api.clone());
    let mut tasks = vec![renew(pki.clone(), url.to_owned(), config, stop.clone())];
    if config.runs(Component::Kubelet) {
        let labelled = role::keep(clients.privileged("system:coracle:role"), config.node_name.clone());
        tasks.push(tokio::spawn(discard(stop.clone().run_until_cancelled_owned(labelled))));
    }
    let client = clients.privileged("system:coracle:certificates");
    let admin = revoked::watch(client, pki.clone(), url.to_owned(), config.kubeconfig.clone());
    tasks.push(tokio::spawn(discard(stop.clone().run_until_cancelled_owned(admin))));
    tasks
}

/// What the API server does by itself while it serves.
fn upkeep(api: &ApiServer) -> Vec<JoinHandle<()>> {
    let mut tasks = vec![
        api.maintain_flow_control(),
        api.maintain_aggregation(),
        api.maintain_definitions(),
        api.maintain_policies(),
    ];
    tasks.extend(api.track_legacy_tokens());
    tasks.extend(api.follow_revocations());
    tasks.extend(api.check_node_addresses());
    tasks
}

/// Who tell of what happens to configuration files and to the store, by events on this machine's Node.
fn tellers(
    api: &ApiServer,
    config: &Config,
    store: &Arc<dyn Store>,
    incidents: Option<Incidents>,
) -> Vec<JoinHandle<()>> {
    let client = Clients::new(api.clone()).privileged("system:coracle:configuration");
    let (stop, node) = (api.stop().clone(), config.node_name.clone());
    let reloads = reloaded::tell(config_file::reloaded(), client.clone(), node.clone());
    let mut tasks = vec![tokio::spawn(discard(stop.clone().run_until_cancelled_owned(reloads)))];
    if config.backend.is_shared() {
        let reached = reached::watch(store.clone(), api.health().clone());
        tasks.push(tokio::spawn(discard(stop.clone().run_until_cancelled_owned(reached))));
    }
    if let Some(incidents) = incidents {
        let stored = stored::tell(incidents, client, node);
        tasks.push(tokio::spawn(discard(stop.run_until_cancelled_owned(stored))));
    }
    tasks
}

/// Written by schedule, if one is set; and the archive of what the tap gives.
fn backups(
    sled: Arc<SledStore>,
    api: &ApiServer,
    config: &Arc<Config>,
    tap: Option<backup::Tap>,
) -> Option<(JoinHandle<()>, Option<JoinHandle<()>>)> {
    // Mistakes were told when the configuration was read.
    let plan = config.backup.plan(&config.data_dir, &mut Vec::new())?;
    let client = Clients::new(api.clone()).privileged("system:coracle:backups");
    let told = backup::Told {
        recorder: Recorder::new(client, "kube-apiserver", &config.node_name),
        regarding: crate::node::regarding(&config.node_name),
    };
    let due = Arc::<backup::Due>::default();
    let archive = tap.zip(plan.journal_interval).map(|(tap, interval)| {
        let (sled, config, plan, due, told) =
            (sled.clone(), config.clone(), plan.clone(), due.clone(), told.clone());
        let archive = backup::Archive { sled, config, plan, interval, told, due };
        tokio::spawn(archive.run(tap, api.metrics()))
    });
    let run = backup::run(sled, config.clone(), plan, due, told, api.metrics());
    Some((tokio::spawn(discard(api.stop().clone().run_until_cancelled_owned(run))), archive))
}

/// For commands on this machine. Without it all else works.
fn door(
    sled: Arc<SledStore>,
    config: Arc<Config>,
    rotation: Rotation,
    stop: CancellationToken,
) -> Option<JoinHandle<()>> {
    let runtime = tokio::runtime::Handle::current();
    let rotate: door::Rotate = Arc::new(move |step| runtime.block_on(rotation.carry_out(step)));
    match door::open(&config.data_dir) {
        Ok(listener) => {
            let inside = door::Inside { sled, config, rotate };
            Some(tokio::spawn(inside.serve(listener, stop)))
        }
        Err(error) => {
            tracing::warn!(%error, directory = %config.data_dir.display(), "no socket for commands: no backup while the server runs");
            None
        }
    }
}

async fn discard<T>(task: impl Future<Output = T>) {
    task.await;
}

async fn authenticator(
    pki: &Pki,
    tokens: &Arc<ServiceAccountTokens>,
    cache: &Arc<Cache>,
    config: &Config,
) -> Result<Arc<Authenticator>, StartError> {
    let made = Authenticator::new(pki, tokens.clone(), cache.clone());
    let made = made.map_err(|e| StartError::new("certificates", e))?;
    let webhook = config.access.token_webhook().await;
    let webhook = webhook.map_err(|e| StartError::new("token webhook", std::io::Error::other(e)))?;
    Ok(Arc::new(made.with_webhook(webhook).counted_in(cache.metrics().clone())))
}

fn assemble(
    pki: &Arc<Pki>,
    authenticator: Arc<Authenticator>,
    store: Arc<dyn Store>,
    resources: Resources,
    config: &Config,
    edge: EdgeOptions,
) -> Result<ApiServer, StartError> {
    let stop = CancellationToken::new();
    let certificates = |e| StartError::new("certificates", e);
    let further = config.edge.kubelet_authorities();
    let further =
        further.map_err(|e| StartError::new("kubelet certificate authority", std::io::Error::other(e)))?;
    let to_kubelets = pki.client_config_for_kubelet(&further).map_err(certificates)?;
    let kubelets = KubeletClient::new(to_kubelets, stop.clone())
        .with_stream_idle(config.streaming_connection_idle_timeout)
        .guarded(guard(pki.clone(), config));
    let cache = &resources.cache;
    let locals = Locals::new(cache.clone(), server::rbac_generation(cache.clone()));
    locals.show_in(cache.metrics());
    let authorizer = config
        .authorization
        .gate(&locals, cache.metrics(), &stop)
        .map_err(|mistakes| StartError::new("authorization", std::io::Error::other(mistakes.join("; "))))?;
    let plugins =
        admission_for(config).map_err(|e| StartError::new("admission", std::io::Error::other(e)))?;
    let admission = admission::Chain::new(cache.clone(), &plugins);
    let admission =
        admission.map_err(|e| StartError::new("admission", e))?.counted_in(cache.metrics().clone());
    let parts = ServerConfig {
        authenticator: Some(authenticator),
        authorizer: authorizer.clone(),
        admission: Arc::new(admission.guard_escalation(authorizer)),
        kubelets: Some(kubelets),
        health: Health::default(),
        clock: Arc::new(jiff::Timestamp::now),
        stop,
    };
    let edge = EdgeOptions {
        front_proxy: Some(FrontProxy::new(pki.clone())),
        program: config.program.clone(),
        pages: config.runs(Component::Ui).then_some(crate::ui::page),
        ..edge
    };
    Ok(ApiServer::with_options(parts, edge, store, resources))
}

fn guard(pki: Arc<Pki>, config: &Config) -> Guard {
    Guard {
        own_node: config.node_name.clone(),
        service_networks: config.service_cidr.iter().collect(),
        own_names: Some(Arc::new(move || pki.server_names())),
    }
}

/// As upstream, whichever controllers run: who disables those that take back a taint or a finalizer may run others, or
/// disables the plugin too.
fn admission_for(config: &Config) -> Result<admission::Config, String> {
    let disabled = config.disable_admission_plugins.clone();
    let enabled = config.enable_admission_plugins.clone();
    let configuration = config.edge.admission()?;
    Ok(admission::Config { enabled, disabled, configuration })
}

/// Of this the objects are made that every cluster begins with.
pub fn first_objects(config: &Config, pki: &Pki, port: u16) -> BootstrapConfig {
    BootstrapConfig {
        // Where there may be other servers, `living` keeps them.
        api_addresses: if config.backend.is_shared() { Vec::new() } else { vec![config.node_ip] },
        api_port: port,
        service_ip: service_address(config, 1),
        service_cidr: config.service_cidr.to_string(),
        cluster_cidr: config.cluster_cidr.to_string(),
        local_path: config.runs(Component::Storage),
        dns: config.runs(Component::Dns).then(|| ClusterDns {
            ip: service_address(config, 10),
            corefile: coracle_dns::default_corefile(crate::cluster::DOMAIN),
        }),
        ca_pem: pki.ca_pem(),
        front_proxy_ca_pem: pki.front_proxy_ca_pem(),
        server_url: found_at(config.node_ip, port),
    }
}

/// The URL of the API for others.
pub fn found_at(ip: IpAddr, port: u16) -> String {
    format!("https://{}", SocketAddr::new(ip, port))
}

/// Certificates renew themselves; the kubeconfig holds one of them.
fn renew(pki: Arc<Pki>, url: String, config: &Config, stop: CancellationToken) -> JoinHandle<()> {
    let path = config.kubeconfig.clone();
    tokio::spawn(pki.run(stop, move |pki, _| revoked::write(pki, &url, &path)))
}
