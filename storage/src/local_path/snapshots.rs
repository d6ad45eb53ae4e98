//! Snapshots of local-path volumes: copies on the same node, of which other claims are made.

use super::job::Job;
use super::work::{Home, Outcome};
use super::{LocalPath, mail, moving, plan};
use crate::facts::{self, LOCAL_PATH};
use crate::snapshots::{
    Common, Everything, Key, Snapshots, TakeError, Taken, Taker, VolumeSnapshotClass, VolumeSnapshotContent,
    text,
};
use coracle_client::{Controller, ReconcileError, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;

impl LocalPath {
    /// What snapshots of its volumes are worked on with.
    pub(crate) fn common(&self) -> Common {
        Common {
            client: self.client.clone(),
            recorder: self.recorder.clone(),
            claims: self.claims.clone(),
            volumes: self.volumes.clone(),
        }
    }

    fn source(&self, content: &VolumeSnapshotContent) -> Option<(Home, String)> {
        let (hostname, directory) = content.spec.source.volume_handle.as_deref()?.split_once('/')?;
        Some((self.home_by_hostname(hostname)?, directory.to_owned()))
    }

    fn taken(&self, home: &Home, from: &str, directory: &str) -> Taken {
        let path = home.root.join(from).to_string_lossy().into_owned();
        let volume = self.volumes.iter().find(|volume| {
            let place = volume.spec.as_ref().and_then(|spec| spec.host_path.as_ref());
            plan::home(volume) == Some(&home.hostname) && place.is_some_and(|place| place.path == path)
        });
        let capacity = volume.as_ref().and_then(|volume| volume.spec.as_ref()?.capacity.as_ref());
        Taken::Cut {
            handle: format!("{}/{directory}", home.hostname),
            ready: true,
            created: i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX),
            restore_bytes: facts::storage(capacity).units(),
        }
    }
}

impl Taker for LocalPath {
    fn serves(&self, driver: &str) -> bool {
        driver == LOCAL_PATH
    }

    async fn is_bound_elsewhere(&self) -> Result<bool, kube::Error> {
        Ok(false)
    }

    /// The node and the directory of the claim's volume, as `<hostname>/<directory>`.
    fn handle(&self, _: &str, claim: &str, volume: &PersistentVolume) -> Result<String, String> {
        if moving::is_held(volume) {
            return Err(format!("the volume of the PVC {claim} is being moved"));
        }
        let handle = plan::home(volume).and_then(|hostname| {
            let home = self.home_by_hostname(hostname)?;
            Some(format!("{hostname}/{}", plan::directory_of(volume, &home.root)?))
        });
        handle.ok_or_else(|| format!("the volume of the PVC {claim} is not of local-path"))
    }

    async fn take(
        &self,
        content: &VolumeSnapshotContent,
        _: Option<&VolumeSnapshotClass>,
    ) -> Result<Taken, TakeError> {
        if content.spec.source.volume_handle.is_none() {
            let why = "local-path has no snapshots that were made elsewhere";
            return Err(TakeError::Told(why.to_owned()));
        }
        let Some((home, from)) = self.source(content) else { return Ok(Taken::Waits) };
        let directory = directory(content);
        let job =
            Job::Make { directory: directory.clone(), from: Some(from.clone()), bytes: None, quota: None };
        match self.work(&home, &directory, &job).await? {
            Outcome::Waits { .. } => Ok(Taken::Waits),
            Outcome::Failed { error, .. } => {
                Err(TakeError::Told(format!("failed to take snapshot of the volume {from}: {error}")))
            }
            Outcome::Done => Ok(self.taken(&home, &from, &directory)),
        }
    }

    async fn delete(
        &self,
        content: &VolumeSnapshotContent,
        _: Option<&VolumeSnapshotClass>,
    ) -> Result<bool, TakeError> {
        // A node that is gone has taken its data with it.
        let Some((home, _)) = self.source(content) else { return Ok(true) };
        let directory = directory(content);
        match self.work(&home, &directory, &Job::Remove { directory: directory.clone() }).await? {
            Outcome::Waits { .. } => return Ok(false),
            Outcome::Failed { error, .. } => return Err(TakeError::Told(error)),
            Outcome::Done => self.close_mail(&home, &directory).await?,
        }
        Ok(true)
    }

    /// What its node has said of it is taken away.
    async fn settle(&self, content: &VolumeSnapshotContent) -> Result<(), ReconcileError> {
        let Some((home, _)) = self.source(content) else { return Ok(()) };
        self.close_if_answered(&home, &directory(content)).await
    }

    fn wire(
        &self,
        controller: Controller<Snapshots<Self>>,
        _: &WorkQueue<Key>,
        _: Everything,
    ) -> Controller<Snapshots<Self>> {
        controller.watch(&self.nodes, |delta| {
            let answered = delta.new.iter().flat_map(|node| mail::answered(node));
            let of_snapshots = answered.filter_map(|name| name.strip_prefix("snapshot-"));
            of_snapshots.map(|uid| Key::Content(format!("snapcontent-{uid}"))).collect::<Vec<_>>()
        })
    }
}

/// The name of the snapshot's data on its node.
fn directory(content: &VolumeSnapshotContent) -> String {
    let made = text(&content.status, "snapshotHandle").and_then(|handle| handle.split_once('/'));
    let uid = &content.spec.volume_snapshot_ref.uid;
    made.map_or_else(|| format!("snapshot-{uid}"), |(_, directory)| directory.to_owned())
}
