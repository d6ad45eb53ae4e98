//! An API server in memory, a kubelet on it, and patience.

use crate::cri_socket::CriSocket;
use crate::fake_runtime::FakeRuntime;
use coracle_api::UserInfo;
use coracle_apiserver::admission;
use coracle_apiserver::authz::{Chain, Gate};
use coracle_apiserver::bootstrap::{self, BootstrapConfig};
use coracle_apiserver::health::Health;
use coracle_apiserver::server::{self, ApiServer, ServerConfig};
use coracle_apiserver::store::{MemoryStore, Store};
use coracle_client::transport::in_process;
use coracle_client::{Context, Informers};
use coracle_kubelet::config::EvictionSettings;
use coracle_kubelet::cri::CriClient;
use coracle_kubelet::logind::Paths;
use coracle_kubelet::metrics::Metrics;
use coracle_kubelet::{Config, Parts, build};
use coracle_storage::volumes::{MountTable, Mounter, NfsMount, Tmpfs, VolumeError};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);

/// Remembers mounts without making any.
#[derive(Default)]
pub struct FakeMounter(Mutex<Vec<PathBuf>>);

impl Mounter for FakeMounter {
    fn mounts(&self) -> Result<MountTable, VolumeError> {
        Ok(MountTable(self.0.lock().clone()))
    }
    fn mount_tmpfs(&self, path: &Path, _: &Tmpfs) -> Result<(), VolumeError> {
        self.0.lock().push(path.to_owned());
        Ok(())
    }
    fn bind(&self, _: &Path, target: &Path) -> Result<(), VolumeError> {
        self.0.lock().push(target.to_owned());
        Ok(())
    }
    fn mount_nfs(&self, _: &NfsMount, target: &Path) -> Result<(), VolumeError> {
        self.0.lock().push(target.to_owned());
        Ok(())
    }
    fn unmount(&self, path: &Path) -> Result<(), VolumeError> {
        self.0.lock().retain(|p| p != path);
        Ok(())
    }
}

pub struct World {
    api: ApiServer,
    pub runtime: Arc<FakeRuntime>,
    /// Between kubelet and runtime, if anything is.
    socket: Option<Arc<CriSocket>>,
    mounter: Arc<FakeMounter>,
    dir: tempfile::TempDir,
    /// What the next kubelet takes for short.
    pub eviction: EvictionSettings,
    /// What of its configuration is not as usual.
    pub written: Value,
    /// What its kubelets count.
    metrics: Metrics,
    /// What it shows of its process.
    pub components: Vec<coracle_kubelet::Component>,
    kubelet: Option<(CancellationToken, JoinHandle<()>)>,
    /// The node cannot reach the API server.
    away: Arc<AtomicBool>,
}

fn client(api: &ApiServer, name: &str, groups: &[&str]) -> kube::Client {
    in_process::<_, axum::body::Body, _>(api.service(), UserInfo::authenticated(name, groups))
}

/// The client, as long as the server is not away.
fn reaching(client: kube::Client, away: Arc<AtomicBool>) -> kube::Client {
    let send = move |request: http::Request<kube::client::Body>| {
        let (client, away) = (client.clone(), away.load(Ordering::Relaxed));
        async move {
            if away {
                return Err(tower::BoxError::from("connection refused"));
            }
            client.send(request).await.map_err(tower::BoxError::from)
        }
    };
    kube::Client::new(tower::service_fn(send), "default")
}

impl World {
    pub async fn start() -> Self {
        Self::with(None).await
    }

    /// The kubelet speaks to its runtime over a socket.
    pub async fn over_a_socket() -> Self {
        let runtime = Arc::<FakeRuntime>::default();
        Self::with(Some((runtime.clone(), CriSocket::serve(runtime)))).await
    }

    pub fn socket(&self) -> Arc<CriSocket> {
        self.socket.clone().expect("a socket")
    }

