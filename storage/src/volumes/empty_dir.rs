//! `emptyDir`: lives and dies with the pod.

use super::host::{Mounter, Tmpfs, make_dir_all};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, blocking, ownership};
use crate::beneath::Dir;
use crate::quota::{self, Projects};
use async_trait::async_trait;
use coracle_api::Quantity;
use coracle_api::pod::{Counted, limits};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub struct EmptyDir;

#[async_trait]
impl VolumePlugin for EmptyDir {
    fn name(&self) -> &'static str {
        "kubernetes.io/empty-dir"
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.inline().is_some_and(|volume| volume.empty_dir.is_some())
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source = request.volume.empty_dir.clone().unwrap_or_default();
        let limit = source.size_limit.as_ref().and_then(|q| q.0.parse::<Quantity>().ok());
        let memory = match source.medium.as_deref().unwrap_or_default() {
            "" => None,
            "Memory" => {
                let bytes = memory(request.pod, limit, request.allocatable.memory_bytes);
                Some(Memory::Ordinary(Tmpfs::of_pods(bytes)))
            }
            medium if medium.starts_with("HugePages") => {
                Some(Memory::Huge(page_bytes(request.pod, medium).map_err(VolumeError::Invalid)?))
            }
            other => return Err(VolumeError::Invalid(format!("unknown storage medium {other:?}"))),
        };
        let (host, dir, group, first) =
            (request.host.clone(), request.dir.clone(), request.group(), request.first);
        let size = limit.map(Quantity::units).and_then(|bytes| u64::try_from(bytes).ok());
        blocking(move || {
            let mut made = !dir.is_dir();
            make_dir_all(&dir, MODE)?;
            if let (None, Some(bytes)) = (&memory, size.filter(|bytes| *bytes > 0))
                && (made || first)
            {
                hold(host.projects(), &dir, bytes)?;
            }
            made |= match &memory {
                None => false,
                Some(Memory::Ordinary(tmpfs)) => mount_once(host.as_ref(), &dir, tmpfs)?,
                Some(Memory::Huge(bytes)) => {
                    once(host.as_ref(), &dir, |host| host.mount_huge_pages(&dir, *bytes))?
                }
            };
            // What its containers have made of it since is theirs.
            if made || first { ownership::apply(&dir, group, !made) } else { Ok(()) }
        })
        .await?;
        Ok(Mounted::at(&request.dir))
    }
}

/// Holds the volume to its size where its file system can; elsewhere its pod is evicted when it takes more.
fn hold(kernel: &dyn Projects, dir: &Path, bytes: u64) -> Result<(), VolumeError> {
    let parent = dir.parent().unwrap_or(dir);
    if !quota::can_hold(kernel, parent) {
        return Ok(());
    }
    let held = Dir::open(dir).and_then(|opened| quota::hold(kernel, &opened, bytes));
    held.map_err(|error| VolumeError::io("set quota of", dir, error))
}

/// The numbers of the quotas that a pod's volumes have, by the directory of its volumes.
pub(super) fn projects(kernel: &dyn Projects, volumes: &Path) -> Vec<u32> {
    let dirs = std::fs::read_dir(volumes.join("kubernetes.io~empty-dir")).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = dirs.map(|entry| entry.path()).collect();
    quota::marks(kernel, paths.iter().map(PathBuf::as_path))
}

/// What a volume that is no disk is made of.
enum Memory {
    Ordinary(Tmpfs),
    /// Pages of so many bytes.
    Huge(i64),
}

/// The size of the pages that the medium names, or of the only ones that the pod's containers ask for.
/// <https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/>
fn page_bytes(pod: &Pod, medium: &str) -> Result<i64, String> {
    let bytes = |size: &str| size.parse::<Quantity>().map_err(|_| format!("{size:?} is no size of pages"));
    if let Some(size) = medium.strip_prefix("HugePages-") {
        return bytes(size).map(|size| size.units());
    }
    let containers =
        pod.spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let amounts = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let sizes: BTreeSet<&str> = amounts
        .flat_map(|amounts| amounts.keys().filter_map(|name| name.strip_prefix("hugepages-")))
        .collect();
    match (sizes.first(), sizes.len()) {
        (Some(size), 1) => bytes(size).map(|size| size.units()),
        (None, _) => Err(format!("medium {medium:?}: the pod asks for no huge pages")),
        _ => Err(format!("medium {medium:?} cannot be used if the pod uses multiple huge page sizes")),
    }
}

