//! `emptyDir`: lives and dies with the pod.

use super::host::make_dir_all;
use super::{Mounted, Request, VolumeError, VolumePlugin, downward, ownership};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Volume;

pub struct EmptyDir;

#[async_trait]
impl VolumePlugin for EmptyDir {
    fn name(&self) -> &'static str {
        "kubernetes.io/empty-dir"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.empty_dir.is_some()
    }

    async fn set_up(&self, request: &Request<'_>) -> Result<Mounted, VolumeError> {
        let source = request.volume.empty_dir.clone().unwrap_or_default();
        let fresh = !request.dir.is_dir();
        make_dir_all(&request.dir, 0o777)?;
        match source.medium.as_deref().unwrap_or_default() {
            "" => {}
            "Memory" => {
                let limit = source.size_limit.as_ref().and_then(|q| downward::quantity(&q.0));
                let bytes =
                    limit.map(|q| q.ceil_div(1)).and_then(|b| u64::try_from(b).ok()).filter(|b| *b > 0);
                mount_once(request, bytes)?;
                super::host::set_mode(&request.dir, 0o777)?;
            }
            other => return Err(VolumeError::Invalid(format!("unknown storage medium {other:?}"))),
        }
        ownership::apply(&request.dir, request.fs_group(), false, !fresh)?;
        Ok(Mounted::at(&request.dir))
    }
}

/// Puts a tmpfs at the volume's directory unless one is there.
pub(super) fn mount_once(request: &Request<'_>, size: Option<u64>) -> Result<(), VolumeError> {
    if request.host.mounts()?.contains(&request.dir) {
        return Ok(());
    }
    request.host.mount_tmpfs(&request.dir, size)
}
