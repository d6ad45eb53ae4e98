//! `downwardAPI`: fields of the pod as files.

use super::atomic_writer::{Payload, Projection};
use super::{Mounted, Record, Request, Spec, VolumeError, VolumePlugin, downward, payload, secret};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::DownwardAPIVolumeFile;

pub struct DownwardApi;

#[async_trait]
impl VolumePlugin for DownwardApi {
    fn name(&self) -> &'static str {
        "kubernetes.io/downward-api"
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.inline().is_some_and(|volume| volume.downward_api.is_some())
    }

    async fn publish(&self, request: &Request<'_>, _: Option<&Record>) -> Result<Mounted, VolumeError> {
        let source = request.volume.downward_api.clone().unwrap_or_default();
        let items = source.items.unwrap_or_default();
        secret::in_memory(request, files(request, &items, source.default_mode)?).await?;
        Ok(Mounted { read_only: true, ..Mounted::at(&request.dir) })
    }
}

pub(super) fn files(
    request: &Request<'_>,
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
) -> Result<Payload, VolumeError> {
    let mut files = Payload::new();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            downward::field(request.pod, &field.field_path)
        } else if let Some(resource) = &item.resource_field_ref {
            downward::resource(request.pod, resource, None, request.allocatable)
        } else {
            Err(format!("item {:?} has neither fieldRef nor resourceFieldRef", item.path))
        };
        let data = text.map_err(VolumeError::Invalid)?.into_bytes();
        let mode = payload::mode_bits(item.mode, default_mode);
        files.insert(item.path.clone(), Projection { data, mode, owner: None });
    }
    Ok(files)
}
