//! Snapshots by drivers: what upstream's csi-snapshotter does.
//!
//! Before a driver is asked for a snapshot, the content is annotated: a process that dies in the middle, or a content that is
//! deleted meanwhile, leaves no snapshot that nobody knows of. The annotation, upstream's, goes once the driver has said
//! what came of it.

use super::parameters::{self, Parameters};
use super::secrets;
use super::services::Services;
use super::{CsiConfig, requeue_for_drivers};
use crate::csi::ControllerService;
use crate::csi::controller_messages::{
    CREATE_SNAPSHOT, ControllerRpcType, CreateSnapshotRequest, CreateSnapshotResponse, DELETE_SNAPSHOT,
    DeleteSnapshotRequest, LIST_SNAPSHOTS, ListSnapshotsRequest, ListSnapshotsResponse, Snapshot,
};
use crate::csi::messages::Empty;
use crate::facts;
use crate::snapshots::{
    self, Common, Everything, Key, Snapshots, TakeError, Taken, Taker, VolumeSnapshotClass,
    VolumeSnapshotContent, text,
};
use coracle_client::informer::deleting;
use coracle_client::{Context, Controller, Informer, ReconcileError, Recorder, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, SecretReference};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// Of a content: the secret by which its driver takes and deletes the snapshot.
const SECRET: (&str, &str) = (
    "snapshot.storage.kubernetes.io/deletion-secret-name",
    "snapshot.storage.kubernetes.io/deletion-secret-namespace",
);
/// By which upstream's snapshot-controller elects its leader.
const CONTROLLER_LEASE: &str = "snapshot-controller-leader";

/// Cloning shares everything.
#[derive(Clone)]
pub struct Snapshotter {
    context: Context,
    config: CsiConfig,
    services: Services,
    objects: Informer<CSIDriver>,
}

/// Runs until `context.stop` is cancelled.
pub async fn run(context: &Context, config: &CsiConfig, services: Services) {
    let informers = &context.informers;
    let common = Common {
        client: context.client.clone(),
        recorder: Recorder::new(context.client.clone(), "coracle-csi-snapshotter", ""),
        claims: informers.of(),
        volumes: informers.of(),
    };
    let (context, config) = (context.clone(), config.clone());
    let stop = context.stop.clone();
    let objects = context.informers.of();
    snapshots::run(common, Snapshotter { context, config, services, objects }, &stop).await;
}

fn told(why: impl std::fmt::Display) -> TakeError {
    TakeError::Told(why.to_string())
}

impl Snapshotter {
    fn client(&self) -> &kube::Client {
        &self.context.client
    }

    /// The service that takes snapshots; `None` where the driver is not there now, which wakes all when it comes.
    async fn service(&self, driver: &str) -> Result<Option<Arc<ControllerService>>, TakeError> {
        let service = self.services.of(driver).await;
        let service = service.map_err(|error| ReconcileError::Other(error.to_string()))?;
        let can = |service: &Arc<ControllerService>| service.can(ControllerRpcType::CreateDeleteSnapshot);
        match service {
            None => Ok(None),
            Some(service) if can(&service) => Ok(Some(service)),
            Some(_) => Err(told(format!("CSI driver {driver} does not support snapshots"))),
        }
    }

    async fn secrets(&self, content: &VolumeSnapshotContent) -> Result<BTreeMap<String, String>, TakeError> {
        let get = |key: &str| facts::annotation(content, key).map(str::to_owned);
        let reference = SecretReference { name: get(SECRET.0), namespace: get(SECRET.1) };
        secrets::read(self.client(), Some(&reference)).await.map_err(told)
    }

    /// Asks for the snapshot, or, of one that was asked for, what has become of it.
    async fn create(
        &self,
        service: &ControllerService,
        content: &VolumeSnapshotContent,
        class: Option<&VolumeSnapshotClass>,
    ) -> Result<Snapshot, TakeError> {
        let request = self.request(content, class).await?;
        let volume = request.source_volume_id.clone();
        let known = text(&content.status, "snapshotHandle").is_some();
        if !known {
            self.mark(content, true).await?;
        }
        let answer: Result<CreateSnapshotResponse, _> = service.client.call(CREATE_SNAPSHOT, request).await;
        let failed = |why: String| told(format!("failed to take snapshot of the volume {volume}: \"{why}\""));
        let snapshot = match answer {
            Ok(answer) => answer.snapshot.unwrap_or_default(),
            Err(error) => {
                if error.is_final() && !known {
                    self.mark(content, false).await?;
                }
                return Err(failed(error.to_string()));
            }
        };
        if snapshot.snapshot_id.is_empty() {
            return Err(failed("the driver answered without a snapshot".to_owned()));
        }
        if !snapshot.source_volume_id.is_empty() && snapshot.source_volume_id != volume {
            let other = &snapshot.source_volume_id;
            return Err(failed(format!("the driver answered with a snapshot of the volume {other}")));
        }
        Ok(snapshot)
    }

