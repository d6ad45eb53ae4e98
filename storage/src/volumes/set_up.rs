//! Setting up the volumes of a pod.

use super::book::{Timed, plugin_name};
use super::plugin::{Mounted, Request, VolumePlugin};
use super::record::{Record, Records};
use super::resolve::{Source, resolve};
use super::{VolumeError, Volumes, downward, host};
use coracle_api::Quantity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between looks whether a volume has grown; a claim that grows waits so long for its file system to follow.
const GROWTH_INTERVAL: Duration = Duration::from_secs(30);

/// How long a set-up waits for the Node to say that a volume is in use. It is written at once where the API server answers.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// A volume of a pod that could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
pub struct SetUpError {
    pub volume: String,
    #[source]
    pub source: VolumeError,
}

/// Something about a volume that the pod's events are to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

/// What became of a pod's volumes.
#[derive(Debug, Default)]
pub struct SetUp {
    /// By the pod's names of them.
    pub mounted: BTreeMap<String, Mounted>,
    pub failed: Vec<SetUpError>,
    pub notes: Vec<Note>,
}

/// What a set-up is told beside the volume.
#[derive(Clone, Copy)]
struct Circumstances<'a> {
    pod: &'a Pod,
    allocatable: &'a downward::Allocatable,
    first: bool,
    now: Timestamp,
}

