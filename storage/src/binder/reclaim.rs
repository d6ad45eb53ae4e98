//! What becomes of a released volume, by its policy: kept, scrubbed by a pod and offered again, or deleted.
//!
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#reclaiming>

use super::Binder;
use crate::beneath::remove_below;
use crate::facts;
use coracle_api::pod::is_terminal;
use coracle_client::{Action, ReconcileError};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where recyclers run; upstream's.
const NAMESPACE: &str = "default";
const PREFIX: &str = "recycler-for-";
/// Anything with a shell and `find`; upstream's, so that a machine may have it already.
const IMAGE: &str = "registry.k8s.io/build-image/debian-base:bookworm-v1.0.4";
const SCRUB: &str =
    r#"test -e /scrub && find /scrub -mindepth 1 -delete && test -z "$(ls -A /scrub)" || exit 1"#;
/// Until something that failed, or cannot be yet, is tried again; upstream's --pvclaimbinder-sync-period.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(15);
/// Until it is seen whether a directory is gone.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes for which a recycler gets another [`Scrub::per_gib`] seconds.
const GIB: i64 = 1 << 30;

/// What a volume's policy asks for once its claim is gone.
#[derive(Debug, PartialEq)]
enum Reclaim {
    /// Nobody shall, or its own provisioner does.
    Leave,
    Recycle(Scrub),
    /// This directory of this machine, then the object.
    Delete(PathBuf),
    /// Nobody can: reason and message of the event, the latter also for the status.
    Fail(&'static str, String),
}

/// A volume as a recycler mounts it, and seconds: the least it gets, and more for each GiB. Upstream's
/// --pv-recycler-minimum-timeout-* and --pv-recycler-(increment-)timeout-*.
#[derive(Debug, PartialEq)]
struct Scrub {
    source: Value,
    least: i64,
    per_gib: i64,
}

fn wanted(volume: &PersistentVolume) -> Reclaim {
    let spec = volume.spec.as_ref();
    let path = spec.and_then(|s| s.host_path.as_ref()).map(|h| h.path.as_str());
    match facts::reclaim_policy(volume) {
        "Retain" => Reclaim::Leave,
        "Recycle" => match (path, spec.and_then(|s| s.nfs.as_ref())) {
            (Some(path), _) => Reclaim::Recycle(Scrub {
                source: json!({ "hostPath": { "path": path } }),
                least: 60,
                per_gib: 30,
            }),
            (None, Some(nfs)) => {
                // Upstream's recycler has these two alone: it writes whatever `readOnly` says.
                let source = json!({ "nfs": { "server": nfs.server, "path": nfs.path } });
                Reclaim::Recycle(Scrub { source, least: 300, per_gib: 30 })
            }
            (None, None) => {
                Reclaim::Fail(FAILED_RECYCLE, "No recycler plugin found for the volume!".to_owned())
            }
        },
        _ if facts::annotation(volume, facts::PROVISIONED_BY).is_some() => Reclaim::Leave,
        _ => match path {
            Some(path) if is_scratch(Path::new(path)) => Reclaim::Delete(path.into()),
            // What somebody else made on this machine is not ours to remove.
            Some(path) => Reclaim::Fail(
                FAILED_DELETE,
                format!("host_path deleter only supports /tmp/.+ but received provided {path}"),
            ),
            None => {
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                let why = format!(
                    "error getting deleter volume plugin for volume \"{name}\": no deletable volume plugin matched"
                );
                Reclaim::Fail(FAILED_DELETE, why)
            }
        },
    }
}

const FAILED_DELETE: &str = "VolumeFailedDelete";
pub(super) const FAILED_RECYCLE: &str = "VolumeFailedRecycle";

/// Where directories lie that nobody minds; upstream's.
const SCRATCH: &str = "/tmp";

/// Below it, and not by way of `..`.
fn is_scratch(path: &Path) -> bool {
    let below = path.strip_prefix(SCRATCH).ok();
    below.is_some_and(|rest| {
        rest.components().next().is_some()
            && rest.components().all(|part| matches!(part, Component::Normal(_)))
    })
}

/// The volume that a pod recycles.
pub(super) fn volume_of(pod: &Pod) -> Option<&str> {
    let here = pod.metadata.namespace.as_deref() == Some(NAMESPACE);
    pod.metadata.name.as_deref().filter(|_| here)?.strip_prefix(PREFIX)
}

/// The pod that empties a volume.
fn recycler(volume: &PersistentVolume, scrub: &Scrub) -> Value {
    let capacity = facts::storage(volume.spec.as_ref().and_then(|s| s.capacity.as_ref()));
    let gib = capacity.units() / GIB;
    let mut source = json!({ "name": "vol" });
    if let (Some(volume), Some(source_of)) = (source.as_object_mut(), scrub.source.as_object()) {
        volume.extend(source_of.clone());
    }
    let container = json!({ "name": "pv-recycler", "image": IMAGE, "command": ["/bin/sh"], "args": ["-c", SCRUB],
        "volumeMounts": [{ "name": "vol", "mountPath": "/scrub" }] });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("{PREFIX}{}", volume.name_any()), "namespace": NAMESPACE },
        "spec": { "activeDeadlineSeconds": scrub.least.max(gib * scrub.per_gib), "restartPolicy": "Never",
            "volumes": [source], "containers": [container] },
    })
}

