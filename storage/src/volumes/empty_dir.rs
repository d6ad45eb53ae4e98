//! `emptyDir`: lives and dies with the pod.

use super::host::{Mounter, Tmpfs, make_dir_all};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, blocking, ownership};
use crate::beneath::Dir;
use async_trait::async_trait;
use coracle_api::Quantity;
use coracle_api::pod::{Counted, limits};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::path::Path;

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
        let tmpfs = match source.medium.as_deref().unwrap_or_default() {
            "" => None,
            "Memory" => {
                let limit = source.size_limit.as_ref().and_then(|q| q.0.parse::<Quantity>().ok());
                Some(Tmpfs::of_pods(memory(request.pod, limit, request.allocatable.memory_bytes)))
            }
            other => return Err(VolumeError::Invalid(format!("unknown storage medium {other:?}"))),
        };
        let (host, dir, group, first) =
            (request.host.clone(), request.dir.clone(), request.group(), request.first);
        blocking(move || {
            let mut made = !dir.is_dir();
            make_dir_all(&dir, MODE)?;
            if let Some(tmpfs) = &tmpfs {
                made |= mount_once(host.as_ref(), &dir, tmpfs)?;
            }
            // What its containers have made of it since is theirs.
            if made || first { ownership::apply(&dir, group, !made) } else { Ok(()) }
        })
        .await?;
        Ok(Mounted::at(&request.dir))
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
    if host.mounts()?.contains(dir) {
        return Ok(false);
    }
    host.mount_tmpfs(dir, options)?;
    let opened = Dir::open(dir).and_then(|dir| dir.itself()?.chmod(MODE));
    opened.map_err(|error| VolumeError::io("set mode of", dir, error)).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
