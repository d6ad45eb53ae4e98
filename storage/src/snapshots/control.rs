//! VolumeSnapshots and their contents: who belongs to whom, and what is said of it.

use super::source::{hold, let_go};
use super::taker::Taker;
use super::types::{
    ContentSource, ContentSpec, SnapshotRef, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, text,
};
use crate::facts;
use coracle_client::informer::deleting;
use coracle_client::{Action, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const SNAPSHOT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
pub(super) const CONTENT_FINALIZER: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// Until it is looked again whether somebody else still binds snapshots.
const ELSEWHERE_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Snapshot(ObjectKey),
    Content(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(key) => write!(f, "snapshot {key}"),
            Self::Content(name) => write!(f, "snapshot content {name}"),
        }
    }
}

/// What every taker's snapshots are worked on with. Cloning shares everything.
#[derive(Clone)]
pub struct Common {
    pub client: kube::Client,
    pub recorder: Recorder,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
}

pub struct Snapshots<T> {
    pub(super) common: Common,
    pub(super) snapshots: Informer<VolumeSnapshot>,
    pub(super) contents: Informer<VolumeSnapshotContent>,
    pub(super) classes: Informer<VolumeSnapshotClass>,
    pub(super) taker: T,
}

/// The name of the snapshot's content, be it there or not.
pub(super) fn named(snapshot: &VolumeSnapshot) -> String {
    let given = snapshot.spec.source.volume_snapshot_content_name.clone();
    given.unwrap_or_else(|| content_name(snapshot))
}

/// Upstream's name.
fn content_name(snapshot: &VolumeSnapshot) -> String {
    format!("snapcontent-{}", uid(snapshot))
}

fn uid(snapshot: &VolumeSnapshot) -> String {
    snapshot.uid().unwrap_or_default()
}

impl<T: Taker> Reconciler for Snapshots<T> {
    type Key = Key;
    const PATIENCE: Option<coracle_client::beat::Patience> = None;

    fn name(&self) -> &'static str {
        "snapshot-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, ReconcileError> {
        match key {
            Key::Snapshot(key) => self.sync_snapshot(key).await,
            Key::Content(name) => self.sync_content(name).await,
        }
    }
}

impl<T: Taker> Snapshots<T> {
    async fn sync_snapshot(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(snapshot) = self.snapshots.get_key(key) else { return Ok(Action::AwaitChange) };
        let content = self.contents.get("", &named(&snapshot));
        let ours = match &content {
            Some(content) => self.taker.serves(&content.spec.driver),
            None => self.class_of(&snapshot).is_some(),
        };
        // Whoever bound it may be gone with its content; then nobody else lets it go.
        let lost = deleting(snapshot.as_ref()) && content.is_none() && !self.names_another(&snapshot);
        if !ours && !lost {
            return Ok(Action::AwaitChange);
        }
        if self.taker.is_bound_elsewhere().await? {
            return Ok(Action::RequeueAfter(ELSEWHERE_INTERVAL));
        }
        match content {
            _ if deleting(snapshot.as_ref()) => self.end(&snapshot).await,
            Some(content) => self.bind(&snapshot, &content).await,
            None => self.begin(&snapshot).await,
        }
    }

    /// The class that the snapshot names, or the default one; `None` where that is another driver's.
    fn class_of(&self, snapshot: &VolumeSnapshot) -> Option<Arc<VolumeSnapshotClass>> {
        let ours = |class: &Arc<VolumeSnapshotClass>| self.taker.serves(&class.driver);
        match &snapshot.spec.volume_snapshot_class_name {
            Some(name) => self.class(name).filter(ours),
            None => {
                let is_default = |class: &Arc<VolumeSnapshotClass>| {
                    facts::annotation(class.as_ref(), DEFAULT_CLASS) == Some("true")
                };
                // One that a driver of ours has volumes for, of the snapshot's own where it can be told.
                let driver = self.driver_of(snapshot);
                let of_driver = |class: &Arc<VolumeSnapshotClass>| {
                    driver.as_ref().is_none_or(|driver| *driver == class.driver)
                };
                self.classes.iter().filter(ours).filter(of_driver).find(is_default)
            }
        }
    }

    /// The CSI driver of the snapshot's volume; `None` where it has none, or is not there.
    fn driver_of(&self, snapshot: &VolumeSnapshot) -> Option<String> {
        let (_, volume) = self.volume(snapshot).ok()?;
        Some(volume.spec.as_ref()?.csi.as_ref()?.driver.clone())
    }