    async fn with(socket: Option<(Arc<FakeRuntime>, Arc<CriSocket>)>) -> Self {
        let stop = CancellationToken::new();
        let store: Arc<dyn Store> = MemoryStore::new();
        let resources = server::load_resources(store.clone(), Arc::default()).await.unwrap();
        let cache = &resources.cache;
        let config = ServerConfig {
            authenticator: None,
            authorizer: Gate::new(Chain::new(cache.clone(), server::rbac_generation(cache.clone()))),
            admission: Arc::new(admission::Chain::new(cache.clone(), &admission::Config::default()).unwrap()),
            kubelets: None,
            health: Health::default(),
            clock: Arc::new(jiff::Timestamp::now),
            stop,
        };
        let api = ApiServer::new(config, store, resources);
        bootstrap::apply(api.registry(), &cluster()).await.unwrap();
        let (runtime, socket) = socket.unzip();
        let mut world = Self {
            api,
            runtime: runtime.unwrap_or_default(),
            socket,
            mounter: Arc::default(),
            dir: tempfile::tempdir().unwrap(),
            eviction: never_short(),
            written: json!({}),
            metrics: Metrics::default(),
            components: Vec::new(),
            kubelet: None,
            away: Arc::default(),
        };
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(world.admin(), "default");
        accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
        world.start_kubelet();
        world
    }

    pub fn admin(&self) -> kube::Client {
        client(&self.api, "admin", &["system:masters"])
    }

    pub fn start_kubelet(&mut self) {
        let stop = CancellationToken::new();
        let node = client(&self.api, "system:node:n1", &["system:nodes", "system:authenticated"]);
        let node = reaching(node, self.away.clone());
        let informers = Informers::new(reaching(self.admin(), self.away.clone()), stop.clone());
        let context = Context { client: node, informers, stop: stop.clone() };
        let mut config = Config::new("n1", "192.0.2.1".parse().unwrap());
        config.apply(self.written.as_object().unwrap()).unwrap();
        config.data_dir = self.dir.path().join("data");
        config.log_dir = self.dir.path().join("logs");
        config.log_links = Some(self.dir.path().join("containers"));
        config.eviction = self.eviction.clone();
        config.metrics = self.metrics.clone();
        config.runtime_patience = Duration::ZERO;
        config.components.clone_from(&self.components);
        config.dra_patience = Duration::from_millis(500);
        let parts = Parts {
            runtime: match &self.socket {
                Some(socket) => Arc::new(CriClient::new(&socket.path().display().to_string())),
                None => self.runtime.clone(),
            },
            shims: self.runtime.clone(),
            mounter: self.mounter.clone(),
            importer: None,
            cgroup_root: self.dir.path().join("cgroup"),
            sys: self.sys(),
            logind: self.logind(),
        };
        let built = build(&context, config, parts).unwrap();
        self.kubelet = Some((
            stop,
            tokio::spawn(async {
                let _ = Box::pin(built.run()).await;
            }),
        ));
    }

    /// Whether requests of the node fail from now on; those that are under way go on.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Everything that was mounted is gone, as when the machine starts.
    pub fn reboot(&self) {
        self.runtime.reboot();
        self.mounter.0.lock().clear();
    }

    /// What has been counted, as a page.
    pub fn figures(&self) -> String {
        let mut text = coracle_metrics::Text::default();
        self.metrics.render(&mut text);
        text.finish()
    }

    /// Asserts that so much has been counted, as the page writes it.
    pub fn shows(&self, sample: &str) {
        let page = self.figures();
        assert!(page.lines().any(|line| line == sample), "no {sample} in\n{page}");
    }

    pub async fn stop_kubelet(&mut self) {
        self.begin_to_stop().await.unwrap();
    }

    /// The kubelet has stopped when the task has ended.
    pub fn begin_to_stop(&mut self) -> JoinHandle<()> {
        let (stop, task) = self.kubelet.take().unwrap();
        stop.cancel();
        task
    }

