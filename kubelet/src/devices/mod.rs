//! Devices that programs of others give (device plugins, v1beta1): who registered, which devices there are, who has them.
//!
//! <https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/>. A plugin registers at
//! `<root>/device-plugins/kubelet.sock`, or offers itself like a CSI driver; then it is listened to until its stream ends.
//! A kubelet that begins makes its socket anew, by which plugins know that they have to register again.

mod book;
mod checkpoint;
mod follow;
pub mod messages;
mod registration;

pub use book::{Allocated, DeviceError};

use crate::checkpoint::CheckpointError;
use crate::grpc;
use crate::metrics::{Metric, Metrics};
use crate::placement::Want;
use crate::placement::hints::{Hint, Hints};
use book::{Book, Choice, Plugin, completed};
use k8s_openapi::api::core::v1::{ResourceHealth, ResourceStatus};
use messages as api;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long one call to a plugin may take; upstream's for the one that it limits.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long after its start the kubelet waits for plugins that were there before: they register again when its socket is
/// made anew.
const RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Has the worker of a pod look again.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

pub struct Devices {
    /// `<root>/device-plugins`
    dir: PathBuf,
    book: Mutex<Book>,
    changed: watch::Sender<()>,
    writing: tokio::sync::Mutex<()>,
    tell: Tell,
    began: Instant,
    stop: CancellationToken,
    metrics: Metrics,
}

impl Devices {
    /// Goes on with what was given before. Must be called inside the tokio runtime.
    ///
    /// # Errors
    /// If the checkpoint is damaged: then nobody knows who has what.
    pub fn open(root: &Path, tell: Tell, metrics: Metrics) -> Result<Self, CheckpointError> {
        let dir = root.join("device-plugins");
        Ok(Self {
            book: Mutex::new(checkpoint::load(&dir)?),
            dir,
            changed: watch::Sender::new(()),
            writing: tokio::sync::Mutex::default(),
            tell,
            began: Instant::now(),
            stop: CancellationToken::new(),
            metrics,
        })
    }

