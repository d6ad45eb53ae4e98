//! A device plugin, the tests' own: it remembers what it was asked, and can be told to refuse, to fall ill and to die.

use bytes::Bytes;
use coracle_kubelet::devices::messages as api;
use coracle_storage::csi::PluginClient;
use coracle_storage::csi::messages::{PluginInfo, RegistrationStatus};
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How long the kubelet is waited for.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct State {
    /// Method and devices, in the order of the calls.
    pub calls: Vec<String>,
    /// It gives nothing.
    pub refuses: bool,
    pub registered: Vec<(bool, String)>,
}

pub struct DevicePlugin {
    pub resource: String,
    pub state: Mutex<State>,
    devices: watch::Sender<Vec<api::Device>>,
    servers: Mutex<Vec<JoinHandle<()>>>,
    /// A file of the machine that its containers get as a device and as a mount.
    pub host_path: String,
}

fn device(id: &str, health: &str, node: Option<i64>) -> api::Device {
    let topology = node.map(|id| api::TopologyInfo { nodes: vec![api::NumaNode { id }] });
    api::Device { id: id.to_owned(), health: health.to_owned(), topology }
}

impl DevicePlugin {
    /// With devices of these names, each near to a NUMA node or to none.
    pub fn new(resource: &str, devices: &[(&str, Option<i64>)]) -> Arc<Self> {
        let devices = devices.iter().map(|(id, node)| device(id, api::HEALTHY, *node)).collect();
        Arc::new(Self {
            resource: resource.to_owned(),
            state: Mutex::default(),
            devices: watch::Sender::new(devices),
            servers: Mutex::default(),
            host_path: "/dev/null".to_owned(),
        })
    }

    fn socket(&self) -> String {
        format!("{}.sock", self.resource.replace('/', "_"))
    }