    pub async fn until_nothing_runs(&self) {
        let left = async || json!([self.runtime.count().0, self.runtime.count().1, self.pods_on_disk()]);
        until(left, |left| *left == json!([0, 0, 0])).await;
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin(), "default")
    }

    /// Creates a pod that is bound to the node already.
    pub async fn create(&self, name: &str, spec: Value) {
        self.create_with(name, json!({}), spec).await;
    }

    /// Likewise, with annotations.
    pub async fn create_with(&self, name: &str, annotations: Value, mut spec: Value) {
        spec["nodeName"] = json!("n1");
        spec["automountServiceAccountToken"] = json!(false);
        let metadata = json!({ "name": name, "annotations": annotations });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// Waits until the pod's JSON (null once it is gone) is as wanted.
    pub async fn pod_until(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let api = self.pods();
        until(async || serde_json::to_value(api.get_opt(name).await.unwrap()).unwrap(), wanted).await
    }

    /// The text of the first event of this reason.
    pub async fn event(&self, reason: &str) -> String {
        let api: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(self.admin(), "default");
        let look = async || {
            let all = api.list(&kube::api::ListParams::default()).await.unwrap();
            let found = all.items.into_iter().find(|event| event.reason.as_deref() == Some(reason));
            json!(found.and_then(|event| event.message))
        };
        let text = until(look, Value::is_string).await;
        text.as_str().unwrap().to_owned()
    }

    /// Waits for an event of this reason that says so.
    pub async fn event_that(&self, reason: &str, says: &str) {
        let api: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(self.admin(), "default");
        let look = async || {
            let all = api.list(&kube::api::ListParams::default()).await.unwrap().items.into_iter();
            let texts = all.filter(|event| event.reason.as_deref() == Some(reason));
            json!(texts.filter_map(|event| event.message).collect::<Vec<_>>())
        };
        until(look, |texts| texts.as_array().unwrap().iter().any(|t| t.as_str().unwrap().contains(says)))
            .await;
    }

    /// Writes the node's status as an administrator.
    pub async fn patch_node_status(&self, status: Value) {
        let api: Api<Node> = Api::all(self.admin());
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status("n1", &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn node_until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let api: Api<Node> = Api::all(self.admin());
        until(async || serde_json::to_value(api.get_opt("n1").await.unwrap()).unwrap(), wanted).await
    }

    /// Waits until so many watches of a resource (`configmaps.`) are open.
    pub async fn watches_until(&self, resource: &str, wanted: usize) {
        let cache = &self.api.registry().cache;
        let count = async || json!(cache.figures().get(resource).map_or(0, |figures| figures.watches));
        until(count, |count| *count == json!(wanted)).await;
    }

    /// Creates an object by its path.
    pub async fn create_at(&self, path: &str, object: Value) {
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        self.admin().request::<Value>(request).await.unwrap();
    }

    /// What the kubelet takes for the kernel's view of the machine.
    pub fn sys(&self) -> PathBuf {
        self.dir.path().join("sys")
    }

    /// Where the kubelet looks for logind. There is none, unless a test brings one.
    pub fn logind(&self) -> Paths {
        Paths { bus: self.dir.path().join("bus"), drop_ins: self.dir.path().join("logind.conf.d") }
    }

    /// The kubelet's own directory.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("data/kubelet")
    }

    pub fn pods_on_disk(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("data/kubelet/pods")).unwrap().count()
    }
}

pub async fn until(look: impl AsyncFn() -> Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let last = look().await;
        if wanted(&last) {
            return last;
        }
        assert!(started.elapsed() < PATIENCE, "did not come true; last seen: {last:#}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The value of a condition's status.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    let found = all.and_then(|all| all.iter().find(|c| c["type"] == kind));
    found.map_or(&Value::Null, |c| &c["status"])
}

/// The machine that tests run on may be short of anything.
fn never_short() -> EvictionSettings {
    EvictionSettings { rules: Vec::new(), ..EvictionSettings::default() }
}

fn cluster() -> BootstrapConfig {
    BootstrapConfig {
        api_addresses: vec![[192, 0, 2, 1].into()],
        api_port: 6443,
        service_ip: [10, 43, 0, 1].into(),
        service_cidr: "10.43.0.0/16".to_owned(),
        cluster_cidr: "10.42.0.0/16".to_owned(),
        local_path: true,
        dns: None,
        ca_pem: String::new(),
        front_proxy_ca_pem: String::new(),
        server_url: String::new(),
    }
}
