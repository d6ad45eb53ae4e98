//! What a kind of volume has to know: the port that each of them implements.
//!
//! A volume's life on a node: `prepare` looks whether it can be had, `stage` puts it on the node once for all pods,
//! `publish` shows it to one pod, `expand` lets it grow, `usage` measures it, `unpublish` takes it from the pod and
//! `unstage` from the node. Every step is idempotent: after a crash the step that was under way is made again, and what
//! undoes a step also undoes one that was half done, or never begun.

use super::downward::Allocatable;
use super::host::Mounter;
use super::objects::Objects;
use super::record::Record;
use super::resolve::Spec;
use super::{VolumeError, ownership};
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What plugins may know about the node and the pod.
pub struct Request<'a> {
    pub pod: &'a Pod,
    /// The pod's entry in `spec.volumes`.
    pub volume: &'a Volume,
    /// What that entry comes to.
    pub spec: &'a Spec,
    /// `<pods-dir>/<uid>/volumes/kubernetes.io~<plugin>/<name>`; its parent exists.
    pub dir: PathBuf,
    /// What the downward API shows of the node: allocatable CPU and memory, for containers without limits.
    pub allocatable: &'a Allocatable,
    pub host: &'a Arc<dyn Mounter>,
    pub objects: &'a dyn Objects,
    pub now: Timestamp,
    /// No container of the pod was started yet. Afterwards what is in its volumes is left as the containers made it.
    pub first: bool,
}

impl Request<'_> {
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn fs_group(&self) -> Option<i64> {
        self.pod.spec.as_ref()?.security_context.as_ref()?.fs_group
    }

    /// The same as a number of the kernel's.
    pub(crate) fn group(&self) -> Option<u32> {
        ownership::group(self.fs_group())
    }
}

/// A volume that is ready to be mounted into containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// A directory or file; of a volume of mode Block its device.
    pub path: PathBuf,
    /// Whether every container sees it read-only, whatever its mount says.
    pub read_only: bool,
    /// Whether it is a device, for `volumeDevices`.
    pub block: bool,
    /// Set-up must be repeated after this time (tokens).
    pub refresh_after: Option<Duration>,
}

impl Mounted {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read_only: false, block: false, refresh_after: None }
    }
}

/// What a volume uses. A value that nobody knows is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub capacity_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    pub inodes: Option<u64>,
    pub inodes_free: Option<u64>,
    pub inodes_used: Option<u64>,
    /// What the volume's driver finds wrong with it, if it looks for that.
    pub abnormal: Option<bool>,
}

/// One kind of volume.
#[async_trait]
pub trait VolumePlugin: Send + Sync {
    /// Upstream's name, `kubernetes.io/<plugin>`.
    fn name(&self) -> &'static str;

    fn supports(&self, spec: &Spec) -> bool;

    /// Looks whether the volume can be had now, and makes nothing. Returns what has to be known to take it away again, which
    /// is on disk before `stage` is called; `None` for what lies in the pod's directory and goes with it.
    async fn prepare(&self, _: &Request<'_>) -> Result<Option<Record>, VolumeError> {
        Ok(None)
    }

    /// Puts the volume on the node. Called for those whose record says that they are staged, never twice at a time.
    async fn stage(&self, _: &Request<'_>, _: &Record) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Shows the volume to the pod, or brings what it shows up to date; on an error nothing of an older state is lost.
    async fn publish(&self, request: &Request<'_>, record: Option<&Record>) -> Result<Mounted, VolumeError>;

    /// Whether `publish` is wanted again of a volume that the pod has already.
    fn republishes(&self, _: &Record) -> bool {
        true
    }

    /// Takes the volume from a pod. What is mounted in the pod's directory afterwards is unmounted by the caller.
    async fn unpublish(&self, _: &Record) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Takes the volume from the node. No pod has it any more.
    async fn unstage(&self, _: &Record) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Lets a volume that is published use its whole size, in bytes; the size that it has then. `None` where there is
    /// nothing to do on a node.
    async fn expand(&self, _: &Request<'_>, _: &Record, _: i64) -> Result<Option<i64>, VolumeError> {
        Ok(None)
    }

    /// Whether the volume may have something to do on the node when it grows.
    fn grows(&self, _: &Record) -> bool {
        false
    }

    /// What the volume uses; `None` where its file system is to be asked.
    async fn usage(&self, _: &Record) -> Result<Option<Usage>, VolumeError> {
        Ok(None)
    }
}