/// How far a recycler is.
#[derive(Debug, PartialEq)]
enum Progress {
    Running,
    Done,
    Failed(String),
}

fn progress(pod: &Pod) -> Progress {
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => Progress::Done,
        Some("Failed") => {
            let told = status.message.filter(|message| !message.is_empty());
            Progress::Failed(told.unwrap_or_else(|| "pod failed, pod.Status.Message unknown".to_owned()))
        }
        _ => Progress::Running,
    }
}

/// A scrubbing that was begun here.
#[derive(Clone, Debug)]
pub(super) struct Recycling {
    /// The volume, and the claim that released it, by their uids: another of the same name is another's data.
    pub of: (Option<String>, Option<String>),
    /// The uid of the pod; none after it failed.
    pub pod: Option<String>,
    /// When to try again.
    pub rest: Option<Instant>,
}

pub(super) fn released_by(volume: &PersistentVolume) -> (Option<String>, Option<String>) {
    (volume.uid(), facts::claim_ref(volume).and_then(|reference| reference.uid.clone()))
}

/// Removes what is there, a directory with all that is in it; no link on the way is followed.
async fn remove_all(path: PathBuf) -> io::Result<()> {
    let work = tokio::task::spawn_blocking(move || remove_below(Path::new(SCRATCH), &path));
    work.await.unwrap_or_else(|error| Err(error.into()))
}

impl Binder {
    /// Goes on with a volume whose claim is gone.
    pub(super) async fn reclaim(&self, volume: &Arc<PersistentVolume>) -> Result<Action, ReconcileError> {
        let wanted = wanted(volume);
        if !matches!(wanted, Reclaim::Recycle(_)) {
            self.forget(&volume.name_any()).await?;
        }
        match wanted {
            Reclaim::Leave => Ok(Action::AwaitChange),
            Reclaim::Recycle(scrub) => self.recycle(volume, &scrub).await,
            Reclaim::Delete(path) => self.delete_directory(volume, &path).await,
            Reclaim::Fail(reason, why) => {
                self.fail(volume, reason, &why).await?;
                Ok(Action::AwaitChange)
            }
        }
    }

    /// Ends a scrubbing that nobody waits for any more.
    pub(super) async fn forget(&self, volume: &str) -> Result<(), ReconcileError> {
        let own = format!("{volume}/");
        self.removals.lock().retain(|key, _| !key.starts_with(&own));
        let Some(begun) = self.recyclers.lock().get(volume).cloned() else { return Ok(()) };
        if let Some(uid) = begun.pod {
            self.remove(&format!("{PREFIX}{volume}"), Some(uid)).await?;
        }
        self.recyclers.lock().remove(volume);
        Ok(())
    }

    /// Said once for as long as the volume stays as it is.
    pub(super) async fn fail(
        &self,
        volume: &Arc<PersistentVolume>,
        reason: &str,
        why: &str,
    ) -> Result<(), ReconcileError> {
        if facts::phase(volume) != "Failed" {
            self.set_volume_phase(volume, "Failed", Some(why)).await?;
            self.recorder.warning(volume.as_ref(), reason, why);
        }
        Ok(())
    }

    async fn delete_directory(
        &self,
        volume: &Arc<PersistentVolume>,
        path: &Path,
    ) -> Result<Action, ReconcileError> {
        // Beside the only worker: a large directory must not keep others from being bound.
        let uid = volume.uid().unwrap_or_default();
        let begun = self.removals.lock().remove(&uid);
        let running = match begun {
            Some(running) => running,
            None if self.is_newest(volume).await? => tokio::spawn(remove_all(path.to_path_buf())),
            None => return Ok(Action::AwaitChange),
        };
        if !running.is_finished() {
            self.removals.lock().insert(uid, running);
            return Ok(Action::RequeueAfter(LOOK_INTERVAL));
        }
        let removed = running.await.map_err(io::Error::other).flatten();
        if let Err(error) = removed {
            let why = format!("{}: {error}", path.display());
            self.fail(volume, FAILED_DELETE, &why).await?;
            return Err(ReconcileError::Other(why));
        }
        let uid = Preconditions { uid: volume.uid(), resource_version: None };
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        gone(api.delete(&volume.name_any(), &DeleteParams::default().preconditions(uid)).await)?;
        Ok(Action::AwaitChange)
    }

