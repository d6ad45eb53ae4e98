//! What the built-in provisioners share: a claim's volume is made, and goes with its data.

use coracle_client::informer::deleting;
use coracle_client::{Action, ReconcileError};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};

/// Keeps a volume until its data is gone; upstream's finalizer of external provisioners.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

pub fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

/// Why a claim cannot be served by a directory.
pub fn refusal(claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let spec = claim.spec.as_ref()?;
    if spec.volume_mode.as_deref() == Some("Block") {
        return Some("a directory cannot serve volumeMode Block");
    }
    if spec.selector.is_some() {
        return Some("claim.Spec.Selector is not supported");
    }
    None
}

/// Deletes a volume whose data is gone.
pub async fn delete(client: &kube::Client, volume: &PersistentVolume) -> Result<(), ReconcileError> {
    if deleting(volume) {
        return Ok(());
    }
    let uid = Preconditions { uid: volume.uid(), resource_version: None };
    let params = DeleteParams::default().preconditions(uid);
    let api: Api<PersistentVolume> = Api::all(client.clone());
    match api.delete(&volume.name_any(), &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Lets a volume go that is being deleted.
pub async fn drop_finalizer(client: &kube::Client, name: &str) -> Result<Action, ReconcileError> {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    if let Some(mut live) = api.get_opt(name).await?.filter(deleting) {
        let before = live.finalizers().len();
        live.finalizers_mut().retain(|f| f != FINALIZER);
        if live.finalizers().len() != before {
            api.replace(name, &PostParams::default(), &live).await?;
        }
    }
    Ok(Action::AwaitChange)
}
