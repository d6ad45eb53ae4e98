//! Snapshots of local-path volumes: copies on the same node, of which other claims are made.
//!
//! It works while the definitions of upstream's snapshot resources are installed ([`DEFINITIONS`]), and on those VolumeSnapshots
//! alone whose class names `coracle.io/local-path` as its driver; all others are for upstream's snapshot-controller and the
//! drivers' sidecars. Names, finalizers, statuses and events are upstream's.
//! <https://kubernetes.io/docs/concepts/storage/volume-snapshots/>

mod content;
mod types;

use crate::facts::LOCAL_PATH;
use crate::local_path::{LocalPath, plan};
use coracle_client::informer::deleting;
use coracle_client::{
    Context, Controller, FollowedObject, Informer, Informers, Next, ObjectKey, ReconcileError, Reconciler,
};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::fmt;
use types::{
    ContentSource, ContentSpec, SnapshotRef, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, text,
};

/// The definitions of the resources, as a manifest.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");

const SNAPSHOT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
const CONTENT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// The definition that is made last; all are there with it.
const LAST_DEFINITION: &str = "volumesnapshots.snapshot.storage.k8s.io";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
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

struct Snapshots {
    local: LocalPath,
    snapshots: Informer<VolumeSnapshot>,
    contents: Informer<VolumeSnapshotContent>,
    classes: Informer<VolumeSnapshotClass>,
}

/// Runs until `context.stop` is cancelled, whenever the definitions are installed.
pub async fn run(context: &Context, local: LocalPath) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definition =
        FollowedObject::<CustomResourceDefinition>::new(context.client.clone(), definitions, LAST_DEFINITION);
    let work = async {
        let mut running = None;
        loop {
            let there = definition.next().await.is_some_and(|definition| is_served(&definition));
            if !there {
                running = None;
            } else if running.is_none() {
                let stop = context.stop.child_token();
                tokio::spawn(control(context.client.clone(), local.clone(), stop.clone()));
                running = Some(stop.drop_guard());
            }
        }
    };
    context.stop.run_until_cancelled(work).await;
}

fn is_served(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Established" && c.status == "True")
}

async fn control(client: kube::Client, local: LocalPath, stop: tokio_util::sync::CancellationToken) {
    let informers = Informers::new(client, stop.clone());
    let this = Snapshots {
        local: local.clone(),
        snapshots: informers.of(),
        contents: informers.of(),
        classes: informers.of(),
    };
    let (snapshots, contents, classes) =
        (this.snapshots.clone(), this.contents.clone(), this.classes.clone());
    let of_class = {
        let snapshots = snapshots.clone();
        move || snapshots.iter().map(|s| Key::Snapshot(ObjectKey::of(s.as_ref()))).collect::<Vec<_>>()
    };
    let of_claim = of_class.clone();
    Controller::new(this)
        .watch(&snapshots, |delta| {
            let object = delta.object();
            let content = object.map(|snapshot| Key::Content(content_name(snapshot)));
            object.map(|snapshot| Key::Snapshot(ObjectKey::of(snapshot.as_ref()))).into_iter().chain(content)
        })
        .watch(&contents, |delta| {
            let object = delta.object();
            let reference = object.map(|content| &content.spec.volume_snapshot_ref);
            let snapshot = reference.map(|r| Key::Snapshot(ObjectKey::new(&r.namespace, &r.name)));
            object.map(|content| Key::Content(content.name_any())).into_iter().chain(snapshot)
        })
        .watch(&classes, move |_| of_class())
        .watch(&local.nodes, |delta| {
            let answered = delta.new.iter().flat_map(|node| crate::local_path::mail::answered(node));
            let of_snapshots = answered.filter_map(|name| name.strip_prefix("snapshot-"));
            of_snapshots.map(|uid| Key::Content(format!("snapcontent-{uid}"))).collect::<Vec<_>>()
        })
        .watch(&local.claims, move |delta| {
            // One that is bound now may have been waited for.
            let bound = |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
                crate::facts::volume_name(claim).is_some()
            };
            let now = delta.new.as_ref().is_some_and(|claim| bound(claim));
            let before = delta.old.as_ref().is_some_and(|claim| bound(claim));
            if now && !before { of_claim() } else { Vec::new() }
        })
        .run(stop)
        .await;
}

