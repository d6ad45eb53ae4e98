//! A volume's object is made anew in its new place.
//!
//! Upstream lets nobody change where a volume lies, so its object is deleted and made again under its name. What it shall be
//! is written down first, in a ConfigMap of kube-system; the claim says meanwhile that nothing is lost. Whatever is killed,
//! the claim leads to one of the two, or to the journal, of which the new one is made.

use super::plan::{FINALIZERS, Route, Snapshot};
use super::state::{Move, Step};
use crate::facts;
use crate::local_path::{LocalPath, plan};
use crate::place;
use coracle_api::storage::MOVING;
use coracle_client::informer::{api_for, deleting};
use coracle_client::{ObjectKey, ReconcileError};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::path::Path;

/// The key of the volume as it shall be.
const VOLUME: &str = "volume";

fn journal_name(volume: &str) -> String {
    format!("volume-move-{volume}")
}

impl LocalPath {
    fn journals(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "kube-system")
    }

    pub(super) async fn has_journal(&self, volume: &str) -> Result<bool, ReconcileError> {
        Ok(self.journals().get_opt(&journal_name(volume)).await?.is_some())
    }

    /// The copy becomes the claim's volume.
    pub(super) async fn switch(
        &self,
        volume: &PersistentVolume,
        state: Move,
        snapshot: &Snapshot,
        route: &Route,
    ) -> Result<Option<PersistentVolume>, ReconcileError> {
        let (name, claim) = (volume.name_any(), snapshot.claim.as_ref());
        let Some(claim) = claim else {
            return self.refuse(volume, state, "the claim is gone").await;
        };
        let state = Move { step: Step::Moved, left: Some(route.from.clone()), ..state };
        let arrived = state.on(route.arrived(volume));
        self.write_journal(&arrived).await?;
        self.mark(claim, true).await?;
        if !deleting(volume) {
            let uid = Preconditions { uid: volume.uid(), resource_version: volume.resource_version() };
            self.api().delete(&name, &DeleteParams::default().preconditions(uid)).await?;
        }
        if let Some(mut old) = self.api().get_opt(&name).await?.filter(|old| old.uid() == volume.uid()) {
            old.finalizers_mut().retain(|held| !FINALIZERS.contains(&held.as_str()));
            self.api().replace(&name, &PostParams::default(), &old).await?;
        }
        self.arrive(claim, &arrived).await.map(Some)
    }

    async fn arrive(
        &self,
        claim: &PersistentVolumeClaim,
        arrived: &PersistentVolume,
    ) -> Result<PersistentVolume, ReconcileError> {
        let made = match self.api().create(&PostParams::default(), arrived).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.api().get(&arrived.name_any()).await?
            }
            made => made?,
        };
        if Move::of(&made).is_none_or(|state| state.step != Step::Moved) {
            let why = "another object of this name is there, or the old one still is, which somebody's finalizer holds";
            return Err(ReconcileError::Other(why.to_owned()));
        }
        self.close_journal(&made).await?;
        let place =
            made.spec.as_ref().and_then(|spec| spec.host_path.as_ref()).map(|source| source.path.clone());
        let message = format!(
            "Moved the volume to {} on node {}",
            place.unwrap_or_default(),
            plan::home(&made).unwrap_or_default()
        );
        self.recorder.normal(claim, "VolumeMoved", message);
        Ok(made)
    }

    async fn write_journal(&self, arrived: &PersistentVolume) -> Result<(), ReconcileError> {
        let name = journal_name(&arrived.name_any());
        let text =
            serde_json::to_string(arrived).map_err(|error| ReconcileError::Other(error.to_string()))?;
        let journal = ConfigMap {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            data: Some([(VOLUME.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        match self.journals().create(&PostParams::default(), &journal).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.journals().replace(&name, &PostParams::default(), &journal).await.map(drop)?;
                Ok(())
            }
            written => Ok(written.map(drop)?),
        }
    }

    /// The volume is there, old or new.
    pub(super) async fn close_journal(&self, volume: &PersistentVolume) -> Result<(), ReconcileError> {
        if let Some(claim) =
            self.claim_of(volume).filter(|claim| facts::annotation(claim.as_ref(), MOVING).is_some())
        {
            self.mark(&claim, false).await?;
        }
        match self.journals().delete(&journal_name(&volume.name_any()), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    async fn mark(&self, claim: &PersistentVolumeClaim, moving: bool) -> Result<(), ReconcileError> {
        let key = ObjectKey::of(claim);
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &key);
        let value = if moving { json!("true") } else { json!(null) };
        let patch = json!({ "metadata": { "annotations": { MOVING: value }, "uid": claim.uid() } });
        match api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            // Another claim of this name is nothing to us.
            Err(kube::Error::Api(status)) if !moving && matches!(status.code, 404 | 409) => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }

    /// A claim says that its volume is moved: what was killed in the middle of that is ended here.
    pub(crate) async fn resume(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let marked = |claim: &PersistentVolumeClaim| facts::annotation(claim, MOVING).is_some();
        if !self.claims.get_key(key).is_some_and(|claim| marked(&claim)) {
            return Ok(());
        }
        // The copy here may be of before it was ended.
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, key);
        let Some(claim) = api.get_opt(&key.name).await?.filter(marked) else { return Ok(()) };
        let Some(name) = facts::volume_name(&claim) else { return Ok(()) };
        if let Some(volume) = self.api().get_opt(name).await? {
            let ended = Move::of(&volume).is_none_or(|state| !state.holds());
            return if ended { self.mark(&claim, false).await } else { Ok(()) };
        }
        let journal = self.journals().get_opt(&journal_name(name)).await?;
        let text = journal.and_then(|journal| journal.data.unwrap_or_default().remove(VOLUME));
        let arrived = text.and_then(|text| serde_json::from_str::<PersistentVolume>(&text).ok());
        match arrived.filter(|arrived| self.is_arrival(&claim, arrived)) {
            Some(arrived) => self.arrive(&claim, &arrived).await.map(drop),
            // Then it is lost, as any other whose volume went.
            None => self.mark(&claim, false).await,
        }
    }

    /// Whether a volume is what a move makes for the claim. Whoever may write ConfigMaps of kube-system gets no volume of
    /// another directory by that.
    fn is_arrival(&self, claim: &PersistentVolumeClaim, arrived: &PersistentVolume) -> bool {
        let path =
            arrived.spec.as_ref().and_then(|spec| spec.host_path.as_ref()).map(|source| source.path.clone());
        let home = plan::home(arrived).and_then(|hostname| self.home_by_hostname(hostname));
        let (Some(path), Some(home)) = (path, home) else { return false };
        let below = place::below(&home.root, Path::new(&path));
        let bare = below.as_deref().map(|below| below.rsplit('/').next().unwrap_or(below));
        facts::volume_name(claim) == Some(&arrived.name_any())
            && facts::is_bound_to(arrived, claim)
            && facts::claim_ref(arrived).is_some_and(|reference| reference.uid == claim.metadata.uid)
            && bare == Some(&plan::directory(claim))
    }
}
