//! Makes the volumes of claims, and deletes those of claims that are gone.
//!
//! Before a driver is asked for a volume, the claim gets a finalizer: a process that dies in the middle, or a claim that is
//! deleted meanwhile, leaves no volume that nobody knows of. It goes once the PersistentVolume is there, or once the driver
//! has refused.

use super::create::{self, DELETION_SECRET, Wanted};
use super::parameters::{ParameterError, Parameters, Purpose};
use super::secrets::{self, SecretError};
use super::services::Services;
use super::source::{self, DataSource, SourceError};
use super::topology::{self, Places, TopologyError};
use super::{CsiConfig, Key, WORKERS, requeue_for_drivers};
use crate::csi::controller_messages::{
    CREATE_VOLUME, ControllerRpcType, CreateVolumeRequest, CreateVolumeResponse, DELETE_VOLUME,
    DeleteVolumeRequest, Volume,
};
use crate::csi::messages::Empty;
use crate::csi::{CallError, ControllerService};
use crate::facts::{self, PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER};
use crate::provision::{self, volume_name};
use coracle_client::beat::Patience;
use coracle_client::informer::{api_for, deleting};
use coracle_client::{
    Action, Context, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, WorkQueue,
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, SecretReference};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, StorageClass, VolumeAttachment, VolumeAttributesClass,
};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of claims whose volume may be under way.
const IN_PROGRESS: &str = "coracle.io/csi-provisioning";
const NAME: &str = "csi-provisioner";

#[derive(Debug, thiserror::Error)]
enum ProvisionError {
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("volumeattributesclass \"{name}\" cannot be used: {why}")]
    Attributes { name: String, why: String },
    #[error(transparent)]
    Call(#[from] CallError),
    /// What was made is not what was asked for, and is deleted again.
    #[error("{0}")]
    Answer(String),
    #[error("the volume's object is not written")]
    Write(#[from] kube::Error),
}

impl ProvisionError {
    /// Whether a volume may have come of it.
    fn may_be_under_way(&self) -> bool {
        match self {
            Self::Call(error) => !error.is_final(),
            Self::Write(_) | Self::Answer(_) => true,
            _ => false,
        }
    }
}

struct Provisioner {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    attributes: Informer<VolumeAttributesClass>,
    attachments: Informer<VolumeAttachment>,
    nodes: Informer<Node>,
    csi_nodes: Informer<CSINode>,
    services: Services,
    recorder: Recorder,
}

/// Runs until `context.stop` is cancelled.
pub async fn run(context: &Context, config: &CsiConfig, services: Services) {
    let informers = &context.informers;
    let this = Provisioner {
        client: context.client.clone(),
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        attributes: informers.of(),
        attachments: informers.of(),
        nodes: informers.of(),
        csi_nodes: informers.of(),
        services,
        recorder: Recorder::new(context.client.clone(), "coracle-csi-provisioner", ""),
    };
    let (claims, volumes) = (this.claims.clone(), this.volumes.clone());
    let (classes, attachments) = (this.classes.clone(), this.attachments.clone());
    let (attributes, nodes, csi_nodes) =
        (this.attributes.clone(), this.nodes.clone(), this.csi_nodes.clone());
    let objects = informers.of::<CSIDriver>();
    let everything = {
        let (claims, volumes) = (claims.clone(), volumes.clone());
        move || {
            let of_claims = claims.iter().filter(|claim| concerns(claim)).map(|claim| claim_key(&claim));
            let of_volumes = volumes.iter().filter(|volume| ends(volume));
            of_claims.chain(of_volumes.map(|volume| Key::Volume(volume.name_any()))).collect::<Vec<_>>()
        }
    };
    let queue = WorkQueue::new();
    requeue_for_drivers(context, config, &queue, everything.clone());
    let for_class = everything.clone();
    Controller::with_queue(this, queue)
        .watch(&claims, |delta| {
            delta.new.as_ref().filter(|claim| concerns(claim)).map(|claim| claim_key(claim))
        })
        .watch(&volumes, |delta| {
            delta.new.as_ref().filter(|volume| ends(volume)).map(|volume| Key::Volume(volume.name_any()))
        })
        .watch(&attachments, |delta: &Delta<VolumeAttachment>| {
            let gone = delta.old.as_ref().filter(|_| delta.new.is_none())?;
            gone.spec.source.persistent_volume_name.clone().map(Key::Volume)
        })
        .watch(&classes, move |_| for_class())
        .watch(&objects, move |_| everything())
        .reads(&attributes)
        .reads(&nodes)
        .reads(&csi_nodes)
        .workers(WORKERS)
        .run(context.stop.clone())
        .await;
}

fn claim_key(claim: &PersistentVolumeClaim) -> Key {
    Key::Claim(ObjectKey::of(claim))
}

fn provisioner_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    STORAGE_PROVISIONER.iter().find_map(|key| facts::annotation(claim, key))
}

