//! A whole API server in memory, with its roles and admission, and a stand-in for the nodes' kubelets.

use coracle_api::UserInfo;
use coracle_apiserver::admission;
use coracle_apiserver::authz::{Chain, Gate};
use coracle_apiserver::bootstrap::{self, BootstrapConfig};
use coracle_apiserver::health::Health;
use coracle_apiserver::server::{self, ApiServer, ServerConfig};
use coracle_apiserver::store::{MemoryStore, Store};
use coracle_client::informer::Kind;
use coracle_client::transport::in_process;
use coracle_client::{Context, Informers};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

/// Long enough for a busy machine; a test that waits this long has failed.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests by who sent them and how: `deployment-controller PUT`. Events count apart: `deployment-controller event`.
pub type Requests = Arc<Mutex<BTreeMap<String, usize>>>;

pub struct World {
    api: ApiServer,
    pub requests: Requests,
    pub informers: Informers,
    /// What the components under test have counted, a line a sample; set by who starts them.
    pub counted: OnceLock<Box<dyn Fn() -> Vec<String> + Send + Sync>>,
    pub stop: CancellationToken,
    _end: DropGuard,
}

impl World {
    pub async fn start() -> Self {
        let level = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
        let level = level.unwrap_or(tracing_subscriber::filter::LevelFilter::ERROR);
        let _ = tracing_subscriber::fmt().with_max_level(level).with_test_writer().try_init();
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
            stop: stop.clone(),
        };
        let api = ApiServer::new(config, store, resources);
        bootstrap::apply(api.registry(), &cluster()).await.unwrap();
        // Ends with the server.
        drop(api.maintain_definitions());
        let client = client(&api, "test:informers", &["system:masters"]);
        let informers = Informers::new(client, stop.clone());
        Self {
            api,
            requests: Requests::default(),
            informers,
            counted: OnceLock::new(),
            _end: stop.clone().drop_guard(),
            stop,
        }
    }

    /// A client that may do everything.
    pub fn admin(&self) -> kube::Client {
        client(&self.api, "admin", &["system:masters"])
    }

    pub fn user(&self, name: &str, groups: &[&str]) -> kube::Client {
        let mut all = groups.to_vec();
        all.push("system:authenticated");
        client(&self.api, name, &all)
    }

    /// As the controller manager, which alone may do little.
    pub fn context(&self) -> Context {
        let client = client(&self.api, "system:kube-controller-manager", &["system:authenticated"]);
        Context { client, informers: self.informers.clone(), stop: self.stop.clone() }
    }

    /// Clients with the rights of the controllers' own service accounts.
    pub fn client_for(&self) -> Arc<dyn Fn(&str) -> kube::Client + Send + Sync> {
        let (api, requests) = (self.api.clone(), self.requests.clone());
        Arc::new(move |name| {
            let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
            let user = UserInfo::authenticated(&format!("system:serviceaccount:kube-system:{name}"), &groups);
            let (requests, name) = (requests.clone(), name.to_owned());
            let counted = api.service().map_request(move |request: http::Request<axum::body::Body>| {
                let event = request.uri().path().contains("/events");
                let how = if event { "event" } else { request.method().as_str() };
                *requests.lock().unwrap().entry(format!("{name} {how}")).or_default() += 1;
                request
            });
            in_process::<_, axum::body::Body, _>(counted, user)
        })
    }

    pub fn in_namespace<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.admin(), namespace)
    }

    pub async fn create<K: Kind + Serialize>(&self, api: &Api<K>, value: Value) -> K {
        let object: K = serde_json::from_value(value).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Runs and ends pods as kubelets would: every pod becomes Ready at an address of its own, one that is being
    /// deleted goes at once. A pod ends when its annotation [`EXIT`] says so, and never starts with [`HOLD`].
    pub fn play_kubelet(&self) {
        let client = self.admin();
        let pods = self.informers.of::<Pod>();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        pods.on_change(move |delta| {
            if let Some(pod) = &delta.new {
                let _ = sender.send(pod.clone());
            }
        });
        tokio::spawn(async move {
            let last = AtomicU32::new(1);
            while let Some(pod) = receiver.recv().await {
                let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
                let result = if pod.metadata.deletion_timestamp.is_some() {
                    api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.map(|_| ())
                } else if pod.annotations().contains_key(HOLD) {
                    Ok(())
                } else if pod.status.as_ref().and_then(|s| s.pod_ip.as_ref()).is_none() {
                    let number = last.fetch_add(1, Ordering::Relaxed);
                    let patch = Patch::Merge(exit_code(&pod).map_or_else(|| running(number), ended));
                    api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.map(|_| ())
                } else {
                    Ok(())
                };
                if let Err(kube::Error::Api(status)) = &result {
                    assert!(status.code == 404 || status.code == 409, "{status:?}");
                }
            }
        });
    }
}