    async fn request(
        &self,
        content: &VolumeSnapshotContent,
        class: Option<&VolumeSnapshotClass>,
    ) -> Result<CreateSnapshotRequest, TakeError> {
        let name = content.name_any();
        // One that is being deleted is only asked for to learn what it is called.
        let class =
            class.map(|class| class.parameters.clone()).or_else(|| deleting(content).then(BTreeMap::new));
        let class =
            class.ok_or_else(|| told(format!("failed to take snapshot {name} without a snapshot class")))?;
        let mut parameters = Parameters::of_snapshots(&class).map_err(told)?;
        let reference = &content.spec.volume_snapshot_ref;
        if self.services.wants_names(&content.spec.driver) {
            let names = [
                ("volumesnapshot/name", reference.name.clone()),
                ("volumesnapshot/namespace", reference.namespace.clone()),
                ("volumesnapshotcontent/name", name),
            ];
            parameters.extend(names.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)));
        }
        Ok(CreateSnapshotRequest {
            source_volume_id: content.spec.source.volume_handle.clone().unwrap_or_default(),
            name: format!("snapshot-{}", reference.uid),
            secrets: self.secrets(content).await?,
            parameters,
        })
    }

    /// Says of the content whether a snapshot may be under way. Without a look at what it says: that may be old.
    async fn mark(&self, content: &VolumeSnapshotContent, under_way: bool) -> Result<(), TakeError> {
        let annotations = json!({ BEING_CREATED: under_way.then_some("yes") });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations, "uid": content.uid() } }));
        let api: Api<VolumeSnapshotContent> = Api::all(self.client().clone());
        api.patch(&content.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Of a snapshot that was made elsewhere.
    async fn look(
        &self,
        service: &ControllerService,
        content: &VolumeSnapshotContent,
        class: Option<&VolumeSnapshotClass>,
        handle: &str,
    ) -> Result<Snapshot, TakeError> {
        // Nobody can be asked; upstream believes the administrator, too.
        if !service.can(ControllerRpcType::ListSnapshots) {
            return Ok(Snapshot {
                snapshot_id: handle.to_owned(),
                ready_to_use: true,
                ..Snapshot::default()
            });
        }
        let parameters = class.map(|class| class.parameters.clone()).unwrap_or_default();
        let name = content.name_any();
        let secret = list_secret(&parameters, &name).map_err(told)?;
        let request = ListSnapshotsRequest {
            snapshot_id: handle.to_owned(),
            secrets: secrets::read(self.client(), secret.as_ref()).await.map_err(told)?,
            ..ListSnapshotsRequest::default()
        };
        let failed = |why: String| told(format!("failed to list snapshot for content {name}: \"{why}\""));
        let answer: ListSnapshotsResponse =
            service.client.call(LIST_SNAPSHOTS, request).await.map_err(|error| failed(error.to_string()))?;
        let snapshots = answer.entries.into_iter().filter_map(|entry| entry.snapshot);
        let found = snapshots.into_iter().find(|snapshot| snapshot.snapshot_id == handle);
        found.ok_or_else(|| failed(format!("can not find snapshot for snapshotID {handle}")))
    }
}

impl Taker for Snapshotter {
    fn serves(&self, driver: &str) -> bool {
        self.services.is_ours(driver)
    }

    async fn is_bound_elsewhere(&self) -> Result<bool, kube::Error> {
        self.services.is_held(CONTROLLER_LEASE).await
    }

    fn handle(&self, driver: &str, claim: &str, volume: &PersistentVolume) -> Result<String, String> {
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        let source = source.ok_or_else(|| {
            format!(
                "cannot find CSI PersistentVolumeSource for volume {} of the PVC {claim}",
                volume.name_any()
            )
        })?;
        if source.driver == driver {
            return Ok(source.volume_handle.clone());
        }
        Err(format!(
            "snapshot controller failed to update: the driver of the class, {driver}, is not that of the volume, {}",
            source.driver
        ))
    }