    /// Lets plugins register until `stop`.
    pub async fn run(self: &Arc<Self>, stop: CancellationToken) {
        let _ended = self.stop.clone().drop_guard();
        let work = async {
            match registration::listen(&self.dir) {
                Ok(listener) => {
                    grpc::serve(listener, Arc::new(registration::Registration(self.clone()))).await
                }
                Err(error) => {
                    tracing::error!(dir = %self.dir.display(), %error, "device plugins cannot register");
                    std::future::pending().await
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Told when the devices that there are have changed.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn note_change(&self) {
        self.changed.send_replace(());
    }

    /// Capacity and what can be given of each resource.
    pub fn amounts(&self) -> BTreeMap<String, (usize, usize)> {
        self.book.lock().amounts()
    }

    /// Whether the container wants what plugins give.
    pub fn matters(&self, want: &Want) -> bool {
        self.book.lock().known(want).next().is_some()
    }

    pub fn has(&self, pod: &str) -> bool {
        self.book.lock().given.contains_key(pod)
    }

    pub fn pods(&self) -> Vec<String> {
        self.book.lock().given.keys().cloned().collect()
    }

    pub fn hints(&self, want: &Want, passing: &[String], nodes: &[u32]) -> Hints {
        self.book.lock().hints(want, passing, nodes)
    }

    /// Waits a moment for plugins that were there before this kubelet.
    pub async fn returned(&self, wants: &[Want]) {
        let mut changed = self.changed.subscribe();
        let there = || {
            let book = self.book.lock();
            let mut names = wants.iter().flat_map(|want| book.known(want));
            names.all(|(name, _)| book.resources[name].listed)
        };
        while !there() {
            if tokio::time::timeout_at(self.began + RETURN_TIMEOUT, changed.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Gives a container its devices; those that it has it keeps. Nothing is durable before [`save`](Self::save).
    ///
    /// # Errors
    /// If it cannot have all of them. Some may have been given then.
    pub async fn allocate(
        &self,
        want: &Want,
        passing: &[String],
        hint: Hint,
        runs: bool,
    ) -> Result<(), DeviceError> {
        let wanted: Vec<(String, usize)> =
            self.book.lock().known(want).map(|(name, count)| (name.clone(), count)).collect();
        for (name, count) in wanted {
            let (choice, plugin) = {
                let book = self.book.lock();
                let Some(choice) = book.choice(want, (&name, count), passing, hint, runs)? else { continue };
                let plugin = book.resources.get(&name).and_then(|resource| resource.plugin.clone());
                (choice, plugin.ok_or_else(|| DeviceError::Unregistered(name.clone()))?)
            };
            let devices = chosen(&plugin, &choice).await;
            let answer = ask(&name, &plugin, &devices, &self.metrics).await?;
            self.book.lock().give(want, &name, devices, answer);
        }
        Ok(())
    }

    /// Tells the plugins that want to know that the container is about to start.
    pub async fn pre_start(&self, pod: &str, container: &str) -> Result<(), String> {
        let calls: Vec<(Plugin, Vec<String>)> = {
            let book = self.book.lock();
            let all = book.given.get(pod).and_then(|all| all.get(container)).into_iter().flatten();
            let call = |(name, own): (&String, &Allocated)| {
                let plugin = book.resources.get(name)?.plugin.clone()?;
                plugin.options.pre_start_required.then(|| (plugin, own.devices.iter().cloned().collect()))
            };
            all.filter_map(call).collect()
        };
        for (plugin, device_ids) in calls {
            let request = api::PreStartContainerRequest { device_ids };
            let told = plugin.client.call::<_, api::Empty>(api::PRE_START_CONTAINER, request).await;
            told.map_err(|error| format!("device plugin PreStartContainer rpc failed with err: {error}"))?;
        }
        Ok(())
    }

    /// What the container has, by resource.
    pub fn of_container(&self, pod: &str, container: &str) -> BTreeMap<String, Allocated> {
        let book = self.book.lock();
        book.given.get(pod).and_then(|all| all.get(container)).cloned().unwrap_or_default()
    }

    /// All devices that can be given, by resource, with their NUMA nodes.
    pub fn all(&self) -> BTreeMap<String, BTreeMap<String, BTreeSet<u32>>> {
        let book = self.book.lock();
        let devices = |resource: &book::Resource| {
            let healthy = resource.devices.iter().filter(|(_, device)| device.healthy);
            healthy.map(|(id, device)| (id.clone(), device.nodes.clone())).collect()
        };
        book.resources.iter().map(|(name, resource)| (name.clone(), devices(resource))).collect()
    }

    /// `allocatedResourcesStatus` of the pod's containers that have devices, by their names.
    pub fn statuses(&self, pod: &str) -> BTreeMap<String, Vec<ResourceStatus>> {
        let book = self.book.lock();
        let status = |(name, own): (&String, &Allocated)| {
            let known = book.resources.get(name).map(|resource| &resource.devices);
            let health = |id: &String| match known.and_then(|known| known.get(id)) {
                None => "Unknown",
                Some(device) if device.healthy => "Healthy",
                Some(_) => "Unhealthy",
            };
            let one = |id: &String| ResourceHealth {
                resource_id: id.clone(),
                health: Some(health(id).to_owned()),
                message: None,
            };
            let resources = own.devices.iter().map(one).collect();
            ResourceStatus { name: name.clone(), resources: Some(resources) }
        };
        let containers = book.given.get(pod).into_iter().flatten();
        containers.map(|(name, all)| (name.clone(), all.iter().map(status).collect())).collect()
    }

    /// Takes back what a pod has. Nothing is durable before [`save`](Self::save). Says whether it had anything.
    pub fn release(&self, pod: &str) -> bool {
        self.book.lock().given.remove(pod).is_some()
    }

    /// Writes down who has what.
    pub async fn save(&self) {
        let _writing = self.writing.lock().await;
        let text = checkpoint::text(&self.book.lock());
        checkpoint::write(&self.dir, text).await;
    }
}

/// Of what there is to choose from, what the plugin prefers.
async fn chosen(plugin: &Plugin, choice: &Choice) -> BTreeSet<String> {
    let mut available = choice.must.clone();
    for list in &choice.from {
        if available.len() < choice.count {
            available.extend(list.iter().cloned());
        }
    }
    let free_choice = available.len() > choice.count && choice.must.len() < choice.count;
    if !plugin.options.get_preferred_allocation_available || !free_choice {
        return completed(choice, &BTreeSet::new());
    }
    let request = api::ContainerPreferredAllocationRequest {
        available_device_ids: available.into_iter().collect(),
        must_include_device_ids: choice.must.iter().cloned().collect(),
        allocation_size: i32::try_from(choice.count).unwrap_or(i32::MAX),
    };
    let request = api::PreferredAllocationRequest { container_requests: vec![request] };
    let answer =
        plugin.client.call::<_, api::PreferredAllocationResponse>(api::GET_PREFERRED_ALLOCATION, request);
    let preferred = answer.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the device plugin does not say what it prefers");
        api::PreferredAllocationResponse::default()
    });
    completed(choice, &preferred.container_responses.into_iter().flat_map(|c| c.device_ids).collect())
}

async fn ask(
    name: &str,
    plugin: &Plugin,
    devices: &BTreeSet<String>,
    metrics: &Metrics,
) -> Result<api::ContainerAllocateResponse, DeviceError> {
    let began = Instant::now();
    let request = api::ContainerAllocateRequest { device_ids: devices.iter().cloned().collect() };
    let request = api::AllocateRequest { container_requests: vec![request] };
    let answer = plugin.client.call::<_, api::AllocateResponse>(api::ALLOCATE, request).await;
    metrics.took(Metric::DeviceAllocation, &[name], began.elapsed());
    let failed = |why: String| DeviceError::Plugin { resource: name.to_owned(), why };
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    answer.container_responses.into_iter().next().ok_or_else(|| DeviceError::NoAnswer(name.to_owned()))
}