fn running(number: u32) -> Value {
    let ip = format!("10.42.{}.{}", number / 250, number % 250 + 1);
    let condition =
        json!({ "type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::now() });
    json!({ "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }], "conditions": [condition] } })
}

/// The exit code of a pod that ends. `3@1,4` is code 3 for the completion indexes 1 and 4, and 0 for the others.
pub const EXIT: &str = "play/exit";

/// On a pod that nobody starts.
pub const HOLD: &str = "play/hold";

fn exit_code(pod: &Pod) -> Option<i32> {
    let text = pod.annotations().get(EXIT)?;
    let Some((code, indexes)) = text.split_once('@') else { return text.parse().ok() };
    let index = pod.annotations().get("batch.kubernetes.io/job-completion-index")?;
    if indexes.split(',').any(|i| i == index) { code.parse().ok() } else { Some(0) }
}

fn ended(code: i32) -> Value {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let state = json!({ "terminated": { "exitCode": code, "finishedAt": jiff::Timestamp::now() } });
    let container = json!({ "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state });
    json!({ "status": { "phase": phase, "podIP": "10.42.9.9", "podIPs": [{ "ip": "10.42.9.9" }],
        "containerStatuses": [container] } })
}

fn client(api: &ApiServer, name: &str, groups: &[&str]) -> kube::Client {
    in_process::<_, axum::body::Body, _>(api.service(), UserInfo::authenticated(name, groups))
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

/// Asks until `probe` has an answer; fails with what `state` shows last.
pub async fn until<T, F, S>(what: &str, probe: impl Fn() -> F, state: impl Fn() -> S) -> T
where
    F: Future<Output = Option<T>>,
    S: Future<Output = String>,
{
    let asking = async {
        loop {
            if let Some(answer) = probe().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(WAIT_TIMEOUT, asking).await {
        Ok(answer) => answer,
        Err(_) => panic!("never: {what}; at last: {}", state().await),
    }
}

/// Waits until one object, if it exists, passes the test.
pub async fn until_object<K: Kind + Serialize>(
    what: &str,
    api: &Api<K>,
    name: &str,
    test: impl Fn(&K) -> bool,
) -> K {
    let probe = || async { api.get_opt(name).await.unwrap().filter(|object| test(object)) };
    let state = || async { json!(api.get_opt(name).await.unwrap()).to_string() };
    until(what, probe, state).await
}

pub async fn until_gone<K: Kind + Serialize>(what: &str, api: &Api<K>, name: &str) {
    let probe = || async { api.get_opt(name).await.unwrap().is_none().then_some(()) };
    let state = || async { json!(api.get_opt(name).await.unwrap()).to_string() };
    until(what, probe, state).await;
}

/// Waits until the list passes the test.
pub async fn until_list<K: Kind + Serialize>(
    what: &str,
    api: &Api<K>,
    labels: &str,
    test: impl Fn(&[K]) -> bool,
) -> Vec<K> {
    let params = ListParams::default().labels(labels);
    let probe = || async { Some(api.list(&params).await.unwrap().items).filter(|items| test(items)) };
    let state = || async { json!(api.list(&params).await.unwrap().items).to_string() };
    until(what, probe, state).await
}
