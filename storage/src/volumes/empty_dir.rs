//! `emptyDir`: lives and dies with the pod.

use super::host::{Tmpfs, make_dir_all};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, ownership};
use crate::beneath::Dir;
use async_trait::async_trait;
use coracle_api::Quantity;

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
        let mut made = !request.dir.is_dir();
        make_dir_all(&request.dir, MODE)?;
        match source.medium.as_deref().unwrap_or_default() {
            "" => {}
            "Memory" => {
                let limit = source.size_limit.as_ref().and_then(|q| q.0.parse::<Quantity>().ok());
                let bytes = limit.and_then(|q| u64::try_from(q.units()).ok()).filter(|b| *b > 0);
                made |= mount_once(request, &Tmpfs::of_pods(bytes))?;
            }
            other => return Err(VolumeError::Invalid(format!("unknown storage medium {other:?}"))),
        }
        // What its containers have made of it since is theirs.
        if made || request.first {
            let (dir, group) = (request.dir.clone(), request.group());
            super::blocking(move || ownership::apply(&dir, group, !made)).await?;
        }
        Ok(Mounted::at(&request.dir))
    }
}

/// Everybody may write: pods run as whoever they like.
const MODE: u32 = 0o777;

/// Puts a tmpfs at the volume's directory unless one is there; whether it did.
pub(super) fn mount_once(request: &Request<'_>, options: &Tmpfs) -> Result<bool, VolumeError> {
    if request.host.mounts()?.contains(&request.dir) {
        return Ok(false);
    }
    request.host.mount_tmpfs(&request.dir, options)?;
    let opened = Dir::open(&request.dir).and_then(|dir| dir.itself()?.chmod(MODE));
    opened.map_err(|error| VolumeError::io("set mode of", &request.dir, error)).map(|()| true)
}
