//! A driver of dynamic resource allocation, the tests' own: it remembers what it was asked, and can be told to refuse.

use bytes::Bytes;
use coracle_kubelet::dra::messages::{self as dra, DeviceHealth, DeviceIdentifier, HealthStatus};
use coracle_storage::csi::messages::{PluginInfo, RegistrationStatus};
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Default)]
pub struct State {
    pub registered: Vec<(bool, String)>,
    /// Method and claim, in the order of the calls.
    pub calls: Vec<String>,
    /// UIDs of claims.
    pub prepared: BTreeSet<String>,
    /// What it says instead of working.
    pub refuses: Option<String>,
    /// The last path that it was called by.
    pub path: String,
}

pub struct DraDriver {
    pub name: String,
    versions: Vec<String>,
    pub state: Mutex<State>,
    changed: watch::Sender<()>,
    health: watch::Sender<Vec<DeviceHealth>>,
    servers: Mutex<Vec<JoinHandle<()>>>,
}

impl DraDriver {
    pub fn new(name: &str, versions: &[&str]) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            health: watch::Sender::new(Vec::new()),
            servers: Mutex::default(),
        })
    }

    /// Serves and registers with the kubelet that has this directory. Returns the socket of the registration.
    pub fn register(self: &Arc<Self>, root: &Path) -> PathBuf {
        let directory = root.join("plugins").join(&self.name);
        let registry = root.join("plugins_registry");
        for needed in [&directory, &registry] {
            std::fs::create_dir_all(needed).unwrap();
        }
        let (endpoint, socket) =
            (directory.join("dra.sock"), registry.join(format!("{}-reg.sock", self.name)));
        self.listen(&endpoint, &endpoint);
        self.listen(&socket, &endpoint);
        socket
    }

    fn listen(self: &Arc<Self>, socket: &Path, endpoint: &Path) {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let (this, endpoint) = (self.clone(), endpoint.to_owned());
        self.servers.lock().push(tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (this, endpoint) = (this.clone(), endpoint.clone());
                let service = hyper::service::service_fn(move |request| {
                    let (this, endpoint) = (this.clone(), endpoint.clone());
                    async move { Ok::<_, Infallible>(this.respond(request, &endpoint).await) }
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
        self.servers.lock().drain(..).for_each(|server| server.abort());
    }

    /// Says this of its device from now on.
    pub fn say(&self, device: &str, health: HealthStatus, message: &str) {
        let device = DeviceIdentifier { pool_name: "pool".to_owned(), device_name: device.to_owned() };
        let (health, message) = (health.into(), message.to_owned());
        let said = DeviceHealth { device: Some(device), health, message, ..DeviceHealth::default() };
        self.health.send_replace(vec![said]);
    }

    pub fn refuse(&self, why: Option<&str>) {
        self.state.lock().refuses = why.map(str::to_owned);
    }

    pub async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !wanted(&self.state.lock()) {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.is_err() {
            let state = self.state.lock();
            panic!("never: {what}; calls {:?}, registered {:?}", state.calls, state.registered);
        }
    }

    async fn respond(&self, request: hyper::Request<Incoming>, endpoint: &Path) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let message = body.get(5..).unwrap_or_default();
        let answer = match path.rsplit('/').next().unwrap_or_default() {
            "GetInfo" => PluginInfo {
                r#type: "DRAPlugin".to_owned(),
                name: self.name.clone(),
                endpoint: endpoint.display().to_string(),
                supported_versions: self.versions.clone(),
            }
            .encode_to_vec(),
            "NotifyRegistrationStatus" => {
                let status = RegistrationStatus::decode(message).unwrap();
                self.state.lock().registered.push((status.plugin_registered, status.error));
                Vec::new()
            }
            "NodeWatchResources" => return self.watch(&path),
            method @ ("NodePrepareResources" | "NodeUnprepareResources") => {
                self.state.lock().path.clone_from(&path);
                self.work(method, &dra::ClaimsRequest::decode(message).unwrap().claims)
            }
            method => panic!("{method} is called"),
        };
        self.changed.send_replace(());
        respond(stream::iter([Ok(framed(&answer)), Ok(trailers(0))]))
    }

    fn work(&self, method: &str, claims: &[dra::Claim]) -> Vec<u8> {
        let mut state = self.state.lock();
        state.calls.extend(claims.iter().map(|claim| format!("{method} {}", claim.name)));
        let error = state.refuses.clone().unwrap_or_default();
        let works = error.is_empty();
        if method == "NodeUnprepareResources" {
            if works {
                state.prepared.retain(|uid| claims.iter().all(|claim| claim.uid != *uid));
            }
            let unprepared = dra::Unprepared { error };
            let claims = claims.iter().map(|claim| (claim.uid.clone(), unprepared.clone()));
            return dra::UnprepareResponse { claims: claims.collect() }.encode_to_vec();
        }
        if works {
            state.prepared.extend(claims.iter().map(|claim| claim.uid.clone()));
        }
        let device = |request: &str, device: &str| dra::Device {
            request_names: vec![request.to_owned()],
            pool_name: "pool".to_owned(),
            device_name: device.to_owned(),
            cdi_device_ids: vec![format!("{}/device={device}", self.name)],
            share_id: None,
        };
        let devices = vec![device("first", "one"), device("second", "two")];
        let prepared = dra::Prepared { devices, error };
        let claims = claims.iter().map(|claim| (claim.uid.clone(), prepared.clone()));
        dra::PrepareResponse { claims: claims.collect() }.encode_to_vec()
    }

    /// Tells of health what there is to tell, now and later.
    fn watch(&self, path: &str) -> http::Response<Body> {
        if !self.versions.iter().any(|version| path.starts_with(&format!("/{version}/"))) {
            return respond(stream::iter([Ok(trailers(12))]));
        }
        let changes = self.health.subscribe();
        let words = stream::unfold((changes, true), async |(mut changes, first)| {
            if !first {
                changes.changed().await.ok()?;
            }
            let devices = changes.borrow_and_update().clone();
            Some((Ok(framed(&dra::WatchResponse { devices }.encode_to_vec())), (changes, false)))
        });
        respond(words)
    }
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
    http::Response::builder()
        .header("content-type", "application/grpc")
        .body(UnsyncBoxBody::new(body))
        .unwrap()
}
