//! The built-in provisioner `coracle.io/local-path`: directories of nodes, one for each claim.
//!
//! One runs for the whole cluster, where the API server is. It does the work of its own node itself, and asks other nodes'
//! kubelets for theirs ([`mail`], [`serve`]).

mod grow;
pub mod incoming;
mod job;
mod mail;
pub mod moving;
mod plan;
pub(crate) mod room;
mod serve;
mod snapshots;
pub mod transfer;
mod users;
mod work;

pub use serve::serve;

use crate::csi_control::DataSource;
use crate::facts::{self, HOSTNAME, SELECTED_NODE, SizeLimit};
use crate::provision;
use crate::volumes::Mounter;
use coracle_client::informer::api_for;
use coracle_client::{
    Action, Context, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder,
};
use job::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use moving::{Carrier, NodeProxy};
use plan::Ending;
use serde_json::json;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use work::Outcome;

/// Where this node keeps its volumes.
#[derive(Clone)]
pub struct LocalPathConfig {
    pub node_name: String,
    /// Absolute; created when the first volume is made. `<data-dir>/local-path`.
    pub root: PathBuf,
    pub mounter: Arc<dyn Mounter>,
    /// How volumes are read and made on nodes, to be moved. Absent: by the API server.
    pub carrier: Option<Arc<dyn Carrier>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Claim(ObjectKey),
    /// There, or about to be.
    Volume(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "claim {key}"),
            Self::Volume(name) => write!(f, "volume {name}"),
        }
    }
}

/// Cloning shares everything.
#[derive(Clone)]
pub(crate) struct LocalPath {
    pub client: kube::Client,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    pub nodes: Informer<Node>,
    pub recorder: Recorder,
    carrier: Arc<dyn Carrier>,
    config: LocalPathConfig,
}

impl LocalPath {
    /// `context.client` needs the rights of `persistent-volume-binder`, and that of patching Nodes.
    pub fn new(context: &Context, config: LocalPathConfig) -> Self {
        let component = format!("{}_{}", facts::LOCAL_PATH, config.node_name);
        let informers = &context.informers;
        Self {
            recorder: Recorder::new(context.client.clone(), &component, ""),
            client: context.client.clone(),
            claims: informers.of(),
            volumes: informers.of(),
            classes: informers.of(),
            nodes: informers.of(),
            carrier: config.carrier.clone().unwrap_or_else(|| Arc::new(NodeProxy(context.client.clone()))),
            config,
        }
    }
}

/// Runs the cluster's provisioner until `context.stop` is cancelled.
pub(crate) async fn run(context: &Context, reconciler: LocalPath) {
    let (claims, volumes) = (reconciler.claims.clone(), reconciler.volumes.clone());
    let (classes, nodes) = (reconciler.classes.clone(), reconciler.nodes.clone());
    let of_class = {
        let claims = claims.clone();
        move |_: &Delta<StorageClass>| claims.list().iter().map(|c| claim_key(c)).collect::<Vec<_>>()
    };
    Controller::new(reconciler)
        .watch(&claims, |delta| delta.new.as_deref().map(claim_key))
        .watch(&volumes, |delta| delta.new.as_ref().map(|v| Key::Volume(v.name_any())))
        .watch(&classes, of_class)
        .watch(&nodes, |delta| {
            // Nodes that have nothing to say of volumes are nearly all.
            let answered = delta.new.iter().flat_map(|node| mail::answered(node));
            // Snapshots have a controller of their own.
            let volumes = answered.filter(|name| name.starts_with("pvc-"));
            volumes.map(|volume| Key::Volume(volume.to_owned())).collect::<Vec<_>>()
        })
        .workers(WORKERS)
        .run(context.stop.clone())
        .await;
}

/// Volumes that are worked on at a time: one may take minutes to be copied.
const WORKERS: usize = 4;

fn claim_key(claim: &PersistentVolumeClaim) -> Key {
    Key::Claim(ObjectKey::of(claim))
}

