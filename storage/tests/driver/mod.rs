//! A CSI driver of the tests' own, over directories. It remembers every call, and can be told to fail, to hang and to lie
//! at any of them. It can be killed and started again, also at another socket.

mod controller;
mod sanity;

use bytes::Bytes;
#[allow(unused_imports, reason = "tests of nodes take no snapshots")]
pub use controller::{Controller, Shot};
use coracle_storage::csi::messages as csi;
use csi::NodeRpcType;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
#[allow(unused_imports, reason = "one test asks the judge itself")]
pub use sanity::judge;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to the next calls of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers with this gRPC code, and does nothing.
    Fail(i32),
    /// Does its work, and answers with this code.
    DoneButFailed(i32),
    /// Does nothing, and says that it did.
    Lie,
    /// Never answers.
    Hang,
    /// Is killed before it does anything.
    Die,
    /// Does its work, and is killed before it answers.
    DoneAndDie,
}

/// A call that was made, with what it was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: String,
    pub volume: String,
    /// The path of staging or target.
    pub path: String,
    /// Of publications and stagings.
    pub context: BTreeMap<String, String>,
    pub publish_context: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
    pub read_only: bool,
    pub mount_group: String,
    pub mount_flags: Vec<String>,
    pub mode: i32,
    pub block: bool,
    /// Bytes that an expansion asks for.
    pub bytes: i64,
}

pub struct State {
    pub calls: Vec<Call>,
    pub behaviours: BTreeMap<String, Behaviour>,
    pub capabilities: BTreeSet<NodeRpcType>,
    pub staged: BTreeSet<(String, String)>,
    pub published: BTreeSet<(String, String)>,
    pub max_volumes: i64,
    pub topology: BTreeMap<String, String>,
    /// Binds what it publishes in the kernel, which needs root. Otherwise it makes directories.
    pub binds: bool,
    pub registered: Vec<(bool, String)>,
    pub controller: Controller,
}

pub struct Driver {
    pub name: String,
    pub dir: PathBuf,
    pub state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
    servers: Mutex<Vec<JoinHandle<()>>>,
}

/// `name` is what it registers as; its volumes lie in `dir`.
pub fn driver(name: &str, dir: &Path, capabilities: &[NodeRpcType]) -> Arc<Driver> {
    fs::create_dir_all(dir.join("volumes")).unwrap();
    let state = State {
        calls: Vec::new(),
        behaviours: BTreeMap::new(),
        capabilities: capabilities.iter().copied().collect(),
        staged: BTreeSet::new(),
        published: BTreeSet::new(),
        max_volumes: 0,
        topology: BTreeMap::new(),
        binds: false,
        registered: Vec::new(),
        controller: Controller::default(),
    };
    Arc::new(Driver {
        name: name.to_owned(),
        dir: dir.to_owned(),
        state: Arc::new(Mutex::new(state)),
        changed: watch::Sender::new(()),
        servers: Mutex::default(),
    })
}

type Answer = Result<Vec<u8>, (i32, String)>;

impl Driver {
    /// Serves at this socket until killed; returns the path.
    pub fn serve(self: &Arc<Self>, socket: PathBuf) -> PathBuf {
        self.listen(&socket, None);
        socket
    }

    /// Offers itself to a kubelet, as node-driver-registrar does, by a socket in the kubelet's directory.
    pub fn register(self: &Arc<Self>, registry: &Path, endpoint: &Path) -> PathBuf {
        let socket = registry.join(format!("{}-reg.sock", self.name));
        self.listen(&socket, Some(endpoint.display().to_string()));
        socket
    }

