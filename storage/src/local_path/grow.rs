//! Claims of local-path that grow. A directory has the size of its file system, so only the objects change; a volume whose
//! size holds grows first.

use super::job::Job;
use super::work::Outcome;
use super::{LocalPath, moving, plan};
use crate::expand::wants_to_grow;
use crate::facts;
use coracle_client::informer::api_for;
use coracle_client::{ObjectKey, ReconcileError};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::PostParams;

/// Conditions of claims that grow; they go when it is done.
const OF_RESIZING: [&str; 4] =
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

impl LocalPath {
    /// Says that the size is a wish: nothing keeps a directory from filling its file system.
    pub(super) fn tell_no_limit(&self, claim: &PersistentVolumeClaim) {
        let message = format!(
            "The requested size of {} is not enforced: a local-path volume may take all of its file system",
            asked(claim).0
        );
        self.recorder.normal(claim, "SizeNotEnforced", message);
    }

    /// Writes the new size of a claim that asks for more: first the volume's, then the claim's.
    pub(super) async fn grow(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let Some(claim) = self.claims.get_key(key).filter(|claim| wants_to_grow(claim)) else {
            return Ok(());
        };
        let volume = facts::volume_name(&claim).and_then(|name| self.volumes.get("", name));
        let ours =
            |volume: &PersistentVolume| facts::is_bound_to(volume, &claim) && plan::home(volume).is_some();
        // One that is moved grows in its new place.
        let grows = |volume: &PersistentVolume| ours(volume) && !moving::is_held(volume);
        let Some(volume) = volume.filter(|volume| grows(volume)) else { return Ok(()) };
        if facts::size_limit(&volume).is_some() && !self.grow_limited(&claim, &volume).await? {
            return Ok(());
        }
        let has = facts::storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
        if has < facts::requested(&claim) {
            let mut larger = PersistentVolume::clone(&volume);
            let capacity = larger.spec.get_or_insert_default().capacity.get_or_insert_default();
            capacity.insert("storage".to_owned(), asked(&claim));
            let api: Api<PersistentVolume> = Api::all(self.client.clone());
            api.replace(volume.metadata.name.as_deref().unwrap_or_default(), &PostParams::default(), &larger)
                .await?;
        }
        let mut grown = PersistentVolumeClaim::clone(&claim);
        let status = grown.status.get_or_insert_default();
        status.capacity.get_or_insert_default().insert("storage".to_owned(), asked(&claim));
        if let Some(conditions) = &mut status.conditions {
            conditions.retain(|condition| !OF_RESIZING.contains(&condition.type_.as_str()));
        }
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, key);
        api.replace_status(&key.name, &PostParams::default(), &grown).await?;
        self.recorder.normal(claim.as_ref(), "VolumeResizeSuccessful", "Resize volume succeeded");
        if facts::size_limit(&volume).is_none() {
            self.tell_no_limit(&claim);
        }
        Ok(())
    }

    /// Whether the volume may take as much as it shall. Where another node is asked, its answer wakes the volume.
    async fn grow_limited(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<bool, ReconcileError> {
        let hostname = plan::home(volume).unwrap_or_default();
        let Some(home) = self.home_by_hostname(hostname) else { return Ok(false) };
        let directory = plan::directory_of(volume, &home.root);
        let bytes = u64::try_from(facts::requested(claim).units()).ok();
        let (Some(directory), Some(bytes)) = (directory, bytes) else { return Ok(false) };
        let name = volume.metadata.name.clone().unwrap_or_default();
        match self.work(&home, &name, &Job::Grow { directory, bytes }).await? {
            Outcome::Waits { .. } => Ok(false),
            Outcome::Done => self.close_mail(&home, &name).await.map(|()| true),
            Outcome::Failed { error, .. } => {
                let message = format!("resize volume \"{name}\" failed: {error}");
                self.recorder.warning(claim, "VolumeResizeFailed", message.clone());
                Err(ReconcileError::Other(message))
            }
        }
    }
}

/// As the claim writes it.
fn asked(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    resources.and_then(|r| r.requests.as_ref()?.get("storage").cloned()).unwrap_or_default()
}