impl Reconciler for LocalPath {
    type Key = Key;
    const PATIENCE: Option<coracle_client::beat::Patience> = None;

    fn name(&self) -> &'static str {
        crate::facts::LOCAL_PATH
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, ReconcileError> {
        match key {
            Key::Claim(key) => {
                Box::pin(self.resume(key)).await?;
                self.grow(key).await?;
                self.provision(key).await
            }
            Key::Volume(name) if self.volumes.get("", name).is_some() => {
                match Box::pin(self.move_on(name)).await? {
                    Some(action) => Ok(action),
                    None => self.end(name).await,
                }
            }
            // Its node has made it, for a claim that waits for it; or nobody waits any more.
            Key::Volume(name) => match self.claims.iter().find(|c| provision::volume_name(c) == *name) {
                Some(claim) => self.provision(&ObjectKey::of(claim.as_ref())).await,
                None => self.forget(name).await,
            },
        }
    }
}

/// What the node is asked to make for a claim.
fn making(claim: &PersistentVolumeClaim, from: Option<String>, holds: Option<SizeLimit>) -> Job {
    let size = u64::try_from(facts::requested(claim).units()).ok();
    let by = |limit| size.filter(|_| holds == Some(limit));
    let (bytes, quota) = (by(SizeLimit::File), by(SizeLimit::Quota));
    Job::Make { directory: plan::directory(claim), from, bytes, quota }
}