/// Bytes of a volume in memory: the least of its own limit, of what its pod may have, and of what the node gives to pods.
/// <https://kubernetes.io/docs/concepts/storage/volumes/#emptydir-memory-configuration-example>
fn memory(pod: &Pod, own: Option<Quantity>, allocatable: i64) -> Option<u64> {
    let counted = Counted { overhead: true, ..Counted::default() };
    // One container without a limit may have all that there is.
    let limited = |container: &Container| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        limits.is_some_and(|limits| limits.contains_key("memory"))
    };
    let spec = pod.spec.as_ref();
    let mut containers = spec.into_iter().flat_map(|spec| &spec.containers);
    let whole = spec.and_then(|spec| spec.resources.as_ref()?.limits.as_ref()?.get("memory")).is_some();
    let of_pod = if whole || containers.all(limited) { limits(pod, counted).get("memory") } else { None };
    let all = [own.map(Quantity::units), of_pod.map(Quantity::units), Some(allocatable)];
    all.into_iter().flatten().filter_map(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0).min()
}

/// Everybody may write: pods run as whoever they like.
const MODE: u32 = 0o777;

/// Puts a tmpfs at the volume's directory unless one is there; whether it did.
pub(super) fn mount_once(host: &dyn Mounter, dir: &Path, options: &Tmpfs) -> Result<bool, VolumeError> {
    once(host, dir, |host| host.mount_tmpfs(dir, options))
}

fn once(
    host: &dyn Mounter,
    dir: &Path,
    mount: impl FnOnce(&dyn Mounter) -> Result<(), VolumeError>,
) -> Result<bool, VolumeError> {
    if host.mounts()?.contains(dir) {
        return Ok(false);
    }
    mount(host)?;
    let opened = Dir::open(dir).and_then(|dir| dir.itself()?.chmod(MODE));
    opened.map_err(|error| VolumeError::io("set mode of", dir, error)).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn huge_pages_are_of_the_size_that_is_named_or_asked_for() {
        let pod = |requests: &[&str]| -> Pod {
            let one = |name: &&str| json!({ "name": "c", "resources": { "requests": { *name: "2Mi" } } });
            let containers: Vec<_> = requests.iter().map(one).collect();
            serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": containers } })).unwrap()
        };
        assert_eq!(page_bytes(&pod(&[]), "HugePages-1Gi"), Ok(1 << 30));
        assert_eq!(page_bytes(&pod(&["hugepages-2Mi", "cpu"]), "HugePages"), Ok(2 << 20));
        for (requests, medium) in [
            (&["cpu"][..], "HugePages"),
            (&["hugepages-2Mi", "hugepages-1Gi"], "HugePages"),
            (&[], "HugePages-x"),
        ] {
            assert!(page_bytes(&pod(requests), medium).is_err(), "{requests:?} {medium}");
        }
    }

    #[test]
    fn what_is_in_memory_is_no_larger_than_what_its_pod_may_have() {
        let pod = |limits: &[&str]| -> Pod {
            let container =
                |limit: &&str| json!({ "name": "c", "resources": { "limits": { "memory": limit } } });
            let mut containers: Vec<_> = limits.iter().map(container).collect();
            if limits.is_empty() {
                containers.push(json!({ "name": "c" }));
            }
            serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": containers } })).unwrap()
        };
        let size = |text: &str| Some(text.parse::<Quantity>().unwrap());
        assert_eq!(memory(&pod(&[]), None, 1000), Some(1000));
        assert_eq!(memory(&pod(&[]), size("5000"), 1000), Some(1000));
        assert_eq!(memory(&pod(&["100", "200"]), None, 1000), Some(300));
        assert_eq!(memory(&pod(&["100", "200"]), size("40"), 1000), Some(40));
        assert_eq!(memory(&pod(&[]), None, 0), None, "nothing is known");
    }
}