    async fn recycle(&self, volume: &Arc<PersistentVolume>, scrub: &Scrub) -> Result<Action, ReconcileError> {
        if !self.is_newest(volume).await? {
            return Ok(Action::AwaitChange);
        }
        let name = volume.name_any();
        let of = released_by(volume);
        let begun = self.recyclers.lock().get(&name).filter(|begun| begun.of == of).cloned();
        let rest = begun.as_ref().and_then(|begun| begun.rest);
        let rest = rest.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if !rest.is_zero() {
            return Ok(Action::RequeueAfter(rest));
        }
        let users = self.users(volume);
        if !users.is_empty() {
            let message = format!("Volume is used by pods: {}", users.join(","));
            self.recorder.normal(volume.as_ref(), FAILED_RECYCLE, message);
            return Ok(Action::RequeueAfter(RETRY_INTERVAL));
        }
        if let Some(next) = self.scrub(volume).await? {
            return Ok(next);
        }
        let pod_name = format!("{PREFIX}{name}");
        let Some(pod) = self.pods.get(NAMESPACE, &pod_name) else {
            // Started, and not shown yet; or ended by somebody.
            if let Some(pod) = self.start(volume, scrub).await? {
                self.recyclers.lock().insert(name, Recycling { of, pod: Some(pod), rest: None });
            }
            return Ok(Action::RequeueAfter(RETRY_INTERVAL));
        };
        if begun.is_none_or(|begun| begun.pod != pod.uid()) {
            // An earlier process' of ours, one for another claim's data, or somebody's who wants it to look scrubbed.
            self.remove(&pod_name, pod.uid()).await?;
            let why = "Recycle failed: old recycler pod found, will retry later";
            self.fail(volume, FAILED_RECYCLE, why).await?;
            return Ok(Action::RequeueAfter(RETRY_INTERVAL));
        }
        match progress(&pod) {
            Progress::Running => Ok(Action::AwaitChange),
            Progress::Done => {
                self.recorder.normal(volume.as_ref(), "VolumeRecycled", "Volume recycled");
                let by_hand = facts::annotation(volume.as_ref(), facts::BOUND_BY_CONTROLLER).is_none();
                // First this: the pod's success is remembered until the volume is offered.
                let next = self.unbind(volume, by_hand).await?;
                self.forget(&name).await?;
                Ok(next)
            }
            Progress::Failed(why) => {
                let rest = Some(Instant::now() + RETRY_INTERVAL);
                self.recyclers.lock().insert(name, Recycling { of, pod: None, rest });
                self.remove(&pod_name, pod.uid()).await?;
                let why = format!("Recycle failed: failed to recycle volume: {why}");
                self.fail(volume, FAILED_RECYCLE, &why).await?;
                Ok(Action::RequeueAfter(RETRY_INTERVAL))
            }
        }
    }

    /// Whether the volume is what the API has: one that was offered again a moment ago must not be emptied once more.
    /// If not, what is newer comes with the watch.
    async fn is_newest(&self, volume: &PersistentVolume) -> Result<bool, ReconcileError> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let stored = api.get_metadata_opt(&volume.name_any()).await?;
        Ok(stored.is_some_and(|stored| stored.resource_version() == volume.resource_version()))
    }

    /// The pods that still name the claim that is gone.
    fn users(&self, volume: &PersistentVolume) -> Vec<String> {
        let Some(reference) = facts::claim_ref(volume) else { return Vec::new() };
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let claim = reference.name.as_deref().unwrap_or_default();
        // Where there is another claim of that name, it is that one which they use.
        if self.claims.get(namespace, claim).is_some() {
            return Vec::new();
        }
        let users = self.pods.iter_in(namespace);
        let users = users.filter(|pod| !is_terminal(pod.as_ref()) && crate::protection::uses(pod, claim));
        users.map(|pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())).collect()
    }

    /// Starts a recycler: its uid, or none where a pod of that name is there that the informer does not show yet.
    async fn start(
        &self,
        volume: &Arc<PersistentVolume>,
        scrub: &Scrub,
    ) -> Result<Option<String>, ReconcileError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pod: Pod = serde_json::from_value(recycler(volume, scrub))
            .map_err(|error| ReconcileError::Other(format!("the recycler pod: {error}")))?;
        match api.create(&PostParams::default(), &pod).await {
            Ok(made) => Ok(made.uid()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => {
                let why = format!("Recycle failed: unexpected error creating recycler pod:  {error}");
                self.fail(volume, FAILED_RECYCLE, &why).await?;
                Err(error.into())
            }
        }
    }

    async fn remove(&self, pod: &str, uid: Option<String>) -> Result<(), ReconcileError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let exactly = DeleteParams::default().preconditions(Preconditions { uid, resource_version: None });
        gone(api.delete(pod, &exactly).await)
    }
}