impl LocalPath {
    async fn provision(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::AwaitChange) };
        let class = self.classes.get("", facts::class_of(&claim));
        let Some(node) = plan::node_of(&claim, class.as_deref()) else { return Ok(Action::AwaitChange) };
        let name = provision::volume_name(&claim);
        let Some(class) = class.filter(|_| self.volumes.get("", &name).is_none()) else {
            return Ok(Action::AwaitChange);
        };
        let source = DataSource::of(&claim);
        if source == DataSource::Populator {
            let message = "Assuming an external populator will provision the volume";
            self.recorder.normal(claim.as_ref(), "Provisioning", message);
            return Ok(Action::AwaitChange);
        }
        let limit = plan::limit(&class);
        let refusal = provision::refusal(&claim).map(str::to_owned).or(limit.clone().err());
        let Some(home) = self.home(node) else {
            let why = format!("node {node} keeps no local-path volumes: its kubelet does not say where");
            self.failed(&claim, &class, &why);
            return Ok(Action::AwaitChange);
        };
        if let Err(why) = told_apart(self.nodes.iter(), &home) {
            return Err(ReconcileError::Other(self.failed(&claim, &class, &why)));
        }
        let from = match refusal {
            Some(why) => Err(why),
            None => self.source_of(&claim, &source, node).await?,
        };
        let from = match from {
            Ok(from) => from,
            // A claim that is not bound yet, for one, may be so soon.
            Err(why) => return Err(ReconcileError::Other(self.failed(&claim, &class, &why))),
        };
        let holds = limit.ok().and_then(|limit| plan::holds(limit, home.has_quotas));
        if holds == Some(SizeLimit::Quota) && !home.has_quotas {
            let why =
                format!("the file system of node {node} has no project quotas, which the class asks for");
            return Err(self.impossible_there(&claim, &class, &why).await?);
        }
        match self.work(&home, &name, &making(&claim, from, holds)).await? {
            Outcome::Waits { new } => {
                if new {
                    self.tell_begun(&claim);
                }
                Ok(Action::AwaitChange)
            }
            Outcome::Failed { error, full: true } => {
                Err(self.impossible_there(&claim, &class, &error).await?)
            }
            Outcome::Failed { error, .. } => Err(ReconcileError::Other(self.failed(&claim, &class, &error))),
            Outcome::Done => {
                if home.is_own {
                    self.tell_begun(&claim);
                }
                let place = home.root.join(plan::directory(&claim));
                let volume = plan::volume(&claim, &class, &home.hostname, &place, holds);
                self.write(&claim, &class, &volume).await
            }
        }
    }

    /// The node can never make this volume: another one is to be chosen. The error to end with.
    async fn impossible_there(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        why: &str,
    ) -> Result<ReconcileError, ReconcileError> {
        let message = self.failed(claim, class, why);
        self.reschedule(claim).await?;
        Ok(ReconcileError::Other(message))
    }

    fn tell_begun(&self, claim: &PersistentVolumeClaim) {
        let message =
            format!("External provisioner is provisioning volume for claim \"{}\"", ObjectKey::of(claim));
        self.recorder.normal(claim, "Provisioning", message);
    }

    fn failed(&self, claim: &PersistentVolumeClaim, class: &StorageClass, why: &str) -> String {
        let message = format!("failed to provision volume with StorageClass \"{}\": {why}", class.name_any());
        self.recorder.warning(claim, "ProvisioningFailed", message.clone());
        message
    }

    async fn write(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        volume: &PersistentVolume,
    ) -> Result<Action, ReconcileError> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                return Err(ReconcileError::Other(self.failed(claim, class, &error.to_string())));
            }
            Ok(_) => {
                let message = format!("Successfully provisioned volume {}", volume.name_any());
                self.recorder.normal(claim, "ProvisioningSucceeded", message);
                if facts::size_limit(volume).is_none() {
                    self.tell_no_limit(claim);
                }
            }
        }
        Ok(Action::AwaitChange)
    }

    /// The directory on this node that a claim's volume is to be a copy of.
    async fn source_of(
        &self,
        claim: &PersistentVolumeClaim,
        source: &DataSource,
        node: &str,
    ) -> Result<Result<Option<String>, String>, ReconcileError> {
        Ok(match source {
            DataSource::Empty | DataSource::Populator => Ok(None),
            DataSource::Claim(name) => self.claim_as_source(claim, name, node),
            DataSource::Snapshot(name) => self.snapshot_as_source(claim, name, node).await?,
            DataSource::Foreign => Err("a data source in another namespace is not supported".to_owned()),
        })
    }

    async fn snapshot_as_source(
        &self,
        claim: &PersistentVolumeClaim,
        name: &str,
        node: &str,
    ) -> Result<Result<Option<String>, String>, ReconcileError> {
        let namespace = claim.namespace().unwrap_or_default();
        let found = crate::snapshot_api::ready(&self.client, facts::LOCAL_PATH, &namespace, name).await;
        let ready = match found {
            Err(kube::Error::Api(status)) if status.code == 404 => Err(status.message.clone()),
            found => found?,
        };
        let checked = ready.and_then(|ready| {
            if facts::requested(claim).units() < ready.restore_bytes {
                return Err(format!(
                    "requested volume size is less than the size {} for the source snapshot {name}",
                    ready.restore_bytes
                ));
            }
            let (hostname, directory) = ready.handle.split_once('/').unwrap_or_default();
            self.copied_on(node, hostname, name).map(|_| Some(directory.to_owned()))
        });
        Ok(checked)
    }

    /// The node, if it is the one that the source lies on.
    fn copied_on(&self, node: &str, hostname: &str, source: &str) -> Result<work::Home, String> {
        let home = self.home(node).filter(|home| home.hostname == hostname);
        home.ok_or_else(|| {
            format!("the data of {source} lies on node {hostname}, and can be copied there alone: the pod must run there")
        })
    }

    fn claim_as_source(
        &self,
        claim: &PersistentVolumeClaim,
        name: &str,
        node: &str,
    ) -> Result<Option<String>, String> {
        let namespace = claim.namespace().unwrap_or_default();
        let original = self.claims.get(&namespace, name);
        let volume = original.as_ref().and_then(|original| {
            let volume = self.volumes.get("", facts::volume_name(original)?)?;
            facts::is_bound_to(&volume, original).then_some(volume)
        });
        let Some(volume) = volume else { return Err(format!("the PVC DataSource {name} is not bound yet")) };
        let Some(hostname) = plan::home(&volume) else {
            return Err(format!("the source volume of {name} is not of local-path"));
        };
        if moving::is_held(&volume) {
            return Err(format!("the source volume of {name} is being moved"));
        }
        let has = facts::storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
        if facts::requested(claim) < has {
            return Err("error, new PVC request must be greater than or equal in size to the specified PVC data source".to_owned());
        }
        let home = self.copied_on(node, hostname, name)?;
        let directory = plan::directory_of(&volume, &home.root);
        directory
            .map(Some)
            .ok_or_else(|| format!("the source volume of {name} is outside of its node's root"))
    }

    /// Lets the scheduler choose another node: this one has no room.
    async fn reschedule(&self, claim: &PersistentVolumeClaim) -> Result<(), ReconcileError> {
        let waits = self
            .classes
            .get("", facts::class_of(claim))
            .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        if waits {
            let key = ObjectKey::of(claim);
            let api: Api<PersistentVolumeClaim> = api_for(&self.client, &key);
            let patch = json!({ "metadata": { "annotations": { SELECTED_NODE: null }, "uid": claim.uid() } });
            api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(())
    }

    async fn end(&self, name: &str) -> Result<Action, ReconcileError> {
        let Some(volume) = self.volumes.get("", name) else { return Ok(Action::AwaitChange) };
        if !plan::ends(&volume) {
            return self.settle(&volume).await;
        }
        let hostname = plan::home(&volume).unwrap_or_default();
        let ending = match self.home_by_hostname(hostname) {
            Some(home) => (plan::ending(&volume, &home.root), Some(home)),
            // Its node is gone, and the data with it.
            None if volume.metadata.deletion_timestamp.is_some() && !self.is_known(hostname) => {
                (Ending::LetGo, None)
            }
            None => (Ending::NotYet, None),
        };
        match ending {
            (Ending::Delete(directory), Some(home)) => {
                match self.work(&home, name, &Job::Remove { directory }).await? {
                    Outcome::Waits { .. } => return Ok(Action::AwaitChange),
                    Outcome::Failed { error, .. } => {
                        self.recorder.warning(volume.as_ref(), "VolumeFailedDelete", error.clone());
                        return Err(ReconcileError::Other(error));
                    }
                    Outcome::Done => {}
                }
                self.close_mail(&home, name).await?;
                provision::delete(&self.client, &volume).await?;
            }
            (Ending::LetGo, _) => {}
            _ => return Ok(Action::AwaitChange),
        }
        provision::drop_finalizer(&self.client, name).await
    }
}