    fn names_another(&self, snapshot: &VolumeSnapshot) -> bool {
        let named = snapshot.spec.volume_snapshot_class_name.as_deref();
        named.and_then(|name| self.class(name)).is_some_and(|class| !self.taker.serves(&class.driver))
    }

    pub(super) fn class(&self, name: &str) -> Option<Arc<VolumeSnapshotClass>> {
        self.classes.get("", name)
    }

    /// The claim that the snapshot is of, and its volume.
    fn volume(&self, snapshot: &VolumeSnapshot) -> Result<(String, Arc<PersistentVolume>), String> {
        let Some(name) = &snapshot.spec.source.persistent_volume_claim_name else {
            return Err("PVC source is missing".to_owned());
        };
        let namespace = snapshot.namespace().unwrap_or_default();
        let claim = self.common.claims.get(&namespace, name);
        let claim = claim.ok_or_else(|| format!("the PVC {name} is not there"))?;
        let volume = facts::volume_name(&claim).and_then(|name| self.common.volumes.get("", name));
        let volume = volume.filter(|volume| facts::is_bound_to(volume, &claim));
        Ok((name.clone(), volume.ok_or_else(|| format!("the PVC {name} is not yet bound to a PV"))?))
    }

    async fn begin(&self, snapshot: &VolumeSnapshot) -> Result<Action, ReconcileError> {
        // One that was made elsewhere is bound when its content is there.
        let Some(class) = self.class_of(snapshot).filter(|_| is_dynamic(snapshot)) else {
            return Ok(Action::AwaitChange);
        };
        match self.planned(snapshot, &class) {
            Ok(content) => self.write_content(snapshot, &content).await,
            // Of a volume of another driver; a default class is not meant for it.
            Err(_) if snapshot.spec.volume_snapshot_class_name.is_none() => Ok(Action::AwaitChange),
            Err(why) => {
                let message = format!("Failed to create snapshot content with error {why}");
                self.refuse(snapshot, "SnapshotContentCreationFailed", &message).await
            }
        }
    }

