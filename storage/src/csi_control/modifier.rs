//! Gives volumes the attributes that their claims name (VolumeAttributesClass), as upstream's external-resizer does.
//!
//! <https://kubernetes.io/docs/concepts/storage/volume-attributes-classes/>

use super::resize_plan::condition;
use super::secrets;
use super::services::Services;
use super::{CsiConfig, WORKERS, requeue_for_drivers};
use crate::csi::controller_messages::{
    CONTROLLER_MODIFY_VOLUME, ControllerModifyVolumeRequest, ControllerRpcType,
};
use crate::csi::messages::Empty;
use crate::csi::{CallError, ControllerService};
use crate::facts;
use coracle_client::beat::Patience;
use coracle_client::informer::api_for;
use coracle_client::{
    Action, Context, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, WorkQueue,
};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ModifyVolumeStatus, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttributesClass};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Until a driver that has refused attributes is asked again; the least of upstream's pauses for that.
const INFEASIBLE_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Conditions of claims whose volume is being modified.
const OF_MODIFYING: [&str; 2] = ["ModifyingVolume", "ModifyVolumeError"];

#[derive(Debug, thiserror::Error)]
enum ModifyError {
    #[error(transparent)]
    Secret(#[from] secrets::SecretError),
    #[error(transparent)]
    Call(#[from] CallError),
}

struct Modifier {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<VolumeAttributesClass>,
    services: Services,
    recorder: Recorder,
}

/// Runs until `context.stop` is cancelled.
pub async fn run(context: &Context, config: &CsiConfig, services: Services) {
    let informers = &context.informers;
    let this = Modifier {
        client: context.client.clone(),
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        services,
        recorder: Recorder::new(context.client.clone(), "coracle-csi-modifier", ""),
    };
    let (claims, volumes, classes) = (this.claims.clone(), this.volumes.clone(), this.classes.clone());
    let objects = informers.of::<CSIDriver>();
    let everything = {
        let claims = claims.clone();
        let key = |claim: Arc<PersistentVolumeClaim>| ObjectKey::of(claim.as_ref());
        move || claims.iter().filter(|claim| target(claim).is_some()).map(key).collect::<Vec<_>>()
    };
    let queue = WorkQueue::new();
    requeue_for_drivers(context, config, &queue, everything.clone());
    let for_class = everything.clone();
    Controller::with_queue(this, queue)
        .watch(&claims, |delta| {
            let wanted = delta.new.as_ref().filter(|claim| target(claim).is_some())?;
            // Its status is what this controller writes itself.
            let before = delta.old.as_ref().and_then(|old| target(old));
            (before != target(wanted)).then(|| ObjectKey::of(wanted.as_ref()))
        })
        .watch(&classes, move |_| for_class())
        .watch(&objects, move |_| everything())
        .reads(&volumes)
        .workers(WORKERS)
        .run(context.stop.clone())
        .await;
}

/// The class that a bound claim wants and does not have.
fn target(claim: &PersistentVolumeClaim) -> Option<&str> {
    let status = claim.status.as_ref()?;
    let wanted =
        claim.spec.as_ref()?.volume_attributes_class_name.as_deref().filter(|name| !name.is_empty())?;
    let has = status.current_volume_attributes_class_name.as_deref();
    (status.phase.as_deref() == Some("Bound") && has != Some(wanted)).then_some(wanted)
}

impl Reconciler for Modifier {
    type Key = ObjectKey;
    const PATIENCE: Option<Patience> = Some(Patience::Long);

    fn name(&self) -> &'static str {
        "csi-modifier"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(known) = self.claims.get_key(key) else { return Ok(Action::AwaitChange) };
        let volume = facts::volume_name(&known).and_then(|name| self.volumes.get("", name));
        let Some(volume) = volume.filter(|volume| facts::is_bound_to(volume, &known)) else {
            return Ok(Action::AwaitChange);
        };
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.clone());
        let Some(source) = source.filter(|source| self.services.is_ours(&source.driver)) else {
            return Ok(Action::AwaitChange);
        };
        let service = self.services.of(&source.driver).await;
        let service = service.map_err(|error| ReconcileError::Other(error.to_string()))?;
        let Some(service) = service else { return Ok(Action::AwaitChange) };
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, key);
        let Some(claim) = api.get_opt(&key.name).await? else { return Ok(Action::AwaitChange) };
        let Some(name) = target(&claim).map(str::to_owned) else { return Ok(Action::AwaitChange) };
        let class = self.classes.get("", &name).filter(|class| class.driver_name == source.driver);
        let Some(class) = class else { return self.pending(&claim, &name).await };
        self.modify(&claim, (&volume, &source), &class, &service).await
    }
}