fn uid(snapshot: &VolumeSnapshot) -> String {
    snapshot.uid().unwrap_or_default()
}

/// Upstream's name.
fn content_name(snapshot: &VolumeSnapshot) -> String {
    format!("snapcontent-{}", uid(snapshot))
}

impl Reconciler for Snapshots {
    type Key = Key;
    const PATIENCE: Option<coracle_client::beat::Patience> = None;

    fn name(&self) -> &'static str {
        "snapshot-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, ReconcileError> {
        match key {
            Key::Snapshot(key) => self.sync_snapshot(key).await,
            Key::Content(name) => self.sync_content(name).await,
        }
    }
}

impl Snapshots {
    async fn sync_snapshot(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(snapshot) = self.snapshots.get_key(key) else { return Ok(Next::Done) };
        let content = self.contents.get("", &content_name(&snapshot));
        if deleting(snapshot.as_ref()) {
            return self.end(&snapshot, content.as_deref()).await;
        }
        match content {
            Some(content) if content.spec.driver == LOCAL_PATH => self.follow(&snapshot, &content).await,
            Some(_) => Ok(Next::Done),
            None => self.begin(&snapshot).await,
        }
    }

    /// The class that the snapshot names, or the default one; `None` where that is another driver's.
    fn class_of(&self, snapshot: &VolumeSnapshot) -> Option<VolumeSnapshotClass> {
        let all = self.classes.list();
        let mut ours = all.iter().filter(|class| class.driver == LOCAL_PATH);
        let class = match &snapshot.spec.volume_snapshot_class_name {
            Some(name) => ours.find(|class| class.name_any() == *name),
            None => ours.find(|class| class.annotations().get(DEFAULT_CLASS).is_some_and(|is| is == "true")),
        };
        class.map(|class| VolumeSnapshotClass::clone(class))
    }

