//! The volume plugins that the kubelet mounts into pods.
//!
//! A plugin turns one entry of `spec.volumes` into a directory, file or device on the node, by the steps of
//! [`VolumePlugin`]. Set-up is repeated whenever an object that a volume shows has changed. Everything of a pod lies below
//! `<pods-dir>/<uid>`, laid out as Kubernetes lays it out, and goes with it; what needs its plugin to go has a [`Record`].

mod atomic_writer;
mod book;
mod config_map;
pub mod downward;
mod downward_api;
mod empty_dir;
mod error;
mod host;
mod host_path;
pub(crate) mod image;
mod local;
mod locks;
mod nfs;
mod objects;
mod ownership;
mod payload;
mod plugin;
mod projected;
mod record;
mod resolve;
mod secret;
mod set_up;
mod sub_path;
mod tear_down;

pub use book::{Count, Listener, MEASURE, Timed};
pub use error::VolumeError;
pub use host::{LinuxMounter, MountTable, Mounter, NfsMount, Tmpfs};
pub(crate) use host::{make_dir_all, unescape};
pub(crate) use local::give;
pub use objects::{ObjectError, Objects, Token, TokenRequest};
pub use plugin::{Mounted, Request, Usage, VolumePlugin};
pub(crate) use record::digest;
pub use record::{Record, of_pod as records_of_pod};
pub use resolve::{Source, Spec, claim_name};
pub use set_up::{Note, SetUp, SetUpError};
pub(crate) use sub_path::DIRECTORY as SUB_PATHS;
pub use sub_path::SubPath;

use crate::csi::{Csi, Drivers};
use book::Book;
use coracle_client::placement::reaches;
use k8s_openapi::api::core::v1::Node;
use locks::Locks;
use parking_lot::Mutex;
use record::Records;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Where a node's volumes lie, and what it is called.
#[derive(Clone, Debug)]
pub struct VolumesConfig {
    /// The kubelet's own directory, for example `/var/lib/coracle/kubelet`; pods lie in its `pods`.
    pub root: PathBuf,
    pub node_name: String,
    /// Where the node keeps volumes of local-path, `<data-dir>/local-path`.
    pub local_path: PathBuf,
    /// `/`, below which the machine says whether it has SELinux.
    pub machine: PathBuf,
}

/// The kinds of volumes that this kubelet can mount, as a pod names them, for [`coracle_api::well_known::VOLUME_KINDS`].
pub const KINDS: &str = "configMap,csi,downwardAPI,emptyDir,ephemeral,hostPath,image,local,nfs,persistentVolumeClaim,projected,secret";

/// The volumes of all pods of a node.
pub struct Volumes {
    pods_dir: PathBuf,
    host: Arc<dyn Mounter>,
    objects: Arc<dyn Objects>,
    plugins: Vec<Box<dyn VolumePlugin>>,
    records: Records,
    /// One at a time works on a volume, whichever pods have it.
    locks: Locks,
    /// The unique names of volumes that this process has staged.
    staged: Mutex<HashSet<String>>,
    /// What this process has published, by the pod's UID and its name of the volume.
    published: Mutex<HashMap<(String, String), Mounted>>,
    book: Book,
    in_use: Mutex<BTreeSet<String>>,
    in_use_changed: Notify,
    /// What the Node says is in use, as the API server has it.
    reported: watch::Sender<BTreeSet<String>>,
    /// What the Node says is attached to it.
    attached: watch::Sender<BTreeSet<String>>,
    /// As it was last seen.
    node: Mutex<Option<Arc<Node>>>,
}

impl Volumes {
    pub fn new(
        config: VolumesConfig,
        host: Arc<dyn Mounter>,
        objects: Arc<dyn Objects>,
        drivers: Drivers,
    ) -> Self {
        let pods_dir = config.root.join("pods");
        let records = Records { root: config.root.clone(), pods_dir: pods_dir.clone() };
        let attached = watch::Sender::default();
        let plugins: Vec<Box<dyn VolumePlugin>> = vec![
            Box::new(projected::Projected),
            Box::new(empty_dir::EmptyDir),
            Box::new(config_map::ConfigMapVolume),
            Box::new(secret::SecretVolume),
            Box::new(host_path::HostPath),
            Box::new(downward_api::DownwardApi),
            Box::new(local::Local),
            Box::new(local::ClaimedHostPath { local_path: config.local_path.clone() }),
            Box::new(nfs::Nfs),
            Box::new(Csi::new(config, drivers, attached.subscribe())),
        ];
        let volumes = Self {
            pods_dir,
            host,
            objects,
            plugins,
            records,
            locks: Locks::default(),
            staged: Mutex::default(),
            published: Mutex::default(),
            book: Book::default(),
            in_use: Mutex::default(),
            in_use_changed: Notify::new(),
            reported: watch::Sender::default(),
            attached,
            node: Mutex::default(),
        };
        volumes.note_in_use(in_use(&volumes.records));
        volumes
    }