    fn annotations(
        &self,
        class: &VolumeSnapshotClass,
        snapshot: (&str, &str),
        content: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        let secret = parameters::secret_of(&class.parameters, "snapshotter", |token, of_name| {
            let (namespace, name) = snapshot;
            match token {
                "volumesnapshotcontent.name" => Some(content.to_owned()),
                "volumesnapshot.namespace" => Some(namespace.to_owned()),
                "volumesnapshot.name" if of_name => Some(name.to_owned()),
                _ => None,
            }
        });
        let Some(secret) = secret.map_err(|error| error.to_string())? else { return Ok(BTreeMap::new()) };
        let pairs = [(SECRET.0, secret.name), (SECRET.1, secret.namespace)];
        Ok(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.unwrap_or_default())).collect())
    }

    async fn take(
        &self,
        content: &VolumeSnapshotContent,
        class: Option<&VolumeSnapshotClass>,
    ) -> Result<Taken, TakeError> {
        let Some(service) = self.service(&content.spec.driver).await? else { return Ok(Taken::Waits) };
        let snapshot = match &content.spec.source.snapshot_handle {
            Some(handle) => self.look(&service, content, class, handle).await?,
            None => {
                let snapshot = self.create(&service, content, class).await?;
                // What is written next names it; until then it must be found again.
                self.write_handle(content, &snapshot).await?;
                snapshot
            }
        };
        Ok(Taken::Cut {
            created: created(&snapshot, content.status["creationTime"].as_i64()),
            ready: snapshot.ready_to_use,
            restore_bytes: snapshot.size_bytes.max(0),
            handle: snapshot.snapshot_id,
        })
    }

    async fn delete(
        &self,
        content: &VolumeSnapshotContent,
        class: Option<&VolumeSnapshotClass>,
    ) -> Result<bool, TakeError> {
        let known =
            text(&content.status, "snapshotHandle").or(content.spec.source.snapshot_handle.as_deref());
        let under_way = facts::annotation(content, BEING_CREATED).is_some();
        if known.is_none() && !under_way {
            return Ok(true);
        }
        let Some(service) = self.service(&content.spec.driver).await? else { return Ok(false) };
        let snapshot_id = match known {
            Some(handle) => handle.to_owned(),
            // Only the driver knows whether there is one, and what it is called.
            None => match self.create(&service, content, class).await {
                Ok(snapshot) => snapshot.snapshot_id,
                Err(error) if self.is_refused(content).await? => {
                    tracing::info!(%error, content = content.name_any(), "no snapshot was taken");
                    return Ok(true);
                }
                Err(error) => return Err(error),
            },
        };
        let request = DeleteSnapshotRequest { snapshot_id, secrets: self.secrets(content).await? };
        let deleted: Result<Empty, _> = service.client.call(DELETE_SNAPSHOT, request).await;
        let name = content.name_any();
        let failed = |why: String| told(format!("failed to delete snapshot content {name}: \"{why}\""));
        deleted.map_err(|error| failed(error.to_string()))?;
        Ok(true)
    }

    fn wire(
        &self,
        controller: Controller<Snapshots<Self>>,
        queue: &WorkQueue<Key>,
        everything: Everything,
    ) -> Controller<Snapshots<Self>> {
        let for_drivers = everything.clone();
        requeue_for_drivers(&self.context, &self.config, queue, move || for_drivers());
        controller.watch(&self.objects, move |_| everything())
    }
}

impl Snapshotter {
    /// Writes the snapshot's name, and then that none is under way any more.
    async fn write_handle(
        &self,
        content: &VolumeSnapshotContent,
        snapshot: &Snapshot,
    ) -> Result<(), TakeError> {
        if text(&content.status, "snapshotHandle") == Some(&snapshot.snapshot_id) {
            return Ok(());
        }
        let api: Api<VolumeSnapshotContent> = Api::all(self.client().clone());
        let patch = Patch::Merge(json!({ "status": { "snapshotHandle": snapshot.snapshot_id } }));
        api.patch_status(&content.name_any(), &PatchParams::default(), &patch).await?;
        self.mark(content, false).await
    }

    /// Whether the driver has said that there is no snapshot.
    async fn is_refused(&self, content: &VolumeSnapshotContent) -> Result<bool, TakeError> {
        let api: Api<VolumeSnapshotContent> = Api::all(self.client().clone());
        let live = api.get_opt(&content.name_any()).await?;
        Ok(live.is_some_and(|live| facts::annotation(&live, BEING_CREATED).is_none()))
    }
}

/// Nanoseconds since 1970. Where the driver does not say: what was written before, else now.
fn created(snapshot: &Snapshot, known: Option<i64>) -> i64 {
    let now = || i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let told = snapshot.creation_time.as_ref().filter(|at| at.seconds > 0);
    let nanos = told.and_then(|at| at.seconds.checked_mul(1_000_000_000)?.checked_add(at.nanos.into()));
    nanos.or(known).unwrap_or_else(now)
}

fn list_secret(
    parameters: &BTreeMap<String, String>,
    content: &str,
) -> Result<Option<SecretReference>, parameters::ParameterError> {
    parameters::secret_of(parameters, "snapshotter-list", |token, _| {
        (token == "volumesnapshotcontent.name").then(|| content.to_owned())
    })
}
