//! The data of a snapshot: made, and removed.

use super::types::{VolumeSnapshotContent, text};
use super::{CONTENT_FINALIZER, Snapshots};
use crate::facts::{self, LOCAL_PATH};
use crate::local_path::job::Job;
use crate::local_path::plan;
use crate::local_path::work::{Home, Outcome};
use coracle_client::informer::deleting;
use coracle_client::{Next, ReconcileError};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

impl Snapshots {
    pub(super) async fn sync_content(&self, name: &str) -> Result<Next, ReconcileError> {
        let Some(content) = self.contents.get("", name).filter(|content| content.spec.driver == LOCAL_PATH)
        else {
            return Ok(Next::Done);
        };
        if deleting(content.as_ref()) {
            return self.remove(&content).await;
        }
        if content.status["readyToUse"] == true {
            return self.settle(&content).await;
        }
        self.make(&content).await
    }

    fn home(&self, content: &VolumeSnapshotContent) -> Option<(Home, String)> {
        let (hostname, directory) = content.spec.source.volume_handle.as_deref()?.split_once('/')?;
        Some((self.local.home_by_hostname(hostname)?, directory.to_owned()))
    }

    async fn make(&self, content: &VolumeSnapshotContent) -> Result<Next, ReconcileError> {
        let Some((home, from)) = self.home(content) else { return Ok(Next::Done) };
        let directory = directory(content);
        let job = Job::Make { directory: directory.clone(), from: Some(from.clone()), bytes: None };
        match self.local.work(&home, &directory, &job).await? {
            Outcome::Waits { .. } => Ok(Next::Done),
            Outcome::Failed { error, .. } => {
                let message = format!(
                    "Failed to check and update snapshot content: failed to take snapshot of the volume {from}: {error}"
                );
                self.local.recorder.warning(content, "SnapshotContentCheckandUpdateFailed", message.clone());
                let error = json!({ "message": message, "time": Timestamp::now().to_string() });
                self.write(content, json!({ "readyToUse": false, "error": error })).await?;
                Err(ReconcileError::Other(message))
            }
            Outcome::Done => {
                let path = home.root.join(&from).to_string_lossy().into_owned();
                let volume = self.local.volumes.iter().find(|volume| {
                    let place = volume.spec.as_ref().and_then(|spec| spec.host_path.as_ref());
                    plan::home(volume) == Some(&home.hostname)
                        && place.is_some_and(|place| place.path == path)
                });
                let capacity = volume.as_ref().and_then(|volume| volume.spec.as_ref()?.capacity.as_ref());
                let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
                self.write(
                    content,
                    json!({ "snapshotHandle": format!("{}/{directory}", home.hostname), "readyToUse": true,
                        "creationTime": now, "restoreSize": facts::storage(capacity).units(), "error": null }),
                )
                .await?;
                Ok(Next::Done)
            }
        }
    }

    /// What its node has said of it is taken away.
    async fn settle(&self, content: &VolumeSnapshotContent) -> Result<Next, ReconcileError> {
        let Some((home, _)) = self.home(content) else { return Ok(Next::Done) };
        self.local.close_if_answered(&home, &directory(content)).await?;
        Ok(Next::Done)
    }

    /// Not before its snapshot goes.
    async fn remove(&self, content: &VolumeSnapshotContent) -> Result<Next, ReconcileError> {
        let reference = &content.spec.volume_snapshot_ref;
        let snapshot = self.snapshots.get(&reference.namespace, &reference.name);
        if snapshot.is_some_and(|s| s.uid().as_ref() == Some(&reference.uid) && !deleting(s.as_ref())) {
            return Ok(Next::Done);
        }
        let delete = content.spec.deletion_policy == "Delete";
        // A node that is gone has taken its data with it.
        if let Some((home, _)) = self.home(content).filter(|_| delete) {
            let directory = directory(content);
            match self.local.work(&home, &directory, &Job::Remove { directory: directory.clone() }).await? {
                Outcome::Waits { .. } => return Ok(Next::Done),
                Outcome::Failed { error, .. } => {
                    let message = format!("Failed to delete snapshot: {error}");
                    self.local.recorder.warning(content, "SnapshotDeleteError", message.clone());
                    return Err(ReconcileError::Other(message));
                }
                Outcome::Done => self.local.close_mail(&home, &directory).await?,
            }
        }
        let rest = content.finalizers().iter().filter(|finalizer| *finalizer != CONTENT_FINALIZER);
        let patch = json!({ "metadata": { "finalizers": rest.collect::<Vec<_>>() } });
        let api: Api<VolumeSnapshotContent> = Api::all(self.local.client.clone());
        match api.patch(&content.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            written => drop(written?),
        }
        Ok(Next::Done)
    }

    async fn write(&self, content: &VolumeSnapshotContent, status: Value) -> Result<(), ReconcileError> {
        let api: Api<VolumeSnapshotContent> = Api::all(self.local.client.clone());
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(&content.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// The name of the snapshot's data on its node.
fn directory(content: &VolumeSnapshotContent) -> String {
    let made = text(&content.status, "snapshotHandle").and_then(|handle| handle.split_once('/'));
    let uid = &content.spec.volume_snapshot_ref.uid;
    made.map_or_else(|| format!("snapshot-{uid}"), |(_, directory)| directory.to_owned())
}