    /// Tells `listener` how long everything takes from now on.
    #[must_use]
    pub fn told_to(mut self, listener: Listener) -> Self {
        self.book = Book::told_to(listener);
        self
    }

    /// How many volumes pods want and have, by plugin.
    pub fn counts(&self) -> BTreeMap<String, Count> {
        self.book.counts()
    }

    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods_dir.join(uid)
    }

    /// The path that a container's mount of a `subPath` binds; see [`SubPath`].
    pub fn sub_path(&self, uid: &str, request: &SubPath<'_>) -> Result<PathBuf, VolumeError> {
        sub_path::prepare(self.host.as_ref(), &self.pod_dir(uid), request)
    }

    /// UIDs of pods that have a directory, for cleaning up after pods that went while the kubelet was down.
    pub fn pods_on_disk(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.pods_dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// The volumes that may not be detached from this node, for the Node's `status.volumesInUse`.
    pub fn in_use(&self) -> Vec<String> {
        self.in_use.lock().iter().cloned().collect()
    }

    /// Returns when [`Volumes::in_use`] may have changed since the last call. Cancel-safe.
    pub async fn in_use_changed(&self) {
        self.in_use_changed.notified().await;
    }

    /// Notes what the API server knows of [`Volumes::in_use`]. An attached volume is touched only once it stands there:
    /// otherwise it could be detached meanwhile.
    pub fn note_reported(&self, in_use: &[String]) {
        note(&self.reported, in_use.iter());
    }

    /// Notes what the Node says is attached to it: who waits for an attachment looks at it again.
    pub fn note_attached<'a>(&self, attached: impl Iterator<Item = &'a String>) {
        note(&self.attached, attached);
    }

    /// Notes this node's Node, by whose labels it may have volumes or not.
    pub fn note_node(&self, node: Option<Arc<Node>>) {
        *self.node.lock() = node;
    }

    /// Refuses a volume that other nodes have: a pod may have been placed by hand, or before the volume moved.
    fn check_node(&self, spec: &Spec) -> Result<(), VolumeError> {
        let Source::Claimed { volume, .. } = &spec.source else { return Ok(()) };
        match &*self.node.lock() {
            Some(node) if !reaches(volume, node.as_ref()) => Err(VolumeError::OtherNodes),
            _ => Ok(()),
        }
    }

    /// Counts anew what the records say is in use. Records that cannot be read keep what was known.
    async fn count_in_use(&self) {
        let counted = self.on_disk(|records| Ok(in_use(records))).await;
        self.note_in_use(counted.ok().flatten());
    }

    fn note_in_use(&self, counted: Option<BTreeSet<String>>) {
        let Some(now) = counted else { return };
        let mut known = self.in_use.lock();
        if *known != now {
            *known = now;
            self.in_use_changed.notify_one();
        }
    }

    /// Reads or writes records on a thread that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Records) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let records = self.records.clone();
        blocking(move || work(&records)).await
    }

    fn plugin(&self, name: &str) -> Result<&dyn VolumePlugin, VolumeError> {
        let found = self.plugins.iter().find(|plugin| plugin.name() == name);
        found.map(AsRef::as_ref).ok_or_else(|| VolumeError::NoPlugin { kind: name.to_owned() })
    }

    /// What the volumes of a pod use that only their plugins can tell, by the pod's name of the volume. One that does not
    /// answer is left out.
    pub async fn usage(&self, uid: &str) -> HashMap<String, Usage> {
        let mut all = HashMap::new();
        let of = uid.to_owned();
        let records = self.on_disk(move |records| records.read(&of)).await;
        for record in records.unwrap_or_default() {
            let Ok(plugin) = self.plugin(&record.plugin) else { continue };
            let began = std::time::Instant::now();
            let usage = plugin.usage(&record).await;
            if !matches!(usage, Ok(None)) {
                let plugin = book::plugin_name(&record.plugin, Some(&record));
                let (time, failed) = (began.elapsed(), usage.is_err());
                self.book.timed(Timed { operation: MEASURE, plugin, time, failed });
            }
            match usage {
                Ok(usage) => all.extend(usage.map(|usage| (record.volume.clone(), usage))),
                Err(error) => tracing::debug!(volume = record.unique, %error, "volume not measured"),
            }
        }
        all
    }
}

fn note<'a>(known: &watch::Sender<BTreeSet<String>>, now: impl Iterator<Item = &'a String>) {
    let now: BTreeSet<String> = now.cloned().collect();
    known.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
}

/// The attached volumes that the records name; `None` where they cannot be read.
fn in_use(records: &Records) -> Option<BTreeSet<String>> {
    let (all, staged) = (records.all().ok()?, records.staged().ok()?);
    let records = all.into_iter().map(|(_, record)| record).chain(staged);
    Some(records.filter(|record| record.attached).map(|record| record.unique).collect())
}

/// Does file work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(VolumeError::Panicked(error.to_string())))
}
