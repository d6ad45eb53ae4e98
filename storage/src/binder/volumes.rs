//! The volume's side of binding, and reclaiming.

use super::Binder;
use super::plan::{self, VolumeStep};
use crate::facts::{self, BOUND_BY_CONTROLLER};
use coracle_client::informer::deleting;
use coracle_client::{Action, ObjectKey, ReconcileError};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use std::sync::Arc;

impl Binder {
    pub(super) async fn sync_volume(&self, name: &str) -> Result<Action, ReconcileError> {
        let Some(volume) = self.volumes.get("", name) else {
            self.forget(name).await?;
            return Ok(Action::AwaitChange);
        };
        let claim = self.claim_of(&volume).await?;
        let step = plan::volume_step(&volume, claim.as_deref());
        if !matches!(step, VolumeStep::Release) {
            self.forget(name).await?;
        }
        match step {
            VolumeStep::Phase("Bound") => {
                self.set_volume_phase(&volume, "Bound", None).await?;
                Ok(Action::AwaitChange)
            }
            // What is on its way out becomes nobody's.
            VolumeStep::Phase(_) if deleting(volume.as_ref()) => Ok(Action::AwaitChange),
            VolumeStep::Phase(phase) => {
                self.set_volume_phase(&volume, phase, None).await?;
                Ok(Action::AwaitChange)
            }
            VolumeStep::Release => self.release(&volume).await,
            VolumeStep::Unbind { by_hand } => self.unbind(&volume, by_hand).await,
            VolumeStep::LeaveToClaim => match claim {
                Some(claim) if plan::is_of_other_mode(&volume, &claim) => {
                    self.tell_mode_mismatch(&volume, &claim);
                    Ok(Action::AwaitChange)
                }
                Some(claim) => self.sync_claim(&ObjectKey::of(claim.as_ref())).await,
                None => Ok(Action::AwaitChange),
            },
        }
    }

    fn tell_mode_mismatch(&self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) {
        let (volume_name, claim_name) = (volume.name_any(), claim.name_any());
        let message = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{claim_name}\" due to incompatible volumeMode."
        );
        self.recorder.warning(volume, "VolumeMismatch", message);
        let message = format!(
            "Cannot bind PersistentVolume \"{volume_name}\" to requested PersistentVolumeClaim due to incompatible volumeMode."
        );
        self.recorder.warning(claim, "VolumeMismatch", message);
    }

    /// The claim that the claimRef names, asked of the API if the informer does not show it: a volume is never
    /// released because of a slow watch.
    async fn claim_of(
        &self,
        volume: &PersistentVolume,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, ReconcileError> {
        let Some(reference) = facts::claim_ref(volume) else { return Ok(None) };
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let name = reference.name.as_deref().unwrap_or_default();
        let known = self.claims.get(namespace, name);
        if known.as_ref().is_some_and(|c| c.metadata.uid == reference.uid) {
            return Ok(known);
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    async fn release(&self, volume: &Arc<PersistentVolume>) -> Result<Action, ReconcileError> {
        if !matches!(facts::phase(volume), "Released" | "Failed") {
            self.set_volume_phase(volume, "Released", None).await?;
            return Ok(Action::AwaitChange);
        }
        self.reclaim(volume).await
    }

    /// Offers the volume again. One that was promised to a claim by hand (`by_hand`) stays promised to its namesakes.
    pub(super) async fn unbind(
        &self,
        volume: &Arc<PersistentVolume>,
        by_hand: bool,
    ) -> Result<Action, ReconcileError> {
        let mut changed = PersistentVolume::clone(volume);
        let spec = changed.spec.get_or_insert_default();
        if by_hand {
            if let Some(reference) = spec.claim_ref.as_mut() {
                reference.uid = None;
                reference.resource_version = None;
            }
        } else {
            spec.claim_ref = None;
            changed.annotations_mut().remove(BOUND_BY_CONTROLLER);
        }
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let unbound = api.replace(&volume.name_any(), &PostParams::default(), &changed).await?;
        self.set_volume_phase(&Arc::new(unbound), "Available", None).await?;
        Ok(Action::AwaitChange)
    }
}