    /// Serves, and registers with the kubelet that has this directory as soon as it listens.
    pub async fn register(self: &Arc<Self>, root: &Path) {
        let dir = root.join("device-plugins");
        let client = PluginClient::new(&dir.join("kubelet.sock"), Duration::from_secs(5));
        let began = Instant::now();
        loop {
            self.listen(&dir.join(self.socket()), None);
            let request = api::RegisterRequest {
                version: "v1beta1".to_owned(),
                endpoint: self.socket(),
                resource_name: self.resource.clone(),
                options: Some(options()),
            };
            match client.call::<_, api::Empty>(api::REGISTER, request).await {
                // A kubelet that begins takes the sockets away that were there before its own.
                Ok(api::Empty {}) if dir.join(self.socket()).exists() => return,
                Ok(api::Empty {}) => {}
                Err(error) => assert!(began.elapsed() < WAIT_TIMEOUT, "not registered: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Offers itself as CSI drivers do. Returns the socket of the offer.
    pub fn offer(self: &Arc<Self>, root: &Path) -> PathBuf {
        let (dir, registry) = (root.join("plugins/devices"), root.join("plugins_registry"));
        for needed in [&dir, &registry] {
            std::fs::create_dir_all(needed).unwrap();
        }
        let (endpoint, socket) = (dir.join(self.socket()), registry.join("devices-reg.sock"));
        self.listen(&endpoint, None);
        self.listen(&socket, Some(endpoint));
        socket
    }

    /// As by SIGKILL: connections end, sockets stay and nobody listens.
    pub fn kill(&self) {
        self.servers.lock().drain(..).for_each(|server| server.abort());
    }

    /// Says how a device is from now on.
    pub fn say(&self, id: &str, health: &str) {
        let change = |all: &mut Vec<api::Device>| {
            all.iter_mut()
                .filter(|device| device.id == id)
                .for_each(|device| device.health = health.to_owned());
        };
        self.devices.send_modify(change);
    }

    pub fn refuse(&self, refuses: bool) {
        self.state.lock().refuses = refuses;
    }

    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    fn listen(self: &Arc<Self>, socket: &Path, offers: Option<PathBuf>) {
        let _ = std::fs::remove_file(socket);
        let Ok(listener) = UnixListener::bind(socket) else { return };
        let this = self.clone();
        self.servers.lock().push(tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (this, offers) = (this.clone(), offers.clone());
                let service = hyper::service::service_fn(move |request| {
                    let (this, offers) = (this.clone(), offers.clone());
                    async move { Ok::<_, Infallible>(this.respond(request, offers).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move {
                    let _ = connection.await;
                });
            }
        }));
    }

    async fn respond(
        &self,
        request: hyper::Request<Incoming>,
        offers: Option<PathBuf>,
    ) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let message = body.get(5..).unwrap_or_default();
        let answer = match path.rsplit('/').next().unwrap_or_default() {
            "GetInfo" => PluginInfo {
                r#type: "DevicePlugin".to_owned(),
                name: self.resource.clone(),
                endpoint: offers.unwrap_or_default().display().to_string(),
                supported_versions: vec!["v1beta1".to_owned()],
            }
            .encode_to_vec(),
            "NotifyRegistrationStatus" => {
                let status = RegistrationStatus::decode(message).unwrap();
                self.state.lock().registered.push((status.plugin_registered, status.error));
                Vec::new()
            }
            "GetDevicePluginOptions" => options().encode_to_vec(),
            "ListAndWatch" => return self.watch(),
            "GetPreferredAllocation" => {
                self.prefer(&api::PreferredAllocationRequest::decode(message).unwrap())
            }
            "Allocate" if self.state.lock().refuses => return respond(stream::iter([Ok(trailers(2))])),
            "Allocate" => self.allocate(&api::AllocateRequest::decode(message).unwrap()),
            "PreStartContainer" => {
                let ids = api::PreStartContainerRequest::decode(message).unwrap().device_ids;
                self.state.lock().calls.push(format!("PreStartContainer {}", ids.join(",")));
                Vec::new()
            }
            method => panic!("{method} is called"),
        };
        respond(stream::iter([Ok(framed(&answer)), Ok(trailers(0))]))
    }

    /// It likes those best whose names come last.
    fn prefer(&self, request: &api::PreferredAllocationRequest) -> Vec<u8> {
        let prefer = |one: &api::ContainerPreferredAllocationRequest| {
            let mut ids = one.available_device_ids.clone();
            ids.sort_by(|a, b| b.cmp(a));
            ids.truncate(usize::try_from(one.allocation_size).unwrap());
            api::ContainerPreferredAllocationResponse { device_ids: ids }
        };
        let container_responses = request.container_requests.iter().map(prefer).collect();
        api::PreferredAllocationResponse { container_responses }.encode_to_vec()
    }

    fn allocate(&self, request: &api::AllocateRequest) -> Vec<u8> {
        let give = |one: &api::ContainerAllocateRequest| {
            let ids = one.device_ids.join(",");
            self.state.lock().calls.push(format!("Allocate {ids}"));
            let mount = api::Mount {
                container_path: "/given".to_owned(),
                host_path: self.host_path.clone(),
                read_only: true,
            };
            let device = api::DeviceSpec {
                container_path: "/dev/given".to_owned(),
                host_path: self.host_path.clone(),
                permissions: "rw".to_owned(),
            };
            api::ContainerAllocateResponse {
                envs: BTreeMap::from([("DEVICES".to_owned(), ids.clone())]),
                mounts: vec![mount],
                devices: vec![device],
                annotations: BTreeMap::from([("example.com/devices".to_owned(), ids)]),
                cdi_devices: Vec::new(),
            }
        };
        let container_responses = request.container_requests.iter().map(give).collect();
        api::AllocateResponse { container_responses }.encode_to_vec()
    }

    /// Tells of its devices, now and later.
    fn watch(&self) -> http::Response<Body> {
        let words = stream::unfold((self.devices.subscribe(), true), async |(mut changes, first)| {
            if !first {
                changes.changed().await.ok()?;
            }
            let devices = changes.borrow_and_update().clone();
            Some((Ok(framed(&api::ListAndWatchResponse { devices }.encode_to_vec())), (changes, false)))
        });
        respond(words)
    }
}

fn options() -> api::Options {
    api::Options { pre_start_required: true, get_preferred_allocation_available: true }
}

fn framed(message: &[u8]) -> Frame<Bytes> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    Frame::data([&[0][..], &length, message].concat().into())
}

fn trailers(code: u8) -> Frame<Bytes> {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from(u16::from(code)));
    Frame::trailers(trailers)
}

fn respond(
    frames: impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
) -> http::Response<Body> {
    let body = http_body_util::StreamBody::new(frames.boxed());
    let response = http::Response::builder().header("content-type", "application/grpc");
    response.body(UnsyncBoxBody::new(body)).unwrap()
}