/// The node that volumes lie on which are pinned to this hostname. A node labels itself as it likes: where several have the
/// label, it is that of the one that is named so, and of none otherwise.
fn holder<N: Deref<Target = Node>>(nodes: impl Iterator<Item = N>, wanted: &str) -> Option<N> {
    let mut found: Vec<N> = nodes.filter(|node| hostname(node) == wanted).collect();
    if found.len() > 1 {
        found.retain(|node| node.name_any() == wanted);
    }
    found.pop()
}

/// Refuses a node to which no volume can be pinned, because another one has its hostname.
fn told_apart<N: Deref<Target = Node>>(
    mut nodes: impl Iterator<Item = N>,
    home: &work::Home,
) -> Result<(), String> {
    let work::Home { node: name, hostname: label, .. } = home;
    let same = |node: &N| node.name_any() != *name && hostname(node) == *label;
    match nodes.find(same).filter(|_| label != name) {
        Some(other) => {
            let other = other.name_any();
            Err(format!(
                "node {name} has the hostname of node {other}, {label}: volumes could not be told apart"
            ))
        }
        None => Ok(()),
    }
}

/// Where a node keeps its volumes, of its `--data-dir`.
pub fn root_in(data_dir: &Path) -> PathBuf {
    data_dir.join("local-path")
}

/// The node's hostname label, which is its name unless somebody changed it.
fn hostname(node: &Node) -> String {
    node.labels().get(HOSTNAME).cloned().unwrap_or_else(|| node.name_any())
}
