//! The contents of snapshots: what their taker takes, and deletes.

use super::control::{CONTENT_FINALIZER, Snapshots};
use super::taker::{TakeError, Taken, Taker};
use super::types::{VolumeSnapshotClass, VolumeSnapshotContent, text};
use coracle_client::informer::deleting;
use coracle_client::{Action, ReconcileError};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Between looks whether a snapshot that was taken can be restored from: a quarter of its age, within these. Shorter, and a
/// driver that uploads for hours is asked for nothing; longer, and a quick one is found ready late.
const READY_LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Between errors that are written. What is written wakes the content at once, and the words of a driver may be others each
/// time: shorter, and such a driver is asked without a pause.
const ERROR_RETRY_INTERVAL: Duration = Duration::from_secs(30);

fn is_news(said: &Value, message: &str) -> bool {
    let at = said["time"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let age = at.and_then(|at| Duration::try_from(Timestamp::now().duration_since(at)).ok());
    text(said, "message") != Some(message) && age.is_none_or(|age| age > ERROR_RETRY_INTERVAL)
}

fn until_looked(content: &VolumeSnapshotContent) -> Duration {
    let made = content.metadata.creation_timestamp.as_ref();
    let age = made.and_then(|made| Duration::try_from(Timestamp::now().duration_since(made.0)).ok());
    (age.unwrap_or_default() / 4).clamp(READY_LOOK.0, READY_LOOK.1)
}

impl<T: Taker> Snapshots<T> {
    pub(super) async fn sync_content(&self, name: &str) -> Result<Action, ReconcileError> {
        let content = self.contents.get("", name);
        let Some(content) = content.filter(|content| self.taker.serves(&content.spec.driver)) else {
            return Ok(Action::AwaitChange);
        };
        if deleting(content.as_ref()) {
            return self.remove(&content).await;
        }
        if content.status["readyToUse"] == true {
            self.taker.settle(&content).await?;
            return Ok(Action::AwaitChange);
        }
        // Of one that was made elsewhere, not before somebody has bound it.
        if content.spec.volume_snapshot_ref.uid.is_empty() {
            return Ok(Action::AwaitChange);
        }
        self.make(&content).await
    }

    fn class_of_content(&self, content: &VolumeSnapshotContent) -> Option<Arc<VolumeSnapshotClass>> {
        self.class(content.spec.volume_snapshot_class_name.as_deref()?)
    }

    async fn make(&self, content: &VolumeSnapshotContent) -> Result<Action, ReconcileError> {
        self.hold(content).await?;
        let class = self.class_of_content(content);
        match self.taker.take(content, class.as_deref()).await {
            Ok(Taken::Waits) => Ok(Action::AwaitChange),
            Ok(Taken::Cut { handle, ready, created, restore_bytes }) => {
                let status = json!({ "snapshotHandle": handle, "readyToUse": ready,
                    "creationTime": created, "restoreSize": restore_bytes, "error": null });
                self.write(content, status).await?;
                Ok(if ready { Action::AwaitChange } else { Action::RequeueAfter(until_looked(content)) })
            }
            Err(TakeError::Later(error)) => Err(error),
            Err(TakeError::Told(why)) => {
                let message = format!("Failed to check and update snapshot content: {why}");
                if is_news(&content.status["error"], &message) {
                    let reason = "SnapshotContentCheckandUpdateFailed";
                    self.common.recorder.warning(content, reason, message.clone());
                    let error = json!({ "message": message, "time": Timestamp::now().to_string() });
                    self.write(content, json!({ "readyToUse": false, "error": error })).await?;
                }
                Err(ReconcileError::Other(message))
            }
        }
    }

    /// One that an administrator made has no finalizer yet.
    async fn hold(&self, content: &VolumeSnapshotContent) -> Result<(), ReconcileError> {
        if content.finalizers().iter().any(|finalizer| finalizer == CONTENT_FINALIZER) {
            return Ok(());
        }
        let mut finalizers = content.finalizers().to_vec();
        finalizers.push(CONTENT_FINALIZER.to_owned());
        let version = content.resource_version();
        let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
        self.all().patch(&content.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Not before its snapshot goes.
    async fn remove(&self, content: &VolumeSnapshotContent) -> Result<Action, ReconcileError> {
        if !content.finalizers().iter().any(|finalizer| finalizer == CONTENT_FINALIZER) {
            return Ok(Action::AwaitChange);
        }
        let reference = &content.spec.volume_snapshot_ref;
        let snapshot = self.snapshots.get(&reference.namespace, &reference.name);
        if snapshot.is_some_and(|s| s.uid().as_ref() == Some(&reference.uid) && !deleting(s.as_ref())) {
            return Ok(Action::AwaitChange);
        }
        if content.spec.deletion_policy == "Delete" {
            let class = self.class_of_content(content);
            match self.taker.delete(content, class.as_deref()).await {
                Ok(true) => {}
                Ok(false) => return Ok(Action::AwaitChange),
                Err(TakeError::Later(error)) => return Err(error),
                Err(TakeError::Told(why)) => {
                    let message = format!("Failed to delete snapshot: {why}");
                    self.common.recorder.warning(content, "SnapshotDeleteError", message.clone());
                    return Err(ReconcileError::Other(message));
                }
            }
        }
        let rest = content.finalizers().iter().filter(|finalizer| *finalizer != CONTENT_FINALIZER);
        let patch = json!({ "metadata": { "finalizers": rest.collect::<Vec<_>>() } });
        match self.all().patch(&content.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            written => drop(written?),
        }
        Ok(Action::AwaitChange)
    }

    fn all(&self) -> Api<VolumeSnapshotContent> {
        Api::all(self.common.client.clone())
    }

    async fn write(&self, content: &VolumeSnapshotContent, status: Value) -> Result<(), ReconcileError> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.all().patch_status(&content.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
