//! Taking volumes away: from a pod, and from the node once no pod has them.

use super::host::Mounter;
use super::record::{Record, Records};
use super::{VolumeError, Volumes, blocking, empty_dir};
use crate::beneath::remove_below;
use crate::quota;
use std::path::Path;

impl Volumes {
    /// Releases the pod's volumes, then unmounts and removes everything of it. Idempotent. Never deletes through a mount:
    /// what cannot be unmounted is an error, and stays.
    pub async fn tear_down(&self, uid: &str) -> Result<(), VolumeError> {
        self.release(uid).await?;
        let dir = self.pod_dir(uid);
        self.unmount(&dir).await?;
        let (host, pods_dir) = (self.host.clone(), self.pods_dir.clone());
        blocking(move || {
            let projects = empty_dir::projects(host.projects(), &dir.join("volumes"));
            remove_below(&pods_dir, &dir).map_err(|error| VolumeError::io("remove", &dir, error))?;
            quota::release(host.projects(), &pods_dir, &projects);
            Ok(())
        })
        .await
    }

    /// Takes from the pod what others may wait for: volumes that do not simply go with its directory. For pods whose
    /// containers have ended. A volume that cannot be unstaged is left to [`Volumes::unstage_unused`], and keeps no pod.
    pub async fn release(&self, uid: &str) -> Result<(), VolumeError> {
        let of = uid.to_owned();
        for record in self.on_disk(move |records| records.read(&of)).await? {
            let _lock = self.locks.lock(&record.unique).await;
            self.published.lock().remove(&(uid.to_owned(), record.volume.clone()));
            self.plugin(&record.plugin)?.unpublish(&record).await?;
            // What lies outside was there before the pod, and stays as it is.
            let ours = [self.pod_dir(uid), self.records.root.join("plugins")];
            if ours.iter().any(|dir| record.path.starts_with(dir)) {
                self.unmount(&record.path).await?;
            }
            let (of, released) = (uid.to_owned(), record.clone());
            self.on_disk(move |records| records.remove(&of, &released)).await?;
            if let Err(error) = self.unstage_if_unused(&record).await {
                tracing::warn!(volume = record.unique, %error, "volume not unstaged, trying again");
            }
            if record.attached {
                self.count_in_use().await;
            }
        }
        Ok(())
    }

    /// Unstages what no pod has: volumes whose last pod went while that was not possible, or while nobody looked. Returns
    /// what failed; call it again.
    pub async fn unstage_unused(&self) -> Vec<VolumeError> {
        let staged = match self.on_disk(Records::staged).await {
            Ok(staged) => staged,
            Err(error) => return vec![error],
        };
        let mut failed = Vec::new();
        for record in staged {
            let _lock = self.locks.lock(&record.unique).await;
            failed.extend(self.unstage_if_unused(&record).await.err());
            self.count_in_use().await;
        }
        failed
    }

    /// The caller holds the volume's lock.
    async fn unstage_if_unused(&self, record: &Record) -> Result<(), VolumeError> {
        if !record.staged {
            return Ok(());
        }
        let all = self.on_disk(Records::all).await?;
        if all.iter().any(|(_, other)| other.unique == record.unique) {
            return Ok(());
        }
        self.staged.lock().remove(&record.unique);
        self.plugin(&record.plugin)?.unstage(record).await?;
        let unstaged = record.clone();
        self.on_disk(move |records| records.remove_staged(&unstaged)).await
    }

    async fn unmount(&self, dir: &Path) -> Result<(), VolumeError> {
        let (host, dir) = (self.host.clone(), dir.to_owned());
        blocking(move || unmount_below(host.as_ref(), &dir)).await
    }
}

/// Unmounts everything at or below `dir`, the deepest first, until nothing is left (mounts may be stacked).
pub(crate) fn unmount_below(host: &dyn Mounter, dir: &Path) -> Result<(), VolumeError> {
    let mut mounts = host.mounts()?.below(dir);
    mounts.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in mounts {
        host.unmount(&path)?;
    }
    match host.mounts()?.below(dir).first() {
        None => Ok(()),
        Some(path) => Err(VolumeError::StillMounted { path: path.clone() }),
    }
}
