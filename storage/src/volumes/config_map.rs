//! `configMap`: the keys of a ConfigMap as files.

use super::host::make_dir_all;
use super::objects::ObjectError;
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, atomic_writer, blocking, payload};
use async_trait::async_trait;

pub struct ConfigMapVolume;

#[async_trait]
impl VolumePlugin for ConfigMapVolume {
    fn name(&self) -> &'static str {
        "kubernetes.io/configmap"
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.inline().is_some_and(|volume| volume.config_map.is_some())
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source = request.volume.config_map.clone().unwrap_or_default();
        let optional = source.optional.unwrap_or(false);
        let files = match request.objects.config_map(request.namespace(), &source.name).await {
            Ok(object) => {
                payload::config_map(&object, source.items.as_deref(), source.default_mode, optional)?
            }
            Err(ObjectError::NotFound { .. }) if optional => payload_of_nothing(),
            Err(error) => return Err(error.into()),
        };
        let (dir, group, now) = (request.dir.clone(), request.group(), request.now);
        blocking(move || {
            make_dir_all(&dir, 0o777)?;
            atomic_writer::publish(&dir, &files, group, now).map(drop)
        })
        .await?;
        Ok(Mounted { read_only: true, ..Mounted::at(&request.dir) })
    }
}

/// What an optional object that is not there shows.
pub(super) fn payload_of_nothing() -> atomic_writer::Payload {
    atomic_writer::Payload::new()
}
