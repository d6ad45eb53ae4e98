//! `secret`: the keys of a Secret as files on a tmpfs, so that they never reach a disk.

use super::config_map::payload_of_nothing;
use super::host::{Tmpfs, make_dir_all};
use super::objects::ObjectError;
use super::{
    Mounted, Record, Request, Spec, VolumeError, VolumePlugin, atomic_writer, blocking, empty_dir, payload,
};
use async_trait::async_trait;

pub struct SecretVolume;

#[async_trait]
impl VolumePlugin for SecretVolume {
    fn name(&self) -> &'static str {
        "kubernetes.io/secret"
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.inline().is_some_and(|volume| volume.secret.is_some())
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source = request.volume.secret.clone().unwrap_or_default();
        let optional = source.optional.unwrap_or(false);
        let name = source.secret_name.unwrap_or_default();
        let files = match request.objects.secret(request.namespace(), &name).await {
            Ok(object) => payload::secret(&object, source.items.as_deref(), source.default_mode, optional)?,
            Err(ObjectError::NotFound { .. }) if optional => payload_of_nothing(),
            Err(error) => return Err(error.into()),
        };
        in_memory(request, files).await?;
        Ok(Mounted { read_only: true, ..Mounted::at(&request.dir) })
    }
}

/// Publishes files on a tmpfs at the volume's directory.
pub(super) async fn in_memory(
    request: &Request<'_>,
    files: atomic_writer::Payload,
) -> Result<(), VolumeError> {
    let (host, dir, group, now) = (request.host.clone(), request.dir.clone(), request.group(), request.now);
    blocking(move || {
        make_dir_all(&dir, 0o777)?;
        empty_dir::mount_once(host.as_ref(), &dir, &Tmpfs::of_data())?;
        atomic_writer::publish(&dir, &files, group, now).map(drop)
    })
    .await
}
