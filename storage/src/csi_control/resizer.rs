//! Makes volumes larger whose claims ask for more, as upstream's external-resizer does.
//!
//! <https://kubernetes-csi.github.io/docs/volume-expansion.html>

use super::create::capability_of;
use super::resize_plan;
use super::secrets;
use super::services::Services;
use super::{CsiConfig, WORKERS, requeue_for_drivers};
use crate::csi::controller_messages::{
    CONTROLLER_EXPAND_VOLUME, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerRpcType,
};
use crate::csi::messages::CapacityRange;
use crate::csi::{CallError, ControllerService};
use crate::expand::wants_to_grow;
use crate::facts::{self, written};
use coracle_client::beat::Patience;
use coracle_client::informer::{api_for, deleting};
use coracle_client::{
    Action, Context, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, WorkQueue,
};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus,
};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Until a driver that has refused a size is asked for it again; the least of upstream's pauses for that.
const INFEASIBLE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error(transparent)]
    Secret(#[from] secrets::SecretError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "the driver says that the volume has {has} bytes, which is less than the {wanted} that it was asked for"
    )]
    Answer { has: i64, wanted: i64 },
}

struct Resizer {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    services: Services,
    recorder: Recorder,
}

/// A claim that grows, with all that is known of it.
struct Growing {
    key: ObjectKey,
    claim: Arc<PersistentVolumeClaim>,
    volume: Arc<PersistentVolume>,
    source: CSIPersistentVolumeSource,
    service: Arc<ControllerService>,
}

/// Runs until `context.stop` is cancelled.
pub async fn run(context: &Context, config: &CsiConfig, services: Services) {
    let informers = &context.informers;
    let this = Resizer {
        client: context.client.clone(),
        claims: informers.of(),
        volumes: informers.of(),
        services,
        recorder: Recorder::new(context.client.clone(), "coracle-csi-resizer", ""),
    };
    let (claims, volumes) = (this.claims.clone(), this.volumes.clone());
    let objects = informers.of::<CSIDriver>();
    let everything = {
        let claims = claims.clone();
        let key = |claim: Arc<PersistentVolumeClaim>| ObjectKey::of(claim.as_ref());
        move || claims.iter().filter(|claim| wants_to_grow(claim)).map(key).collect::<Vec<_>>()
    };
    let queue = WorkQueue::new();
    requeue_for_drivers(context, config, &queue, everything.clone());
    Controller::with_queue(this, queue)
        .watch(&claims, |delta| {
            let growing = delta.new.as_ref().filter(|claim| wants_to_grow(claim))?;
            // Its status is what this controller writes itself.
            let before = delta.old.as_ref().filter(|old| wants_to_grow(old)).map(|old| facts::requested(old));
            (before != Some(facts::requested(growing))).then(|| ObjectKey::of(growing.as_ref()))
        })
        .watch(&objects, move |_| everything())
        .reads(&volumes)
        .workers(WORKERS)
        .run(context.stop.clone())
        .await;
}

impl Reconciler for Resizer {
    type Key = ObjectKey;
    const PATIENCE: Option<Patience> = Some(Patience::Long);

    fn name(&self) -> &'static str {
        "csi-resizer"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(growing) = self.growing(key).await? else { return Ok(Action::AwaitChange) };
        match resize_plan::wanted(&growing.claim, &growing.volume) {
            None => Ok(Action::AwaitChange),
            Some(bytes) => self.expand(growing, bytes).await,
        }
    }
}

impl Resizer {
    /// `None` where it is nothing to this controller.
    async fn growing(&self, key: &ObjectKey) -> Result<Option<Growing>, ReconcileError> {
        let Some(known) = self.claims.get_key(key).filter(|claim| wants_to_grow(claim)) else {
            return Ok(None);
        };
        let named = facts::volume_name(&known).and_then(|name| self.volumes.get("", name));
        let source = named.as_ref().and_then(|volume| volume.spec.as_ref()?.csi.clone());
        let Some(source) = source.filter(|source| self.services.is_ours(&source.driver)) else {
            return Ok(None);
        };
        let service = self.services.of(&source.driver).await;
        let Some(service) = service.map_err(|error| ReconcileError::Other(error.to_string()))? else {
            return Ok(None);
        };
        // Sizes and states as they are: a step on old ones would be a step back.
        let (claims, volumes): (Api<PersistentVolumeClaim>, Api<PersistentVolume>) =
            (api_for(&self.client, key), Api::all(self.client.clone()));
        let Some(claim) = claims.get_opt(&key.name).await? else { return Ok(None) };
        let name = facts::volume_name(&claim).unwrap_or_default();
        let Some(volume) = volumes.get_opt(name).await?.filter(|volume| !deleting(volume)) else {
            return Ok(None);
        };
        let ours = facts::is_bound_to(&volume, &claim);
        let (claim, volume) = (Arc::new(claim), Arc::new(volume));
        Ok(ours.then(|| Growing { key: key.clone(), claim, volume, source, service }))
    }

