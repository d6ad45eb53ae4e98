//! `local` volumes and claimed `hostPath` ones: a place of this node that outlives the pod.

use super::host::{Mounter, make_dir_all};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, host_path, ownership};
use crate::beneath::Dir;
use crate::facts::{self, SizeLimit};
use crate::place::{self, Place};
use crate::quota;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolume;
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
        let device = super::blocking(move || check(&place, block)).await?;
        if block {
            return Ok(Mounted { block, ..Mounted::at(path) });
        }
        let path = if device { mounted(request, path).await? } else { path };
        // Later its containers run, and what they have made of it since is theirs.
        if request.first {
            give(request, path.clone()).await?;
        }
        Ok(Mounted::at(path))
    }
}

/// A directory, or a device, which volumes of mode Block have to be; whether it is one.
fn check(path: &Path, block: bool) -> Result<bool, VolumeError> {
    let found = std::fs::metadata(path).map_err(|error| VolumeError::io("open local volume", path, error))?;
    let kind = if block { "block device" } else { "directory" };
    let device = found.file_type().is_block_device();
    let fits = device || (!block && found.is_dir());
    if fits { Ok(device) } else { Err(VolumeError::LocalType { path: path.to_owned(), kind }) }
}

/// Mounts the file system on a device in the pod's directory, from where it goes with the pod. The kernel has one of it,
/// however many pods see it.
async fn mounted(request: &Request<'_>, device: PathBuf) -> Result<PathBuf, VolumeError> {
    let volume = request.spec.persistent().cloned().unwrap_or_default();
    let kind = volume.local.and_then(|source| source.fs_type);
    let options = volume.mount_options.unwrap_or_default().join(",");
    let (host, dir) = (request.host.clone(), request.dir.clone());
    super::blocking(move || {
        if host.mounts()?.contains(&dir) {
            return Ok(());
        }
        make_dir_all(&dir, 0o750)?;
        host.mount_device(&device, kind.as_deref(), &options, &dir)
    })
    .await?;
    Ok(request.dir.clone())
}

/// A PersistentVolume of kind `hostPath`. As upstream, fsGroup is not applied.
pub struct ClaimedHostPath {
    /// Where this node keeps volumes of local-path.
    pub local_path: PathBuf,
}

/// Refuses a volume of local-path that is none of this node's: another one that calls itself as this one would otherwise
/// choose what of this machine a pod gets. Directories of volumes lie where nobody but the machine's owner can put a link
/// in their place.
fn of_this_node(volume: &PersistentVolume, root: &Path, path: &Path) -> Result<(), VolumeError> {
    if facts::annotation(volume, facts::PROVISIONED_BY) != Some(facts::LOCAL_PATH) {
        return Ok(());
    }
    let shown = path.display();
    let Some(directory) = place::below(root, path) else {
        let why = format!(
            "the volume's path {shown} is not below {}, where this node keeps volumes",
            root.display()
        );
        return Err(VolumeError::Invalid(why));
    };
    Place::of(root, &directory).map_err(|error| VolumeError::Invalid(error.to_string()))?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(VolumeError::Invalid(format!("the volume's path {shown} is no directory"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(VolumeError::io("look at volume", path, error)),
    }
}

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
        let (root, volume) = (self.local_path.clone(), request.spec.persistent_volume().cloned());
        let limited = volume.as_ref().and_then(facts::size_limit);
        let size = facts::storage(request.spec.persistent().and_then(|volume| volume.capacity.as_ref()));
        let host = request.host.clone();
        super::blocking(move || {
            if let Some(volume) = &volume {
                of_this_node(volume, &root, Path::new(&source.path))?;
            }
            match limited {
                // It is mounted for as long as the machine runs.
                Some(SizeLimit::File) => {
                    let mounted = super::image::mount(Path::new(&source.path), host.as_ref());
                    mounted.map_err(|error| VolumeError::MountCommand(error.to_string()))?;
                }
                Some(SizeLimit::Quota) => hold(host.as_ref(), Path::new(&source.path), size.units())?,
                None => {}
            }
            host_path::check(&source)
        })
        .await?;
        Ok(Mounted::at(path))
    }
}

/// Sees to it that the volume still takes no more than its size, whatever its containers have made of its directory.
fn hold(host: &dyn Mounter, path: &Path, bytes: i64) -> Result<(), VolumeError> {
    let held = Dir::open(path).and_then(|dir| {
        let projects = host.projects();
        if !projects.enforces(&dir) {
            tracing::warn!(path = %path.display(), "the file system enforces quotas no more: the volume's size does not hold");
            return Ok(());
        }
        quota::hold(projects, &dir, u64::try_from(bytes).unwrap_or_default())
    });
    held.map_err(|error| VolumeError::io("set quota of", path, error))
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

#[cfg(test)]
mod tests {
    use super::super::host::{LinuxMounter, Mounter};
    use super::super::image::run;
    use std::fs;

    #[test]
    fn a_device_gets_a_file_system_once() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, target) = (dir.path().join("disk"), dir.path().join("volume"));
        fs::File::create(&file).unwrap().set_len(32 << 20).unwrap();
        fs::create_dir(&target).unwrap();
        let device = run("losetup", &["-f", "--show"], &[&file]).unwrap();
        let device = std::path::Path::new(device.trim());
        let (host, mut seen) = (LinuxMounter, Vec::new());
        let other = host.mount_device(device, Some("nonsense"), "", &target);
        for round in 0..2 {
            seen.push(host.mount_device(device, None, "", &target).map(|()| target.join("kept").exists()));
            fs::write(target.join("kept"), format!("{round}")).unwrap();
            host.unmount(&target).unwrap();
        }
        run("losetup", &["-d"], &[device]).unwrap();
        assert_eq!(seen.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [false, true]);
        assert!(other.is_err(), "nobody makes such a file system");
    }
}