impl Modifier {
    async fn pending(&self, claim: &PersistentVolumeClaim, name: &str) -> Result<Action, ReconcileError> {
        let message = format!("VolumeAttributesClass \"{name}\" is not there, or is for another driver");
        self.recorder.warning(claim, "VolumeModifyFailed", message);
        self.write(claim, at(claim, name, "Pending", None)).await?;
        Ok(Action::AwaitChange)
    }

    async fn modify(
        &self,
        claim: &PersistentVolumeClaim,
        (volume, source): (&PersistentVolume, &CSIPersistentVolumeSource),
        class: &VolumeAttributesClass,
        service: &ControllerService,
    ) -> Result<Action, ReconcileError> {
        let (name, volume_name) = (
            class.metadata.name.clone().unwrap_or_default(),
            volume.metadata.name.clone().unwrap_or_default(),
        );
        if !service.can(ControllerRpcType::ModifyVolume) {
            let message = format!("driver {} cannot modify volumes", source.driver);
            self.recorder.warning(claim, "VolumeModifyFailed", message);
            return Ok(Action::AwaitChange);
        }
        let message = format!("external resizer is modifying volume {volume_name} with vac {name}");
        self.recorder.normal(claim, "VolumeModify", message);
        let claim = self.write(claim, at(claim, &name, "InProgress", None)).await?;
        if let Err(error) = self.call(source, class, service).await {
            let message = format!("modify volume \"{volume_name}\" with vac {name} failed: {error}");
            self.recorder.warning(&claim, "VolumeModifyFailed", message.clone());
            let infeasible = matches!(&error, ModifyError::Call(error) if error.is_infeasible());
            let state = if infeasible { "Infeasible" } else { "InProgress" };
            self.write(&claim, at(&claim, &name, state, Some(&message))).await?;
            return if infeasible {
                Ok(Action::RequeueAfter(INFEASIBLE_RETRY_INTERVAL))
            } else {
                Err(ReconcileError::Other(message))
            };
        }
        let patch = Patch::Merge(json!({ "spec": { "volumeAttributesClassName": name } }));
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.patch(&volume_name, &PatchParams::default(), &patch).await?;
        self.write(&claim, done(&claim, &name)).await?;
        let message = format!("external resizer modified volume {volume_name} with vac {name} successfully");
        self.recorder.normal(&claim, "VolumeModifySuccessful", message);
        Ok(Action::AwaitChange)
    }

    async fn call(
        &self,
        source: &CSIPersistentVolumeSource,
        class: &VolumeAttributesClass,
        service: &ControllerService,
    ) -> Result<(), ModifyError> {
        let request = ControllerModifyVolumeRequest {
            volume_id: source.volume_handle.clone(),
            secrets: secrets::read(&self.client, source.controller_expand_secret_ref.as_ref()).await?,
            mutable_parameters: class.parameters.clone().unwrap_or_default(),
        };
        Ok(service.client.call::<_, Empty>(CONTROLLER_MODIFY_VOLUME, request).await.map(drop)?)
    }

    async fn write(
        &self,
        claim: &PersistentVolumeClaim,
        status: PersistentVolumeClaimStatus,
    ) -> Result<PersistentVolumeClaim, ReconcileError> {
        let key = ObjectKey::of(claim);
        let mut changed = claim.clone();
        changed.status = Some(status);
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &key);
        Ok(api.replace_status(&key.name, &PostParams::default(), &changed).await?)
    }
}

fn at(
    claim: &PersistentVolumeClaim,
    class: &str,
    state: &str,
    error: Option<&str>,
) -> PersistentVolumeClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    status.modify_volume_status = Some(ModifyVolumeStatus {
        status: state.to_owned(),
        target_volume_attributes_class_name: Some(class.to_owned()),
    });
    if state != "Pending" {
        condition(&mut status, "ModifyingVolume", "", "");
    }
    if let Some(error) = error {
        condition(&mut status, "ModifyVolumeError", "", error);
    }
    status
}

fn done(claim: &PersistentVolumeClaim, class: &str) -> PersistentVolumeClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    status.modify_volume_status = None;
    status.current_volume_attributes_class_name = Some(class.to_owned());
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| !OF_MODIFYING.contains(&condition.type_.as_str()));
    }
    status
}