    fn planned(
        &self,
        snapshot: &VolumeSnapshot,
        class: &VolumeSnapshotClass,
    ) -> Result<VolumeSnapshotContent, String> {
        let (claim, volume) = self.volume(snapshot)?;
        let handle = self.taker.handle(&class.driver, &claim, &volume)?;
        let (namespace, name) = (snapshot.namespace().unwrap_or_default(), snapshot.name_any());
        let content = content_name(snapshot);
        let annotations = self.taker.annotations(class, (&namespace, &name), &content)?;
        Ok(VolumeSnapshotContent {
            api_version: "snapshot.storage.k8s.io/v1".to_owned(),
            kind: "VolumeSnapshotContent".to_owned(),
            metadata: ObjectMeta {
                name: Some(content),
                annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
                finalizers: Some(vec![CONTENT_FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: ContentSpec {
                driver: class.driver.clone(),
                deletion_policy: class.deletion_policy.clone(),
                volume_snapshot_class_name: Some(class.name_any()),
                source: ContentSource { volume_handle: Some(handle), snapshot_handle: None },
                source_volume_mode: volume.spec.as_ref().and_then(|spec| spec.volume_mode.clone()),
                volume_snapshot_ref: SnapshotRef {
                    api_version: "snapshot.storage.k8s.io/v1".to_owned(),
                    kind: "VolumeSnapshot".to_owned(),
                    namespace,
                    name,
                    uid: uid(snapshot),
                },
            },
            status: json!({ "readyToUse": false }),
        })
    }

    async fn write_content(
        &self,
        snapshot: &VolumeSnapshot,
        content: &VolumeSnapshotContent,
    ) -> Result<Action, ReconcileError> {
        self.keep(snapshot).await?;
        if let Some(claim) = &snapshot.spec.source.persistent_volume_claim_name {
            hold(&self.common.client, &snapshot.namespace().unwrap_or_default(), claim).await?;
        }
        let api: Api<VolumeSnapshotContent> = Api::all(self.common.client.clone());
        match api.create(&PostParams::default(), content).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created?),
        }
        let key = ObjectKey::of(snapshot);
        let message = format!("Waiting for a snapshot {key} to be created by the CSI driver.");
        self.common.recorder.normal(snapshot, "CreatingSnapshot", message);
        let name = content.name_any();
        let status = json!({ "boundVolumeSnapshotContentName": name, "readyToUse": false, "error": null });
        self.write_status(snapshot, status).await?;
        Ok(Action::AwaitChange)
    }

    /// Sees to it that the two name each other, and goes on.
    async fn bind(
        &self,
        snapshot: &VolumeSnapshot,
        content: &VolumeSnapshotContent,
    ) -> Result<Action, ReconcileError> {
        let reference = &content.spec.volume_snapshot_ref;
        if !is_dynamic(snapshot) {
            if content.spec.source.snapshot_handle.is_none() {
                let message =
                    "VolumeSnapshotContent is dynamically provisioned while expecting a pre-provisioned one";
                return self.refuse(snapshot, "SnapshotContentMismatch", message).await;
            }
            let named = reference.name == snapshot.name_any()
                && Some(&reference.namespace) == snapshot.namespace().as_ref();
            if !named || !reference.uid.is_empty() && reference.uid != uid(snapshot) {
                let name = content.name_any();
                let message = format!("VolumeSnapshotContent [{name}] is bound to a different snapshot");
                return self.refuse(snapshot, "SnapshotContentMisbound", &message).await;
            }
            if reference.uid.is_empty() {
                self.write_reference(snapshot, content).await?;
            }
            self.keep(snapshot).await?;
        }
        self.follow(snapshot, content).await
    }

    async fn write_reference(
        &self,
        snapshot: &VolumeSnapshot,
        content: &VolumeSnapshotContent,
    ) -> Result<(), ReconcileError> {
        let mut reference = content.spec.volume_snapshot_ref.clone();
        reference.uid = uid(snapshot);
        let mut spec = json!({ "volumeSnapshotRef": reference });
        if let Some(class) = &snapshot.spec.volume_snapshot_class_name {
            spec["volumeSnapshotClassName"] = class.clone().into();
        }
        let metadata = json!({ "resourceVersion": content.resource_version() });
        let patch = Patch::Merge(json!({ "metadata": metadata, "spec": spec }));
        let api: Api<VolumeSnapshotContent> = Api::all(self.common.client.clone());
        api.patch(&content.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Says of the snapshot what its content says.
    async fn follow(
        &self,
        snapshot: &VolumeSnapshot,
        content: &VolumeSnapshotContent,
    ) -> Result<Action, ReconcileError> {
        let status = told(content);
        let fields = status.as_object().into_iter().flatten();
        if !fields.into_iter().all(|(field, value)| snapshot.status[field] == *value) {
            self.write_status(snapshot, status).await?;
            let key = ObjectKey::of(snapshot);
            let said = |field: &str| !content.status[field].is_null() && snapshot.status[field].is_null();
            if said("creationTime") {
                let message = format!("Snapshot {key} was successfully created by the CSI driver.");
                self.common.recorder.normal(snapshot, "SnapshotCreated", message);
            }
            if content.status["readyToUse"] == true && snapshot.status["readyToUse"] != true {
                let message = format!("Snapshot {key} is ready to use.");
                self.common.recorder.normal(snapshot, "SnapshotReady", message);
            }
        }
        if content.status["readyToUse"] == true {
            self.release(snapshot).await?;
        }
        Ok(Action::AwaitChange)
    }

    /// Lets the claim go, unless another snapshot of it is being taken.
    async fn release(&self, snapshot: &VolumeSnapshot) -> Result<(), ReconcileError> {
        let Some(claim) = &snapshot.spec.source.persistent_volume_claim_name else { return Ok(()) };
        let namespace = snapshot.namespace().unwrap_or_default();
        let taking = |other: &Arc<VolumeSnapshot>| {
            other.uid() != snapshot.uid()
                && other.spec.source.persistent_volume_claim_name.as_ref() == Some(claim)
                && !deleting(other.as_ref())
                && text(&other.status, "boundVolumeSnapshotContentName").is_some()
                && other.status["readyToUse"] != true
        };
        if self.snapshots.iter_in(&namespace).any(|other| taking(&other)) {
            return Ok(());
        }
        let known = self.common.claims.get(&namespace, claim);
        let_go(&self.common.client, known.as_deref()).await
    }

    /// Its content goes first, unless it is kept.
    async fn end(&self, snapshot: &VolumeSnapshot) -> Result<Action, ReconcileError> {
        if !snapshot.finalizers().iter().any(|finalizer| finalizer == SNAPSHOT_FINALIZER) {
            return Ok(Action::AwaitChange);
        }
        if self.is_being_restored(snapshot) {
            let message = "Snapshot is being used to restore a PVC";
            self.common.recorder.warning(snapshot, "SnapshotDeletePending", message);
            // The claim's end, or its volume, wakes the snapshot.
            return Ok(Action::AwaitChange);
        }
        let api: Api<VolumeSnapshotContent> = Api::all(self.common.client.clone());
        let live = api.get_opt(&named(snapshot)).await?;
        let live = live.filter(|live| {
            live.spec.volume_snapshot_ref.uid == uid(snapshot) && self.taker.serves(&live.spec.driver)
        });
        if let Some(live) = live {
            if facts::annotation(&live, BEING_DELETED).is_none() {
                let annotations = json!({ BEING_DELETED: "yes" });
                let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
                api.patch(&live.name_any(), &PatchParams::default(), &patch).await?;
            }
            if live.spec.deletion_policy == "Delete" {
                if !deleting(&live) {
                    api.delete(&live.name_any(), &DeleteParams::default()).await?;
                }
                // Its end wakes the snapshot.
                return Ok(Action::AwaitChange);
            }
        }
        self.release(snapshot).await?;
        let rest = snapshot.finalizers().iter().filter(|finalizer| *finalizer != SNAPSHOT_FINALIZER).cloned();
        self.write_finalizers(snapshot, rest.collect()).await
    }

    /// Whether a claim waits for a volume that is made of it.
    fn is_being_restored(&self, snapshot: &VolumeSnapshot) -> bool {
        let namespace = snapshot.namespace().unwrap_or_default();
        self.common.claims.iter_in(&namespace).any(|claim| {
            let source = claim.spec.as_ref().and_then(|spec| spec.data_source.as_ref());
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            let from_it = source.is_some_and(|source| {
                source.kind == "VolumeSnapshot"
                    && source.api_group.as_deref() == Some(crate::snapshot_api::GROUP)
                    && source.name == snapshot.name_any()
            });
            from_it && phase == Some("Pending") && !deleting(claim.as_ref())
        })
    }

    async fn keep(&self, snapshot: &VolumeSnapshot) -> Result<(), ReconcileError> {
        if snapshot.finalizers().iter().any(|finalizer| finalizer == SNAPSHOT_FINALIZER) {
            return Ok(());
        }
        let mut finalizers = snapshot.finalizers().to_vec();
        finalizers.push(SNAPSHOT_FINALIZER.to_owned());
        self.write_finalizers(snapshot, finalizers).await.map(drop)
    }

    /// Says once why there is no snapshot; it is looked at again when something changes.
    async fn refuse(
        &self,
        snapshot: &VolumeSnapshot,
        reason: &str,
        message: &str,
    ) -> Result<Action, ReconcileError> {
        if text(&snapshot.status["error"], "message") != Some(message) {
            self.common.recorder.warning(snapshot, reason, message);
            let error = json!({ "message": message, "time": Timestamp::now().to_string() });
            self.write_status(snapshot, json!({ "readyToUse": false, "error": error })).await?;
        }
        Ok(Action::AwaitChange)
    }

    fn api(&self, snapshot: &VolumeSnapshot) -> Api<VolumeSnapshot> {
        Api::namespaced(self.common.client.clone(), &snapshot.namespace().unwrap_or_default())
    }

    async fn write_finalizers(
        &self,
        snapshot: &VolumeSnapshot,
        finalizers: Vec<String>,
    ) -> Result<Action, ReconcileError> {
        let version = snapshot.resource_version();
        let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
        let api = self.api(snapshot);
        api.patch(&snapshot.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Action::AwaitChange)
    }

    async fn write_status(&self, snapshot: &VolumeSnapshot, status: Value) -> Result<(), ReconcileError> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(snapshot).patch_status(&snapshot.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// Whether it is taken of a claim; otherwise it was made elsewhere.
fn is_dynamic(snapshot: &VolumeSnapshot) -> bool {
    snapshot.spec.source.volume_snapshot_content_name.is_none()
}

/// The status of a snapshot with this content.
fn told(content: &VolumeSnapshotContent) -> Value {
    let said = &content.status;
    let ready = said["readyToUse"] == true;
    let mut status = json!({ "boundVolumeSnapshotContentName": content.name_any(), "readyToUse": ready });
    if let Some(bytes) = said["restoreSize"].as_i64() {
        status["restoreSize"] = coracle_api::Quantity::from_bytes(bytes).to_string().into();
    }
    if let Some(time) =
        said["creationTime"].as_i64().and_then(|at| Timestamp::from_nanosecond(at.into()).ok())
    {
        status["creationTime"] = time.round(jiff::Unit::Second).unwrap_or(time).to_string().into();
    }
    status["error"] = said["error"].clone();
    status
}
