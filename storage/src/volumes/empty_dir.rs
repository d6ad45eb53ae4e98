//! `emptyDir`: lives and dies with the pod.

use super::host::{Mounter, Tmpfs, make_dir_all};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, blocking, ownership};
use crate::beneath::Dir;
use async_trait::async_trait;
use coracle_api::Quantity;
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
                let bytes = limit.and_then(|q| u64::try_from(q.units()).ok()).filter(|b| *b > 0);
                Some(Tmpfs::of_pods(bytes))
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
