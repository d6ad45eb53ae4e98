//! `local` volumes and claimed `hostPath` ones: a place of this node that outlives the pod.

use super::{Mounted, Record, Request, Source, Spec, VolumeError, VolumePlugin, host_path, ownership};
use async_trait::async_trait;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A PersistentVolume of kind `local`.
pub struct Local;

#[async_trait]
impl VolumePlugin for Local {
    fn name(&self) -> &'static str {
        LOCAL
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.persistent().is_some_and(|volume| volume.local.is_some())
    }

    async fn prepare(&self, request: &Request<'_>) -> Result<Option<Record>, VolumeError> {
        let source = request.spec.persistent().and_then(|volume| volume.local.as_ref());
        Ok(source.map(|source| record(LOCAL, request.spec, Path::new(&source.path))))
    }

    async fn publish(&self, request: &Request<'_>, record: Option<&Record>) -> Result<Mounted, VolumeError> {
        let path = record.map(|record| record.path.clone()).unwrap_or_default();
        let (place, block) = (path.clone(), request.spec.is_block());
        super::blocking(move || check(&place, block)).await?;
        if block {
            return Ok(Mounted { block, ..Mounted::at(path) });
        }
        // Later its containers run, and what they have made of it since is theirs.
        if request.first {
            give(request, path.clone()).await?;
        }
        Ok(Mounted::at(path))
    }
}

/// A directory, or for volumes of mode Block a device.
fn check(path: &Path, block: bool) -> Result<(), VolumeError> {
    let found = std::fs::metadata(path).map_err(|error| VolumeError::io("open local volume", path, error))?;
    let kind = if block { "block device" } else { "directory" };
    let fits = if block { found.file_type().is_block_device() } else { found.is_dir() };
    if fits { Ok(()) } else { Err(VolumeError::LocalType { path: path.to_owned(), kind }) }
}

/// A PersistentVolume of kind `hostPath`. As upstream, fsGroup is not applied.
pub struct ClaimedHostPath;

#[async_trait]
impl VolumePlugin for ClaimedHostPath {
    fn name(&self) -> &'static str {
        HOST_PATH
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.persistent().is_some_and(|volume| volume.host_path.is_some()) && !spec.is_block()
    }

    async fn prepare(&self, request: &Request<'_>) -> Result<Option<Record>, VolumeError> {
        let source = request.spec.persistent().and_then(|volume| volume.host_path.as_ref());
        Ok(source.map(|source| record(HOST_PATH, request.spec, Path::new(&source.path))))
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source =
            request.spec.persistent().and_then(|volume| volume.host_path.clone()).unwrap_or_default();
        let path = source.path.clone();
        let limited = match &request.spec.source {
            Source::Claimed { volume, .. } => crate::facts::is_limited(volume),
            _ => false,
        };
        let host = request.host.clone();
        super::blocking(move || {
            if limited {
                // It is mounted for as long as the machine runs.
                let mounted = super::image::mount(Path::new(&source.path), host.as_ref());
                mounted.map_err(|error| VolumeError::MountCommand(error.to_string()))?;
            }
            host_path::check(&source)
        })
        .await?;
        Ok(Mounted::at(path))
    }
}

const LOCAL: &str = "kubernetes.io/local-volume";
const HOST_PATH: &str = "kubernetes.io/host-path";

fn record(plugin: &str, spec: &Spec, path: &Path) -> Record {
    Record {
        plugin: plugin.to_owned(),
        volume: String::new(),
        unique: format!("{plugin}/{}", spec.name),
        staged: false,
        attached: false,
        path: path.to_owned(),
        claim: String::new(),
        data: serde_json::Value::Null,
    }
}

/// Gives the volume to the pod's group. It may have millions of files.
pub(crate) async fn give(request: &Request<'_>, path: PathBuf) -> Result<(), VolumeError> {
    let security = request.pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let policy = security.and_then(|c| c.fs_group_change_policy.as_deref());
    let (group, on_root_mismatch) = (request.group(), policy == Some("OnRootMismatch"));
    super::blocking(move || ownership::apply(&path, group, on_root_mismatch)).await
}