    fn listen(self: &Arc<Self>, socket: &Path, offers: Option<String>) {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let this = self.clone();
        self.servers.lock().unwrap().push(tokio::spawn(async move {
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

    /// As by SIGKILL: connections end, sockets stay and nobody listens.
    pub fn kill(&self) {
        self.servers.lock().unwrap().drain(..).for_each(|server| server.abort());
    }

    pub fn told(&self, method: &str, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviours.insert(method.to_owned(), behaviour);
    }

    /// All goes well again. One that was killed is to be started, too.
    pub fn heal(&self) {
        self.state.lock().unwrap().behaviours.clear();
    }

    /// Whether it was killed.
    pub fn is_dead(&self) -> bool {
        self.servers.lock().unwrap().is_empty()
    }

    /// What it may be told, and what it was asked; a call that the specification forbids ends the test.
    fn judged(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap();
        let faults = &state.controller.violations;
        assert!(faults.is_empty(), "the driver was called as it may not be: {faults:#?}");
        state
    }

    pub fn calls(&self, method: &str) -> Vec<Call> {
        let state = self.judged();
        state.calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// The methods that were called for volumes, in their order.
    pub fn order(&self) -> Vec<String> {
        let state = self.judged();
        state.calls.iter().map(|call| call.method.clone()).collect()
    }

    pub fn is_clean(&self) -> bool {
        let state = self.judged();
        state.staged.is_empty() && state.published.is_empty()
    }

    /// Waits until the state is as wanted; what it was instead is said.
    pub async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !wanted(&self.judged()) {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.is_err() {
            let state = self.state.lock().unwrap();
            panic!("never: {what}; calls {:?}, registered {:?}", state.calls, state.registered);
        }
    }

    async fn respond(
        &self,
        request: hyper::Request<Incoming>,
        offers: Option<String>,
    ) -> http::Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<>> {
        let path = request.uri().path().to_owned();
        let body = match request.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            // Whoever was killed before it had said what it wants has called nothing.
            Err(_) => std::future::pending().await,
        };
        let message = body.get(5..).unwrap_or_default().to_vec();
        let method = path.rsplit('/').next().unwrap_or_default().to_owned();
        let behaviour = self.state.lock().unwrap().behaviours.get(&method).copied();
        let answer = match behaviour {
            Some(Behaviour::Hang) => {
                self.note(&method, &message);
                std::future::pending().await
            }
            Some(Behaviour::Die) => {
                self.note(&method, &message);
                self.kill();
                std::future::pending().await
            }
            Some(Behaviour::DoneAndDie) => {
                let _ = self.answer(&method, &message, offers);
                self.changed.send_replace(());
                self.kill();
                std::future::pending().await
            }
            Some(Behaviour::Fail(code)) => {
                self.note(&method, &message);
                Err((code, "told to fail".to_owned()))
            }
            Some(Behaviour::Lie) => {
                self.note(&method, &message);
                Ok(Vec::new())
            }
            Some(Behaviour::DoneButFailed(code)) => {
                let _ = self.answer(&method, &message, offers);
                Err((code, "told to fail at the end".to_owned()))
            }
            None => self.answer(&method, &message, offers),
        };
        self.changed.send_replace(());
        encoded(answer)
    }

    fn note(&self, method: &str, message: &[u8]) {
        let mut state = self.state.lock().unwrap();
        let faults = sanity::judge(&state, &self.name, method, message);
        state.controller.violations.extend(faults);
        if let Some(call) = call(method, message) {
            state.calls.push(call);
            drop(state);
            self.changed.send_replace(());
        }
    }

    fn answer(&self, method: &str, message: &[u8], offers: Option<String>) -> Answer {
        self.note(method, message);
        let call = call(method, message);
        let mut state = self.state.lock().unwrap();
        if let Some(answer) = controller::identity(&mut state, method) {
            return answer;
        }
        match (method, call) {
            ("GetInfo", _) => Ok(csi::PluginInfo {
                r#type: "CSIPlugin".to_owned(),
                name: self.name.clone(),
                endpoint: offers.unwrap_or_default(),
                supported_versions: vec!["1.0.0".to_owned()],
            }
            .encode_to_vec()),
            ("NotifyRegistrationStatus", _) => {
                let status = csi::RegistrationStatus::decode(message).unwrap();
                state.registered.push((status.plugin_registered, status.error));
                Ok(Vec::new())
            }
            ("NodeGetInfo", _) => {
                let topology = csi::Topology { segments: state.topology.clone() };
                Ok(csi::NodeGetInfoResponse {
                    node_id: format!("{}-node", self.name),
                    max_volumes_per_node: state.max_volumes,
                    accessible_topology: (!state.topology.is_empty()).then_some(topology),
                }
                .encode_to_vec())
            }
            ("NodeGetCapabilities", _) => {
                let capability = |what: &NodeRpcType| csi::NodeServiceCapability {
                    rpc: Some(csi::NodeRpc { r#type: *what as i32 }),
                };
                let capabilities = state.capabilities.iter().map(capability).collect();
                Ok(csi::NodeGetCapabilitiesResponse { capabilities }.encode_to_vec())
            }
            ("NodeExpandVolume", Some(call)) => {
                let capacity_bytes = state.controller.claimed_bytes.unwrap_or(call.bytes);
                Ok(csi::NodeExpandVolumeResponse { capacity_bytes }.encode_to_vec())
            }
            ("NodeGetVolumeStats", Some(_)) => Ok(stats().encode_to_vec()),
            (_, Some(call)) => match controller::work(&mut state.controller, &call, message) {
                Some(answer) => answer,
                None => self.work(&mut state, &call),
            },
            (method, None) => Err((12, format!("{method} is not implemented"))),
        }
    }

    /// What changes volumes. Each step is idempotent, and refuses what the specification forbids.
    fn work(&self, state: &mut State, call: &Call) -> Answer {
        let Call { volume, path, .. } = call.clone();
        let key = (volume.clone(), path.clone());
        let data = self.dir.join("volumes").join(&volume);
        fs::create_dir_all(&data).unwrap();
        let refused = |why: &str| Err((9, format!("{}: {why}", call.method)));
        let stages = state.capabilities.contains(&NodeRpcType::StageUnstageVolume);
        if !stages && matches!(call.method.as_str(), "NodeStageVolume" | "NodeUnstageVolume") {
            state.controller.violations.push(format!("{} is not offered", call.method));
            return Err((12, format!("{} is not implemented", call.method)));
        }
        match call.method.as_str() {
            "NodeStageVolume" => {
                assert!(Path::new(&path).is_dir(), "the kubelet makes the staging directory");
                state.staged.insert(key);
            }
            "NodePublishVolume" => {
                let ephemeral = call.context.get("csi.storage.k8s.io/ephemeral").is_some_and(|e| e == "true");
                if stages && !ephemeral && !state.staged.iter().any(|(id, _)| *id == volume) {
                    return refused("not staged");
                }
                if !state.published.contains(&key) {
                    show(&data, Path::new(&path), state.binds, call.block);
                }
                state.published.insert(key);
            }
            "NodeUnpublishVolume" => {
                hide(Path::new(&path), state.binds);
                state.published.remove(&key);
            }
            "NodeUnstageVolume" => {
                if state.published.iter().any(|(id, _)| *id == volume) {
                    return refused("published");
                }
                state.staged.remove(&key);
            }
            method => return Err((12, format!("{method} is not implemented"))),
        }
        Ok(Vec::new())
    }
}

fn show(data: &Path, target: &Path, binds: bool, block: bool) {
    if block {
        fs::write(target, "a device").unwrap();
        return;
    }
    fs::create_dir_all(target).unwrap();
    if binds {
        let bound = std::process::Command::new("mount").arg("--bind").arg(data).arg(target).status();
        assert!(bound.unwrap().success());
    }
}

fn hide(target: &Path, binds: bool) {
    if binds {
        let _ = std::process::Command::new("umount").arg(target).output();
    }
    let _ = fs::remove_file(target);
    let _ = fs::remove_dir_all(target);
}

fn stats() -> csi::NodeGetVolumeStatsResponse {
    let usage = |unit: csi::Unit, total: i64, used: i64| csi::VolumeUsage {
        available: total - used,
        total,
        used,
        unit: unit as i32,
    };
    csi::NodeGetVolumeStatsResponse {
        usage: vec![usage(csi::Unit::Bytes, 1000, 400), usage(csi::Unit::Inodes, 10, 3)],
        volume_condition: Some(csi::VolumeCondition { abnormal: false, message: String::new() }),
    }
}

/// What a request was about; `None` for those of no volume.
fn call(method: &str, message: &[u8]) -> Option<Call> {
    let mut call = Call {
        method: method.to_owned(),
        volume: String::new(),
        path: String::new(),
        context: BTreeMap::new(),
        publish_context: BTreeMap::new(),
        secrets: BTreeMap::new(),
        read_only: false,
        mount_group: String::new(),
        mount_flags: Vec::new(),
        mode: 0,
        block: false,
        bytes: 0,
    };
    match method {
        "NodeStageVolume" => {
            let request = csi::NodeStageVolumeRequest::decode(message).ok()?;
            (call.volume, call.path, call.secrets) =
                (request.volume_id, request.staging_target_path, request.secrets);
            (call.context, call.publish_context) = (request.volume_context, request.publish_context);
            capability(&mut call, request.volume_capability);
        }
        "NodePublishVolume" => {
            let request = csi::NodePublishVolumeRequest::decode(message).ok()?;
            (call.volume, call.path, call.secrets) =
                (request.volume_id, request.target_path, request.secrets);
            (call.context, call.publish_context) = (request.volume_context, request.publish_context);
            call.read_only = request.readonly;
            capability(&mut call, request.volume_capability);
        }
        "NodeUnpublishVolume" => {
            let request = csi::NodeUnpublishVolumeRequest::decode(message).ok()?;
            (call.volume, call.path) = (request.volume_id, request.target_path);
        }
        "NodeUnstageVolume" => {
            let request = csi::NodeUnstageVolumeRequest::decode(message).ok()?;
            (call.volume, call.path) = (request.volume_id, request.staging_target_path);
        }
        "NodeExpandVolume" => {
            let request = csi::NodeExpandVolumeRequest::decode(message).ok()?;
            (call.volume, call.path, call.secrets) =
                (request.volume_id, request.volume_path, request.secrets);
            call.bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        }
        "NodeGetVolumeStats" => {
            let request = csi::NodeGetVolumeStatsRequest::decode(message).ok()?;
            (call.volume, call.path) = (request.volume_id, request.volume_path);
        }
        _ => return controller::fill(&mut call, method, message).then_some(call),
    }
    Some(call)
}

fn capability(call: &mut Call, capability: Option<csi::VolumeCapability>) {
    let Some(capability) = capability else { return };
    call.mode = capability.access_mode.map_or(0, |mode| mode.mode);
    match capability.access_type {
        Some(csi::AccessType::Mount(mount)) => {
            (call.mount_group, call.mount_flags) = (mount.volume_mount_group, mount.mount_flags);
        }
        Some(csi::AccessType::Block(_)) => call.block = true,
        None => {}
    }
}

/// One message as gRPC frames it, or a status.
fn encoded(answer: Answer) -> http::Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>> {
    let (code, message, data) = match answer {
        Ok(data) => (0, String::new(), Some(data)),
        Err((code, message)) => (code, message, None),
    };
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    if !message.is_empty() {
        trailers.insert("grpc-message", message.replace(' ', "%20").parse().unwrap());
    }
    let framed = data.map(|data| {
        let mut framed = vec![0_u8];
        framed.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        framed.extend(data);
        Frame::data(Bytes::from(framed))
    });
    let frames: Vec<Result<Frame<Bytes>, Infallible>> =
        framed.into_iter().chain([Frame::trailers(trailers)]).map(Ok).collect();
    let body = StreamBody::new(futures::stream::iter(frames));
    http::Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}