impl Volumes {
    /// Sets up every volume of the pod, all of them even when one fails. `first` until a container of the pod was started.
    pub async fn set_up(
        &self,
        pod: &Pod,
        allocatable: &downward::Allocatable,
        first: bool,
        now: Timestamp,
    ) -> SetUp {
        let of = Circumstances { pod, allocatable, first, now };
        let mut done = SetUp::default();
        for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
            match Box::pin(self.set_up_one(of, volume, &mut done)).await {
                Ok(mounted) => {
                    done.mounted.insert(volume.name.clone(), mounted);
                }
                Err(source) => done.failed.push(SetUpError { volume: volume.name.clone(), source }),
            }
        }
        done
    }

    async fn set_up_one(
        &self,
        of: Circumstances<'_>,
        volume: &Volume,
        done: &mut SetUp,
    ) -> Result<Mounted, VolumeError> {
        let spec = resolve(self.objects.as_ref(), of.pod, volume).await?;
        if of.first {
            self.check_node(&spec)?;
        }
        let plugin = self.plugins.iter().find(|p| p.supports(&spec));
        let plugin = plugin.ok_or_else(|| VolumeError::NoPlugin { kind: spec.kind() })?.as_ref();
        let uid = of.pod.metadata.uid.as_deref().unwrap_or_default();
        let parent = self.pod_dir(uid).join("volumes").join(plugin.name().replace('/', "~"));
        host::make_dir_all(&parent, 0o750)?;
        let request = Request {
            pod: of.pod,
            volume,
            spec: &spec,
            dir: parent.join(&spec.name),
            allocatable: of.allocatable,
            host: &self.host,
            objects: self.objects.as_ref(),
            now: of.now,
            first: of.first,
        };
        let (began, prepared) = (Instant::now(), plugin.prepare(&request).await);
        let name = plugin_name(plugin.name(), prepared.as_ref().ok().and_then(Option::as_ref));
        let known = self.book.want(uid, &volume.name, &name);
        let mounted = match prepared {
            Ok(None) => plugin.publish(&request, None).await,
            Ok(Some(record)) => self.set_up_recorded(plugin, &request, record, &mut done.notes).await,
            Err(error) => Err(error),
        };
        if !known {
            let (time, failed) = (began.elapsed(), mounted.is_err());
            self.book.timed(Timed { operation: "volume_mount", plugin: name, time, failed });
        }
        let mounted = mounted?;
        self.book.stands(uid, &volume.name);
        Ok(Mounted { read_only: mounted.read_only || spec.read_only, ..mounted })
    }

    /// First the record, then the step that it is of: whatever happens in between, the volume is taken away again.
    async fn set_up_recorded(
        &self,
        plugin: &dyn VolumePlugin,
        request: &Request<'_>,
        record: Record,
        notes: &mut Vec<Note>,
    ) -> Result<Mounted, VolumeError> {
        let claim = request.spec.claim().and_then(|claim| claim.metadata.name.clone()).unwrap_or_default();
        let record = Record { volume: request.volume.name.clone(), claim, ..record };
        let uid = request.uid();
        let key = (uid.to_owned(), record.volume.clone());
        let _lock = self.locks.lock(&record.unique).await;
        let known = self.published.lock().get(&key).cloned();
        if known.is_none() && request.spec.is_of_one_pod() {
            self.refuse_second_pod(uid, &record).await?;
        }
        let mut mounted = match known.filter(|_| !plugin.republishes(&record)) {
            Some(mounted) => mounted,
            None => self.stage_and_publish(plugin, request, &record).await?,
        };
        self.published.lock().insert(key, mounted.clone());
        if self.grow(plugin, request, &record, notes).await {
            let due = mounted.refresh_after.map_or(GROWTH_INTERVAL, |due| due.min(GROWTH_INTERVAL));
            mounted.refresh_after = Some(due);
        }
        Ok(mounted)
    }

    /// Who has a volume of one pod keeps it until it has been taken away from it, whoever placed another pod here. The
    /// caller holds the volume's lock.
    async fn refuse_second_pod(&self, uid: &str, record: &Record) -> Result<(), VolumeError> {
        let all = self.on_disk(Records::all).await?;
        let taken = all.iter().any(|(other, theirs)| other != uid && theirs.unique == record.unique);
        if taken { Err(VolumeError::UsedByAnotherPod) } else { Ok(()) }
    }

    async fn stage_and_publish(
        &self,
        plugin: &dyn VolumePlugin,
        request: &Request<'_>,
        record: &Record,
    ) -> Result<Mounted, VolumeError> {
        let (uid, written) = (request.uid().to_owned(), record.clone());
        self.on_disk(move |records| records.write(&uid, &written)).await?;
        if record.attached {
            self.count_in_use().await;
            self.until_reported(&record.unique).await?;
        }
        if record.staged && !self.staged.lock().contains(&record.unique) {
            let written = record.clone();
            self.on_disk(move |records| records.write_staged(&written)).await?;
            plugin.stage(request, record).await?;
            self.staged.lock().insert(record.unique.clone());
        }
        let published = plugin.publish(request, Some(record)).await;
        if let Err(VolumeError::Call(refused)) = &published
            && refused.code() == Some(tonic::Code::FailedPrecondition)
        {
            // A driver that was started anew, or that lied, has nothing staged: the next attempt stages again.
            self.staged.lock().remove(&record.unique);
        }
        published
    }

    async fn until_reported(&self, unique: &str) -> Result<(), VolumeError> {
        let mut reported = self.reported.subscribe();
        let wait = reported.wait_for(|known| known.contains(unique));
        let told = tokio::time::timeout(REPORT_TIMEOUT, wait).await.is_ok_and(|told| told.is_ok());
        if told { Ok(()) } else { Err(VolumeError::NotReported(unique.to_owned())) }
    }

    /// Lets a volume that is larger than its claim knows grow. Whether such a volume may grow at all.
    async fn grow(
        &self,
        plugin: &dyn VolumePlugin,
        request: &Request<'_>,
        record: &Record,
        notes: &mut Vec<Note>,
    ) -> bool {
        let Source::Claimed { volume, claim } = &request.spec.source else { return false };
        let wanted = crate::facts::storage(volume.spec.as_ref().and_then(|s| s.capacity.as_ref()));
        let has = crate::facts::storage(claim.status.as_ref().and_then(|s| s.capacity.as_ref()));
        if has == Quantity::default() || wanted <= has {
            return plugin.grows(record);
        }
        let name = &request.spec.name;
        match plugin.expand(request, record, wanted.units()).await {
            Ok(None) => false,
            Ok(Some(_)) => {
                if let Err(error) = self.objects.expanded(claim, volume).await {
                    tracing::warn!(volume = name, %error, "the claim's new size is not written yet");
                    return true;
                }
                notes.push(Note {
                    warning: false,
                    reason: "FileSystemResizeSuccessful",
                    message: format!("MountVolume.NodeExpandVolume succeeded for volume {name:?}"),
                });
                true
            }
            Err(error) => {
                let message = format!("MountVolume.NodeExpandVolume failed for volume {name:?} : {error}");
                if let VolumeError::Call(refused) = &error
                    && refused.is_infeasible()
                    && let Err(error) = self.objects.expansion_refused(claim, &message).await
                {
                    tracing::warn!(volume = name, %error, "that the claim cannot grow is not written yet");
                }
                notes.push(Note { warning: true, reason: "VolumeResizeFailed", message });
                true
            }
        }
    }
}