fn in_progress(claim: &PersistentVolumeClaim) -> bool {
    claim.finalizers().iter().any(|finalizer| finalizer == IN_PROGRESS)
}

/// Claims without a volume that somebody shall make, and those that were left in the middle.
fn concerns(claim: &PersistentVolumeClaim) -> bool {
    in_progress(claim)
        || facts::volume_name(claim).is_none()
            && provisioner_of(claim).is_some_and(|provisioner| provisioner != facts::LOCAL_PATH)
}

/// Volumes of drivers that nobody has any more.
fn ends(volume: &PersistentVolume) -> bool {
    let phase = facts::phase(volume);
    let free = phase == "Released" || deleting(volume) && phase != "Bound";
    let kept = volume.finalizers().iter().any(|finalizer| finalizer == provision::FINALIZER);
    let csi = volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
    csi && free && (kept || !deleting(volume))
}

impl Reconciler for Provisioner {
    type Key = Key;
    const PATIENCE: Option<Patience> = Some(Patience::Long);

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, ReconcileError> {
        match key {
            Key::Claim(key) => self.sync_claim(key).await,
            Key::Volume(name) => self.end(name).await,
        }
    }
}

impl Provisioner {
    async fn sync_claim(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.get_key(key).filter(|claim| concerns(claim)) else {
            return Ok(Action::AwaitChange);
        };
        let made =
            facts::volume_name(&claim).is_some() || self.volumes.get("", &volume_name(&claim)).is_some();
        let driver = provisioner_of(&claim).unwrap_or_default();
        if made || !self.services.is_ours(driver) {
            return self.leave(&claim).await;
        }
        let class = self.classes.get("", facts::class_of(&claim)).filter(|class| class.provisioner == driver);
        let Some(class) = class else {
            return if deleting(claim.as_ref()) { self.leave(&claim).await } else { Ok(Action::AwaitChange) };
        };
        if deleting(claim.as_ref()) && !in_progress(&claim) || !is_due(&claim, &class) {
            return Ok(Action::AwaitChange);
        }
        match DataSource::of(&claim) {
            DataSource::Populator => {
                let message = "Assuming an external populator will provision the volume";
                self.recorder.normal(claim.as_ref(), "Provisioning", message);
                Ok(Action::AwaitChange)
            }
            _ => self.provision(&claim, &class, driver).await,
        }
    }