    async fn expand(&self, mut growing: Growing, bytes: i64) -> Result<Action, ReconcileError> {
        let name = growing.volume.metadata.name.clone().unwrap_or_default();
        if !growing.service.can(ControllerRpcType::ExpandVolume) {
            if !self.services.node_grows(&growing.source.driver) {
                let message = format!("driver {} cannot make volumes larger", growing.source.driver);
                self.recorder.warning(growing.claim.as_ref(), "VolumeResizeFailed", message);
                return Ok(Action::AwaitChange);
            }
            self.write_size(&growing, bytes).await?;
            return self.await_node(&growing).await;
        }
        if resize_plan::state(&growing.claim).is_empty() {
            let message = format!("External resizer is resizing volume {name}");
            self.recorder.normal(growing.claim.as_ref(), "Resizing", message);
        }
        let begun = resize_plan::begun(&growing.claim, bytes);
        growing.claim = Arc::new(self.write(&growing, begun).await?);
        let answer = match self.call(&growing, bytes).await {
            Ok(answer) => answer,
            Err(error) => return self.failed(&growing, &name, &error).await,
        };
        let size = if answer.capacity_bytes > 0 { answer.capacity_bytes } else { bytes };
        self.write_size(&growing, size).await?;
        if answer.node_expansion_required {
            return self.await_node(&growing).await;
        }
        self.write(&growing, resize_plan::finished(&growing.claim, size)).await?;
        self.recorder.normal(growing.claim.as_ref(), "VolumeResizeSuccessful", "Resize volume succeeded");
        Ok(Action::AwaitChange)
    }

    async fn call(
        &self,
        growing: &Growing,
        bytes: i64,
    ) -> Result<ControllerExpandVolumeResponse, ResizeError> {
        let Growing { volume, source, service, .. } = growing;
        let request = ControllerExpandVolumeRequest {
            volume_id: source.volume_handle.clone(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            secrets: secrets::read(&self.client, source.controller_expand_secret_ref.as_ref()).await?,
            volume_capability: Some(capability_of(
                volume,
                service.can(ControllerRpcType::SingleNodeMultiWriter),
            )),
        };
        let answer: ControllerExpandVolumeResponse =
            service.client.call(CONTROLLER_EXPAND_VOLUME, request).await?;
        let has = answer.capacity_bytes;
        if has > 0 && has < bytes { Err(ResizeError::Answer { has, wanted: bytes }) } else { Ok(answer) }
    }

    async fn failed(
        &self,
        growing: &Growing,
        name: &str,
        error: &ResizeError,
    ) -> Result<Action, ReconcileError> {
        let driver = &growing.source.driver;
        let message = format!("resize volume \"{name}\" by resizer \"{driver}\" failed: {error}");
        self.recorder.warning(growing.claim.as_ref(), "VolumeResizeFailed", message.clone());
        let infeasible = matches!(error, ResizeError::Call(error) if error.is_infeasible());
        self.write(growing, resize_plan::failed(&growing.claim, &message, infeasible)).await?;
        if infeasible {
            Ok(Action::RequeueAfter(INFEASIBLE_RETRY_INTERVAL))
        } else {
            Err(ReconcileError::Other(message))
        }
    }

    async fn await_node(&self, growing: &Growing) -> Result<Action, ReconcileError> {
        self.write(growing, resize_plan::for_node(&growing.claim)).await?;
        let message = "Require file system resize of volume on node";
        self.recorder.normal(growing.claim.as_ref(), "FileSystemResizeRequired", message);
        Ok(Action::AwaitChange)
    }

    async fn write_size(&self, growing: &Growing, bytes: i64) -> Result<(), ReconcileError> {
        let has = facts::storage(growing.volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
        if has.units() >= bytes {
            return Ok(());
        }
        let name = growing.volume.metadata.name.clone().unwrap_or_default();
        let version = growing.volume.metadata.resource_version.clone();
        let patch = json!({ "metadata": { "resourceVersion": version },
            "spec": { "capacity": { "storage": written(bytes) } } });
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn write(
        &self,
        growing: &Growing,
        status: PersistentVolumeClaimStatus,
    ) -> Result<PersistentVolumeClaim, ReconcileError> {
        let mut changed = PersistentVolumeClaim::clone(&growing.claim);
        changed.status = Some(status);
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &growing.key);
        Ok(api.replace_status(&growing.key.name, &PostParams::default(), &changed).await?)
    }
}
