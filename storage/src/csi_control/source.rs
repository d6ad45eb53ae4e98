//! What a claim's volume is to be filled with: a snapshot, another claim's volume, or what a populator puts there.
//!
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#volume-populators-and-data-sources>

use crate::csi::ControllerService;
use crate::csi::controller_messages::{ContentSource, ControllerRpcType, SourceId, VolumeContentSource};
use crate::facts;
use crate::snapshot_api;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{0}")]
    Refused(String),
    #[error("error getting the data source")]
    Api(#[from] kube::Error),
}

/// What the claim says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    Empty,
    Snapshot(String),
    Claim(String),
    /// A populator makes the volume: nothing else is to be done.
    Populator,
    /// Of another namespace, which needs grants that nobody here reads.
    Foreign,
}

impl DataSource {
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let (group, kind, name) = match (spec.data_source_ref, spec.data_source) {
            (Some(source), _) => {
                let own = claim.metadata.namespace.as_ref();
                if source.namespace.as_ref().is_some_and(|namespace| Some(namespace) != own) {
                    return Self::Foreign;
                }
                (source.api_group, source.kind, source.name)
            }
            (None, Some(source)) => (source.api_group, source.kind, source.name),
            (None, None) => return Self::Empty,
        };
        match (group.as_deref().unwrap_or_default(), kind.as_str()) {
            ("", "PersistentVolumeClaim") => Self::Claim(name),
            (snapshot_api::GROUP, "VolumeSnapshot") => Self::Snapshot(name),
            _ => Self::Populator,
        }
    }
}

/// What the driver is told of the claim's data source.
pub async fn content(
    client: &kube::Client,
    service: &ControllerService,
    driver: &str,
    claim: &PersistentVolumeClaim,
) -> Result<Option<VolumeContentSource>, SourceError> {
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    let refused = |why: String| Err(SourceError::Refused(why));
    let source = match DataSource::of(claim) {
        DataSource::Empty | DataSource::Populator => return Ok(None),
        DataSource::Foreign => {
            return refused("a data source in another namespace is not supported".to_owned());
        }
        DataSource::Claim(_) if !service.can(ControllerRpcType::CloneVolume) => {
            return refused("CSI driver does not support clone".to_owned());
        }
        DataSource::Snapshot(_) if !service.can(ControllerRpcType::CreateDeleteSnapshot) => {
            return refused("CSI driver does not support snapshot restore".to_owned());
        }
        DataSource::Claim(name) => {
            ContentSource::Volume(cloned(client, driver, claim, &namespace, &name).await?)
        }
        DataSource::Snapshot(name) => {
            let snapshot = snapshot_api::ready(client, driver, &namespace, &name).await?;
            let snapshot = snapshot.map_err(SourceError::Refused)?;
            let wanted = facts::requested(claim).units();
            if snapshot.restore_bytes > wanted {
                let least = snapshot.restore_bytes;
                return refused(format!(
                    "requested volume size {wanted} is less than the size {least} for the source snapshot {name}"
                ));
            }
            if snapshot.volume_mode.as_ref().is_some_and(|was| *was != mode(claim)) {
                let (change, content) = (snapshot_api::MODE_CHANGE, &snapshot.content);
                return refused(format!(
                    "requested volume {namespace}/{} modifies the mode of the source volume but does not have permission to do so. {change} annotation is not present on snapshotcontent {content}",
                    claim.metadata.name.as_deref().unwrap_or_default()
                ));
            }
            ContentSource::Snapshot(SourceId { id: snapshot.handle })
        }
    };
    Ok(Some(VolumeContentSource { r#type: Some(source) }))
}

fn mode(claim: &PersistentVolumeClaim) -> String {
    let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.clone());
    mode.unwrap_or_else(|| "Filesystem".to_owned())
}

/// The volume of a claim that is to be copied, if it can be.
async fn cloned(
    client: &kube::Client,
    driver: &str,
    claim: &PersistentVolumeClaim,
    namespace: &str,
    name: &str,
) -> Result<SourceId, SourceError> {
    let (claims, volumes): (Api<PersistentVolumeClaim>, Api<PersistentVolume>) =
        (Api::namespaced(client.clone(), namespace), Api::all(client.clone()));
    let refused = |why: String| Err(SourceError::Refused(why));
    let original = claims.get(name).await?;
    let bound = original.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let Some(volume) = facts::volume_name(&original).filter(|_| bound) else {
        return refused(format!("the PVC DataSource {name} is not bound yet"));
    };
    let volume = volumes.get(volume).await?;
    let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    let Some(source) =
        source.filter(|source| source.driver == driver && facts::is_bound_to(&volume, &original))
    else {
        return refused(format!("the source volume {name} is of a different driver than the claim's"));
    };
    if mode(&original) != mode(claim) {
        return refused(format!("the source PVC {name} has another volumeMode than the claim"));
    }
    let capacity = facts::storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref())).units();
    let wanted = facts::requested(claim).units();
    if wanted < capacity {
        return refused(format!(
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested {wanted} but source is {capacity}"
        ));
    }
    Ok(SourceId { id: source.volume_handle.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_data_source_is_read_by_its_kind() {
        let of = |spec: Value| {
            let claim = json!({ "metadata": { "name": "c", "namespace": "n" }, "spec": spec });
            DataSource::of(&serde_json::from_value(claim).unwrap())
        };
        let reference = |group: &str, kind: &str| json!({ "dataSourceRef": { "apiGroup": group, "kind": kind, "name": "s" } });
        assert_eq!(of(json!({})), DataSource::Empty);
        assert_eq!(of(reference("", "PersistentVolumeClaim")), DataSource::Claim("s".to_owned()));
        let snapshot = reference("snapshot.storage.k8s.io", "VolumeSnapshot");
        assert_eq!(of(snapshot), DataSource::Snapshot("s".to_owned()));
        assert_eq!(of(reference("example.com", "Image")), DataSource::Populator);
        let mut foreign = reference("", "PersistentVolumeClaim");
        foreign["dataSourceRef"]["namespace"] = "other".into();
        assert_eq!(of(foreign), DataSource::Foreign);
    }
}