    async fn provision(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        class: &StorageClass,
        driver: &str,
    ) -> Result<Action, ReconcileError> {
        // One that is not there now wakes all claims when it comes.
        let Some(service) = self.service(driver).await? else { return Ok(Action::AwaitChange) };
        let made = self.make(claim, class, driver, &service).await;
        let error = match made {
            Ok(()) => return Ok(Action::AwaitChange),
            // Somebody else has written the claim: with what it is now, at once.
            Err(ProvisionError::Write(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                return Err(kube::Error::Api(status).into());
            }
            Err(error) => error,
        };
        let name = class.name_any();
        let message = format!("failed to provision volume with StorageClass \"{name}\": {}", said(&error));
        if !deleting(claim.as_ref()) {
            self.recorder.warning(claim.as_ref(), "ProvisioningFailed", message.clone());
        }
        if no_room(&error) && service.has_topology && topology::selected(claim).is_some() {
            self.reschedule(claim).await?;
        } else if !error.may_be_under_way() {
            self.leave(claim).await?;
            if deleting(claim.as_ref()) {
                return Ok(Action::AwaitChange);
            }
        }
        Err(ReconcileError::Other(message))
    }

    async fn service(&self, driver: &str) -> Result<Option<Arc<ControllerService>>, ReconcileError> {
        let service =
            self.services.of(driver).await.map_err(|error| ReconcileError::Other(error.to_string()))?;
        Ok(service.filter(|service| service.can(ControllerRpcType::CreateDeleteVolume)))
    }

    /// Asks for the volume and writes its object; of a claim that is being deleted the volume goes at once.
    async fn make(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        class: &StorageClass,
        driver: &str,
        service: &ControllerService,
    ) -> Result<(), ProvisionError> {
        let source = source::content(&self.client, service, driver, claim).await?;
        let wanted = Wanted {
            claim,
            class,
            parameters: Parameters::of(&class.parameters.clone().unwrap_or_default())?,
            mutable_parameters: self.mutable_parameters(claim, driver)?,
            source,
        };
        let secret = wanted.secret(Purpose::Provision)?;
        let secrets = secrets::read(&self.client, secret.as_ref()).await?;
        let places = service.has_topology.then(|| {
            Places::of(driver, &self.nodes.list(), &self.csi_nodes.list()).requirement(
                topology::selected(claim),
                class.allowed_topologies.as_deref().unwrap_or_default(),
                claim.metadata.uid.as_deref().unwrap_or_default(),
            )
        });
        let names = self.services.wants_names(driver);
        let request = wanted.request(service, secrets.clone(), places.transpose()?.flatten(), names);
        let claim = self.begin(claim).await?;
        let volume = create_volume(service, request).await?;
        let mistake = create::mistake(&wanted, &volume);
        if mistake.is_some() || deleting(claim.as_ref()) {
            delete_volume(service, &volume.volume_id, secrets).await?;
            return match mistake {
                Some(mistake) => Err(ProvisionError::Answer(mistake)),
                None => Ok(self.leave(&claim).await.map(drop).map_err(api_error)?),
            };
        }
        self.write(&claim, &wanted.volume(driver, &volume)?).await
    }

    /// Says of the claim that a volume may be under way from now on.
    async fn begin(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
    ) -> Result<Arc<PersistentVolumeClaim>, ProvisionError> {
        if in_progress(claim) {
            return Ok(claim.clone());
        }
        let key = ObjectKey::of(claim.as_ref());
        let message = format!("External provisioner is provisioning volume for claim \"{key}\"");
        self.recorder.normal(claim.as_ref(), "Provisioning", message);
        let mut finalizers = claim.finalizers().to_vec();
        finalizers.push(IN_PROGRESS.to_owned());
        Ok(Arc::new(self.write_finalizers(claim, finalizers).await?))
    }

    /// Nothing is under way any more.
    async fn leave(&self, claim: &PersistentVolumeClaim) -> Result<Action, ReconcileError> {
        let key = ObjectKey::of(claim);
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &key);
        // What has just begun is not in the informer yet.
        let Some(live) = api.get_opt(&key.name).await?.filter(in_progress) else {
            return Ok(Action::AwaitChange);
        };
        let rest = live.finalizers().iter().filter(|finalizer| *finalizer != IN_PROGRESS);
        self.write_finalizers(&live, rest.cloned().collect()).await?;
        Ok(Action::AwaitChange)
    }

