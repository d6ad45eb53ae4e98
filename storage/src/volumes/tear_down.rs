//! Taking volumes away: from a pod, and from the node once no pod has them.

use super::book::{Timed, plugin_name};
use super::host::Mounter;
use super::record::{Record, Records};
use super::{VolumeError, Volumes, blocking, empty_dir, sub_path};
use crate::beneath::remove_below;
use crate::quota;
use std::path::Path;
use std::time::Instant;

/// Upstream's word for taking a volume from a pod.
const UNMOUNT: &str = "volume_unmount";

impl Volumes {
    /// Releases the pod's volumes, then unmounts and removes everything of it. Idempotent. Never deletes through a mount:
    /// what cannot be unmounted is an error, and stays.
    pub async fn tear_down(&self, uid: &str) -> Result<(), VolumeError> {
        self.release(uid).await?;
        let (pods_dir, dir) = (self.pods_dir.clone(), self.pod_dir(uid));
        blocking(move || {
            remove_below(&pods_dir, &dir).map_err(|error| VolumeError::io("remove", &dir, error))
        })
        .await
    }

    /// Takes all volumes from the pod: those that others may wait for, and then what lies in its own directory. For pods
    /// whose containers have ended for good, as upstream has it: what they had in memory takes the node's. A volume that
    /// cannot be unstaged is left to [`Volumes::unstage_unused`], and keeps no pod.
    pub async fn release(&self, uid: &str) -> Result<(), VolumeError> {
        self.book.unwant(uid);
        let of = uid.to_owned();
        for record in self.on_disk(move |records| records.read(&of)).await? {
            self.release_recorded(uid, &record).await?;
        }
        let began = Instant::now();
        let outcome = self.remove_volumes(uid).await;
        let (time, failed) = (began.elapsed(), outcome.is_err());
        if !failed {
            for plugin in self.book.all_gone(uid) {
                self.book.timed(Timed { operation: UNMOUNT, plugin, time, failed });
            }
        }
        outcome
    }

    /// What goes with the pod's directory goes together.
    async fn remove_volumes(&self, uid: &str) -> Result<(), VolumeError> {
        let dir = self.pod_dir(uid);
        self.unmount(&dir).await?;
        let (host, pods_dir) = (self.host.clone(), self.pods_dir.clone());
        blocking(move || {
            let volumes = dir.join("volumes");
            let projects = empty_dir::projects(host.projects(), &volumes);
            for part in [volumes, dir.join(sub_path::DIRECTORY)] {
                remove_below(&pods_dir, &part).map_err(|error| VolumeError::io("remove", &part, error))?;
            }
            quota::release(host.projects(), &pods_dir, &projects);
            Ok(())
        })
        .await
    }

    async fn release_recorded(&self, uid: &str, record: &Record) -> Result<(), VolumeError> {
        let _lock = self.locks.lock(&record.unique).await;
        let began = Instant::now();
        let outcome = self.unpublish(uid, record).await;
        let (time, failed) = (began.elapsed(), outcome.is_err());
        let plugin = plugin_name(&record.plugin, Some(record));
        self.book.timed(Timed { operation: UNMOUNT, plugin, time, failed });
        outcome?;
        self.book.gone(uid, &record.volume);
        if let Err(error) = self.unstage_if_unused(record).await {
            tracing::warn!(volume = record.unique, %error, "volume not unstaged, trying again");
        }
        if record.attached {
            self.count_in_use().await;
        }
        Ok(())
    }

    /// The caller holds the volume's lock.
    async fn unpublish(&self, uid: &str, record: &Record) -> Result<(), VolumeError> {
        self.published.lock().remove(&(uid.to_owned(), record.volume.clone()));
        self.plugin(&record.plugin)?.unpublish(record).await?;
        // What lies outside was there before the pod, and stays as it is.
        let ours = [self.pod_dir(uid), self.records.root.join("plugins")];
        if ours.iter().any(|dir| record.path.starts_with(dir)) {
            self.unmount(&record.path).await?;
        }
        let (of, released) = (uid.to_owned(), record.clone());
        self.on_disk(move |records| records.remove(&of, &released)).await
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
        let began = Instant::now();
        let outcome = self.plugin(&record.plugin)?.unstage(record).await;
        let (time, failed) = (began.elapsed(), outcome.is_err());
        let plugin = plugin_name(&record.plugin, Some(record));
        self.book.timed(Timed { operation: "unmount_device", plugin, time, failed });
        outcome?;
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