    async fn begin(&self, snapshot: &VolumeSnapshot) -> Result<Next, ReconcileError> {
        let Some(class) = self.class_of(snapshot) else { return Ok(Next::Done) };
        let handle = match self.source(snapshot) {
            Ok(handle) => handle,
            // Of a volume of another driver; a default class is not meant for it.
            Err(_) if snapshot.spec.volume_snapshot_class_name.is_none() => return Ok(Next::Done),
            Err(why) => {
                let message = format!("Failed to create snapshot content with error {why}");
                self.local.recorder.warning(snapshot, "SnapshotContentCreationFailed", message.clone());
                let error = json!({ "message": message, "time": Timestamp::now().to_string() });
                self.write_status(snapshot, json!({ "readyToUse": false, "error": error })).await?;
                return Ok(Next::Done);
            }
        };
        self.keep(snapshot).await?;
        let name = content_name(snapshot);
        let content = VolumeSnapshotContent {
            api_version: "snapshot.storage.k8s.io/v1".to_owned(),
            kind: "VolumeSnapshotContent".to_owned(),
            metadata: ObjectMeta {
                name: Some(name.clone()),
                finalizers: Some(vec![CONTENT_FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: ContentSpec {
                driver: LOCAL_PATH.to_owned(),
                deletion_policy: class.deletion_policy.clone(),
                volume_snapshot_class_name: Some(class.name_any()),
                source: ContentSource { volume_handle: Some(handle), snapshot_handle: None },
                volume_snapshot_ref: SnapshotRef {
                    api_version: "snapshot.storage.k8s.io/v1".to_owned(),
                    kind: "VolumeSnapshot".to_owned(),
                    namespace: snapshot.namespace().unwrap_or_default(),
                    name: snapshot.name_any(),
                    uid: uid(snapshot),
                },
            },
            status: json!({ "readyToUse": false }),
        };
        let api: Api<VolumeSnapshotContent> = Api::all(self.local.client.clone());
        match api.create(&PostParams::default(), &content).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created?),
        }
        let key = ObjectKey::of(snapshot);
        let message = format!("Waiting for a snapshot {key} to be created by the CSI driver.");
        self.local.recorder.normal(snapshot, "CreatingSnapshot", message);
        let status = json!({ "boundVolumeSnapshotContentName": name, "readyToUse": false, "error": null });
        self.write_status(snapshot, status).await?;
        Ok(Next::Done)
    }

    /// The node and the directory of the claim's volume, as `<hostname>/<directory>`.
    fn source(&self, snapshot: &VolumeSnapshot) -> Result<String, String> {
        let Some(name) = &snapshot.spec.source.persistent_volume_claim_name else {
            return Err("local-path has no snapshots that were made elsewhere".to_owned());
        };
        let local = &self.local;
        let claim = local.claims.get(&snapshot.namespace().unwrap_or_default(), name);
        let claim = claim.ok_or_else(|| format!("the PVC {name} is not there"))?;
        let volume = crate::facts::volume_name(&claim).and_then(|name| local.volumes.get("", name));
        let volume = volume.ok_or_else(|| format!("the PVC {name} is not yet bound to a PV"))?;
        let handle = plan::home(&volume).and_then(|hostname| {
            let home = local.home_by_hostname(hostname)?;
            Some(format!("{hostname}/{}", plan::directory_of(&volume, &home.root)?))
        });
        handle.ok_or_else(|| format!("the volume of the PVC {name} is not of local-path"))
    }

    /// Says of the snapshot what its content says.
    async fn follow(
        &self,
        snapshot: &VolumeSnapshot,
        content: &VolumeSnapshotContent,
    ) -> Result<Next, ReconcileError> {
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
        let fields = status.as_object().into_iter().flatten();
        if fields.into_iter().all(|(field, value)| snapshot.status[field] == *value) {
            return Ok(Next::Done);
        }
        self.write_status(snapshot, status).await?;
        if ready && snapshot.status["readyToUse"] != true {
            let message = format!("Snapshot {} is ready to use.", ObjectKey::of(snapshot));
            self.local.recorder.normal(snapshot, "SnapshotReady", message);
        }
        Ok(Next::Done)
    }

    /// Its content goes first, unless it is kept.
    async fn end(
        &self,
        snapshot: &VolumeSnapshot,
        content: Option<&VolumeSnapshotContent>,
    ) -> Result<Next, ReconcileError> {
        if !snapshot.finalizers().iter().any(|finalizer| finalizer == SNAPSHOT_FINALIZER)
            || content.is_some_and(|content| content.spec.driver != LOCAL_PATH)
            || content.is_none()
                && self.class_of(snapshot).is_none()
                && text(&snapshot.status, "boundVolumeSnapshotContentName").is_none()
        {
            return Ok(Next::Done);
        }
        let api: Api<VolumeSnapshotContent> = Api::all(self.local.client.clone());
        let live = api.get_opt(&content_name(snapshot)).await?;
        if let Some(live) = live.filter(|live| live.spec.deletion_policy == "Delete") {
            if !deleting(&live) {
                api.delete(&live.name_any(), &DeleteParams::default()).await?;
            }
            // Its end wakes the snapshot.
            return Ok(Next::Done);
        }
        let rest = snapshot.finalizers().iter().filter(|finalizer| *finalizer != SNAPSHOT_FINALIZER).cloned();
        self.write_finalizers(snapshot, rest.collect()).await
    }

    async fn keep(&self, snapshot: &VolumeSnapshot) -> Result<(), ReconcileError> {
        if snapshot.finalizers().iter().any(|finalizer| finalizer == SNAPSHOT_FINALIZER) {
            return Ok(());
        }
        let mut finalizers = snapshot.finalizers().to_vec();
        finalizers.push(SNAPSHOT_FINALIZER.to_owned());
        self.write_finalizers(snapshot, finalizers).await.map(drop)
    }

    fn api(&self, snapshot: &VolumeSnapshot) -> Api<VolumeSnapshot> {
        Api::namespaced(self.local.client.clone(), &snapshot.namespace().unwrap_or_default())
    }

    async fn write_finalizers(
        &self,
        snapshot: &VolumeSnapshot,
        finalizers: Vec<String>,
    ) -> Result<Next, ReconcileError> {
        let version = snapshot.resource_version();
        let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
        let api = self.api(snapshot);
        api.patch(&snapshot.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Next::Done)
    }

    async fn write_status(&self, snapshot: &VolumeSnapshot, status: Value) -> Result<(), ReconcileError> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(snapshot).patch_status(&snapshot.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