fn gone<T>(deleted: Result<T, kube::Error>) -> Result<(), ReconcileError> {
    match deleted {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(policy: &str, source: Value, provisioned: bool) -> PersistentVolume {
        let mut spec =
            json!({ "persistentVolumeReclaimPolicy": policy, "capacity": { "storage": "3500Mi" } });
        spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let annotations = if provisioned { json!({ facts::PROVISIONED_BY: "x" }) } else { json!({}) };
        serde_json::from_value(
            json!({ "metadata": { "name": "v", "annotations": annotations }, "spec": spec }),
        )
        .unwrap()
    }

    fn at(path: &str) -> Value {
        json!({ "hostPath": { "path": path } })
    }

    #[test]
    fn volumes_are_reclaimed_by_policy_and_kind() {
        let fail = |reason, why: &str| Reclaim::Fail(reason, why.to_owned());
        let nfs = json!({ "nfs": { "server": "s", "path": "/x" } });
        let read_only = json!({ "nfs": { "server": "s", "path": "/x", "readOnly": true } });
        let outside = "host_path deleter only supports /tmp/.+ but received provided";
        for (volume, expected) in [
            (volume("Retain", at("/tmp/a"), false), Reclaim::Leave),
            (volume("Delete", at("/tmp/a"), true), Reclaim::Leave),
            (volume("Delete", at("/tmp/a"), false), Reclaim::Delete("/tmp/a".into())),
            (volume("Delete", at("/etc"), false), fail(FAILED_DELETE, &format!("{outside} /etc"))),
            (volume("Delete", at("/tmp/"), false), fail(FAILED_DELETE, &format!("{outside} /tmp/"))),
            (
                volume("Delete", at("/tmp/../etc"), false),
                fail(FAILED_DELETE, &format!("{outside} /tmp/../etc")),
            ),
            (
                volume("Delete", nfs.clone(), false),
                fail(
                    FAILED_DELETE,
                    "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched",
                ),
            ),
            (
                volume("Recycle", json!({ "csi": { "driver": "d", "volumeHandle": "h" } }), false),
                fail(FAILED_RECYCLE, "No recycler plugin found for the volume!"),
            ),
            (
                volume("Recycle", at("/data"), false),
                Reclaim::Recycle(Scrub { source: at("/data"), least: 60, per_gib: 30 }),
            ),
            (
                volume("Recycle", read_only, false),
                Reclaim::Recycle(Scrub { source: nfs, least: 300, per_gib: 30 }),
            ),
        ] {
            assert_eq!(wanted(&volume), expected);
        }
    }

    #[test]
    fn larger_volumes_have_longer_to_be_scrubbed() {
        let deadline = |least| {
            let pod = recycler(
                &volume("Recycle", at("/data"), false),
                &Scrub { source: at("/data"), least, per_gib: 30 },
            );
            pod["spec"]["activeDeadlineSeconds"].as_i64()
        };
        assert_eq!((deadline(60), deadline(300)), (Some(90), Some(300)));
        let pod = recycler(
            &volume("Recycle", at("/data"), false),
            &Scrub { source: at("/data"), least: 60, per_gib: 30 },
        );
        assert_eq!(pod["spec"]["volumes"], json!([{ "name": "vol", "hostPath": { "path": "/data" } }]));
        assert_eq!(volume_of(&serde_json::from_value(pod).unwrap()), Some("v"));
    }

    #[test]
    fn a_recycler_ends_well_or_says_why() {
        let of = |status: Value| {
            progress(&serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap())
        };
        assert_eq!(of(json!({ "phase": "Pending" })), Progress::Running);
        assert_eq!(of(json!({ "phase": "Succeeded" })), Progress::Done);
        assert_eq!(of(json!({ "phase": "Failed", "message": "late" })), Progress::Failed("late".into()));
        let untold = "pod failed, pod.Status.Message unknown";
        assert_eq!(of(json!({ "phase": "Failed" })), Progress::Failed(untold.into()));
    }
}