    async fn write_finalizers(
        &self,
        claim: &PersistentVolumeClaim,
        finalizers: Vec<String>,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let key = ObjectKey::of(claim);
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &key);
        let version = claim.metadata.resource_version.clone();
        let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    async fn write(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), ProvisionError> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => {
                created?;
                let message = format!("Successfully provisioned volume {}", volume.name_any());
                self.recorder.normal(claim, "ProvisioningSucceeded", message);
            }
        }
        self.leave(claim).await.map(drop).map_err(api_error)
    }

    fn mutable_parameters(
        &self,
        claim: &PersistentVolumeClaim,
        driver: &str,
    ) -> Result<BTreeMap<String, String>, ProvisionError> {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(BTreeMap::new()) };
        let refused = |why: String| ProvisionError::Attributes { name: name.clone(), why };
        let class = self.attributes.get("", &name).ok_or_else(|| refused("it is not there".to_owned()))?;
        if class.driver_name != driver {
            return Err(refused(format!("it is for the driver {}", class.driver_name)));
        }
        Ok(class.parameters.clone().unwrap_or_default())
    }

    /// Lets the scheduler choose another node: this one's place has no room.
    async fn reschedule(&self, claim: &PersistentVolumeClaim) -> Result<(), ReconcileError> {
        self.leave(claim).await?;
        let key = ObjectKey::of(claim);
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, &key);
        let patch =
            json!({ "metadata": { "annotations": { SELECTED_NODE: null }, "uid": claim.metadata.uid } });
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn end(&self, name: &str) -> Result<Action, ReconcileError> {
        let Some(volume) = self.volumes.get("", name).filter(|volume| ends(volume)) else {
            return Ok(Action::AwaitChange);
        };
        let driver = facts::annotation(volume.as_ref(), PROVISIONED_BY).unwrap_or_default();
        let Some(source) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else {
            return Ok(Action::AwaitChange);
        };
        if source.driver != driver || !self.services.is_ours(driver) {
            return Ok(Action::AwaitChange);
        }
        if facts::reclaim_policy(&volume) != "Delete" {
            return if deleting(volume.as_ref()) {
                provision::drop_finalizer(&self.client, name).await
            } else {
                Ok(Action::AwaitChange)
            };
        }
        // Its attachment's end wakes the volume again.
        let attached =
            |a: &Arc<VolumeAttachment>| a.spec.source.persistent_volume_name.as_deref() == Some(name);
        if self.attachments.iter().any(|a| attached(&a)) {
            return Ok(Action::AwaitChange);
        }
        let Some(service) = self.service(driver).await? else { return Ok(Action::AwaitChange) };
        if let Err(error) = self.delete(&volume, &source.volume_handle, &service).await {
            self.recorder.warning(volume.as_ref(), "VolumeFailedDelete", error.to_string());
            return Err(ReconcileError::Other(error.to_string()));
        }
        provision::delete(&self.client, &volume).await?;
        provision::drop_finalizer(&self.client, name).await
    }

    async fn delete(
        &self,
        volume: &PersistentVolume,
        handle: &str,
        service: &ControllerService,
    ) -> Result<(), ProvisionError> {
        let get = |key: &str| facts::annotation(volume, key).map(str::to_owned);
        let (name, namespace) = DELETION_SECRET;
        let secret = SecretReference { name: get(name), namespace: get(namespace) };
        let secrets = secrets::read(&self.client, Some(&secret)).await?;
        Ok(delete_volume(service, handle, secrets).await?)
    }
}

fn is_due(claim: &PersistentVolumeClaim, class: &StorageClass) -> bool {
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    !waits || topology::selected(claim).is_some()
}

fn no_room(error: &ProvisionError) -> bool {
    matches!(error, ProvisionError::Call(error) if error.code() == Some(tonic::Code::ResourceExhausted))
}

fn api_error(error: ReconcileError) -> ProvisionError {
    match error {
        ReconcileError::Api(error) => ProvisionError::Write(error),
        ReconcileError::Other(why) => ProvisionError::Answer(why),
    }
}

/// The error with what is behind it.
fn said(error: &ProvisionError) -> String {
    coracle_api::error::chain(error)
}

async fn create_volume(
    service: &ControllerService,
    request: CreateVolumeRequest,
) -> Result<Volume, ProvisionError> {
    let answer: CreateVolumeResponse = service.client.call(CREATE_VOLUME, request).await?;
    let volume = answer.volume.filter(|volume| !volume.volume_id.is_empty());
    volume.ok_or_else(|| ProvisionError::Answer("the driver answered without a volume".to_owned()))
}

async fn delete_volume(
    service: &ControllerService,
    volume_id: &str,
    secrets: BTreeMap<String, String>,
) -> Result<(), CallError> {
    let request = DeleteVolumeRequest { volume_id: volume_id.to_owned(), secrets };
    service.client.call::<_, Empty>(DELETE_VOLUME, request).await.map(drop)
}
