//! The volume plugins that the kubelet mounts into pods.
//!
//! A plugin turns one entry of `spec.volumes` into a directory or file on the node. Set-up is idempotent and is
//! repeated whenever an object that a volume shows has changed. Tear-down needs no plugin: everything of a pod lies
//! below `<pods-dir>/<uid>`, laid out as Kubernetes lays it out, and goes with it.

mod atomic_writer;
mod claim;
mod config_map;
pub mod downward;
mod downward_api;
mod empty_dir;
mod error;
mod host;
mod host_path;
mod objects;
mod ownership;
mod payload;
mod projected;
mod secret;
mod sub_path;

pub use error::VolumeError;
pub use host::{LinuxMounter, MountTable, Mounter, Tmpfs};
pub use objects::{ObjectError, Objects, Token, TokenRequest};
pub use sub_path::SubPath;

use crate::beneath::remove_below;
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What plugins may know about the node and the pod.
pub struct Request<'a> {
    pub pod: &'a Pod,
    pub volume: &'a Volume,
    /// `<pods-dir>/<uid>/volumes/kubernetes.io~<plugin>/<name>`; its parent exists.
    pub dir: PathBuf,
    /// What the downward API shows of the node: allocatable CPU and memory, for containers without limits.
    pub allocatable: &'a downward::Allocatable,
    pub host: &'a dyn Mounter,
    pub objects: &'a dyn Objects,
    pub now: Timestamp,
    /// No container of the pod was started yet. Afterwards what is in its volumes is left as the containers made it.
    pub first: bool,
}

impl Request<'_> {
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn fs_group(&self) -> Option<i64> {
        self.pod.spec.as_ref()?.security_context.as_ref()?.fs_group
    }

    /// The same as a number of the kernel's.
    fn group(&self) -> Option<u32> {
        ownership::group(self.fs_group())
    }
}

/// A volume that is ready to be mounted into containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub path: PathBuf,
    /// Whether every container sees it read-only, whatever its mount says.
    pub read_only: bool,
    /// Set-up must be repeated after this time (tokens).
    pub refresh_after: Option<Duration>,
}

impl Mounted {
    fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read_only: false, refresh_after: None }
    }
}

/// One kind of volume.
#[async_trait]
pub trait VolumePlugin: Send + Sync {
    /// Upstream's name, `kubernetes.io/<plugin>`.
    fn name(&self) -> &'static str;

    fn supports(&self, volume: &Volume) -> bool;

    /// Makes the volume, or brings it up to date. Idempotent; on an error nothing of an older state is lost.
    async fn set_up(&self, request: &Request<'_>) -> Result<Mounted, VolumeError>;
}

/// The volumes of all pods of a node.
pub struct Volumes {
    pods_dir: PathBuf,
    host: Arc<dyn Mounter>,
    objects: Arc<dyn Objects>,
    plugins: Vec<Box<dyn VolumePlugin>>,
}

/// A volume of a pod that could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
pub struct SetUpError {
    pub volume: String,
    #[source]
    pub source: VolumeError,
}

impl Volumes {
    /// `pods_dir` is the kubelet's `pods`, for example `/var/lib/coracle/kubelet/pods`.
    pub fn new(pods_dir: PathBuf, host: Arc<dyn Mounter>, objects: Arc<dyn Objects>) -> Self {
        let plugins: Vec<Box<dyn VolumePlugin>> = vec![
            Box::new(projected::Projected),
            Box::new(empty_dir::EmptyDir),
            Box::new(config_map::ConfigMapVolume),
            Box::new(secret::SecretVolume),
            Box::new(host_path::HostPath),
            Box::new(downward_api::DownwardApi),
            Box::new(claim::Claim),
        ];
        Self { pods_dir, host, objects, plugins }
    }

    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods_dir.join(uid)
    }

    /// Sets up every volume of the pod, all of them even when one fails; returns what is mounted where by volume
    /// name, and what failed. `first` until a container of the pod was started.
    pub async fn set_up(
        &self,
        pod: &Pod,
        allocatable: &downward::Allocatable,
        first: bool,
        now: Timestamp,
    ) -> (BTreeMap<String, Mounted>, Vec<SetUpError>) {
        let (mut mounted, mut failed) = (BTreeMap::new(), Vec::new());
        for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
            match self.set_up_one(pod, volume, allocatable, (first, now)).await {
                Ok(done) => {
                    mounted.insert(volume.name.clone(), done);
                }
                Err(source) => failed.push(SetUpError { volume: volume.name.clone(), source }),
            }
        }
        (mounted, failed)
    }

    async fn set_up_one(
        &self,
        pod: &Pod,
        volume: &Volume,
        allocatable: &downward::Allocatable,
        (first, now): (bool, Timestamp),
    ) -> Result<Mounted, VolumeError> {
        let plugin = self.plugins.iter().find(|p| p.supports(volume)).ok_or(VolumeError::NoPlugin)?;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let parent = self.pod_dir(uid).join("volumes").join(plugin.name().replace('/', "~"));
        host::make_dir_all(&parent, 0o750)?;
        let (host, objects) = (self.host.as_ref(), self.objects.as_ref());
        let dir = parent.join(&volume.name);
        plugin.set_up(&Request { pod, volume, dir, allocatable, host, objects, now, first }).await
    }

    /// The path that a container's mount of a `subPath` binds; see [`SubPath`].
    pub fn sub_path(&self, uid: &str, request: &SubPath<'_>) -> Result<PathBuf, VolumeError> {
        sub_path::prepare(self.host.as_ref(), &self.pod_dir(uid), request)
    }

    /// Unmounts and removes everything of a pod. Idempotent. Never deletes through a mount: what cannot be unmounted
    /// is an error, and stays.
    pub fn tear_down(&self, uid: &str) -> Result<(), VolumeError> {
        let dir = self.pod_dir(uid);
        unmount_below(self.host.as_ref(), &dir)?;
        remove_below(&self.pods_dir, &dir).map_err(|error| VolumeError::io("remove", &dir, error))
    }

    /// UIDs of pods that have a directory, for cleaning up after pods that went while the kubelet was down.
    pub fn pods_on_disk(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.pods_dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

/// Unmounts everything at or below `dir`, the deepest first, until nothing is left (mounts may be stacked).
fn unmount_below(host: &dyn Mounter, dir: &Path) -> Result<(), VolumeError> {
    let mut mounts = host.mounts()?.below(dir);
    mounts.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in mounts {
        host.unmount(&path)?;
    }
    match host.mounts()?.below(dir).first() {
        None => Ok(()),
        Some(path) => Err(VolumeError::StillMounted { path: path.clone() }),
    }
}
