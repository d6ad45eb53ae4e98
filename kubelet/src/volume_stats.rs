//! What the volumes of a pod use.
//!
//! As upstream: what lies in a folder of the kubelet's is counted file by file; of a claim's volume the file system is
//! asked; of a `hostPath`, which is nobody's share, nothing is told.

use crate::metrics::{Metric, Metrics};
use coracle_storage::beneath::{Dir, Reached, walk};
use coracle_storage::quota::{LinuxProjects, held};
use coracle_storage::volumes::{Record, Usage, claim_name, records_of_pod};
use k8s_openapi::api::core::v1::{Pod, Volume};
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// For so long what was counted stands: upstream's `volumeStatsAggPeriod`. Folders may have millions of files.
const COUNT_TTL: Duration = Duration::from_secs(60);
/// Who says what a volume holds, in upstream's words: its files one by one, or its file system.
const WALKED: &str = "du";
const ASKED: &str = "statfs";
/// The unit that the kernel counts a file's blocks in, whatever the file system's own is.
const BLOCK_BYTES: u64 = 512;

/// How long a file system of another machine may take to say what it has. Longer, and a server that is away holds up the
/// numbers of all pods; shorter, and a slow one is never heard.
const ELSEWHERE_TIMEOUT: Duration = Duration::from_secs(3);

/// Counts, remembered for a while by the pod's UID.
#[derive(Default)]
pub struct VolumeStats {
    known: Mutex<HashMap<String, (Instant, Vec<Share>)>>,
    /// What drivers said of their volumes, by the pod's UID and its name of the volume.
    told: Mutex<HashMap<String, HashMap<String, Usage>>>,
    elsewhere: Elsewhere,
    metrics: Metrics,
}

/// Asks file systems of other machines, which may never answer: each on a thread of its own, and none twice at a time.
#[derive(Clone, Default)]
struct Elsewhere(Arc<Mutex<HashSet<PathBuf>>>);

impl Elsewhere {
    /// What `ask` says of the path, if it does so in time.
    fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        limit: Duration,
        ask: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Option<T> {
        if !self.0.lock().insert(path.to_owned()) {
            // The last one that asked still waits.
            return None;
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let (asked, this) = (path.to_owned(), self.clone());
        let thread = thread::Builder::new().name("file-system".to_owned()).spawn(move || {
            let answer = ask(&asked);
            this.0.lock().remove(&asked);
            // Nobody may wait for it any more.
            let _ = sender.send(answer);
        });
        if thread.is_err() {
            self.0.lock().remove(path);
        }
        receiver.recv_timeout(limit).ok()
    }
}

/// Files on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub bytes: u64,
    pub inodes: u64,
}

impl Add for Files {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

/// One volume of a pod, with its entry in the summary.
#[derive(Clone, Debug)]
pub struct Share {
    pub name: String,
    pub entry: Value,
    /// None where they were not counted.
    pub files: Files,
    /// Whether they take of the node's ephemeral storage.
    pub ephemeral: bool,
}

impl VolumeStats {
    /// `metrics` counts how long it takes to find out.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Notes how long the answer took, if there is one.
    fn timed<T>(&self, source: &'static str, ask: impl FnOnce() -> Option<T>) -> Option<T> {
        let began = Instant::now();
        let answer = ask()?;
        self.metrics.took(Metric::VolumeMeasurements, &[source], began.elapsed());
        Some(answer)
    }

    /// Pods that are gone are forgotten.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.known.lock().retain(|uid, _| keep(uid));
        self.told.lock().retain(|uid, _| keep(uid));
    }

    /// Notes what the drivers of a pod's volumes say, in place of what they said before.
    pub fn tell(&self, uid: &str, usage: HashMap<String, Usage>) {
        if usage.is_empty() {
            self.told.lock().remove(uid);
        } else {
            self.told.lock().insert(uid.to_owned(), usage);
        }
    }

    /// What is known of the pod's claims, without reading anything.
    pub fn known(&self, uid: &str) -> Vec<Share> {
        self.known.lock().get(uid).map(|(_, shares)| shares.clone()).unwrap_or_default()
    }

    /// Reads disks; call it where blocking is allowed. `pods_dir` is the kubelet's `pods`.
    pub fn of(&self, pods_dir: &Path, pod: &Pod, time: &str) -> Vec<Share> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if let Some((since, shares)) = self.known.lock().get(&uid)
            && since.elapsed() < COUNT_TTL
        {
            return shares.clone();
        }
        let dir = pods_dir.join(&uid).join("volumes");
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let told = self.told.lock().get(&uid).cloned().unwrap_or_default();
        let records = records_of_pod(pods_dir, &uid);
        let of = |volume: &Volume| match claim_name(pod, volume) {
            None => self.timed(WALKED, || share(&dir, volume, time)),
            Some(claim) => {
                let record = records.iter().find(|record| record.volume == volume.name)?;
                self.share_of_claim(pod, record, &claim, (told.get(&volume.name), time))
            }
        };
        let shares: Vec<Share> = volumes.filter_map(of).collect();
        self.known.lock().insert(uid, (Instant::now(), shares.clone()));
        shares
    }
}

/// The folder of the volume's plugin, and whether its files take of the node's ephemeral storage, or of memory.
fn folder(volume: &Volume) -> Option<(&'static str, bool)> {
    if let Some(source) = &volume.empty_dir {
        return Some(("kubernetes.io~empty-dir", source.medium.as_deref().unwrap_or_default().is_empty()));
    }
    // Secrets and tokens lie in memory.
    let kinds = [
        (volume.config_map.is_some(), "kubernetes.io~configmap", true),
        (volume.secret.is_some(), "kubernetes.io~secret", false),
        (volume.projected.is_some(), "kubernetes.io~projected", false),
        (volume.downward_api.is_some(), "kubernetes.io~downward-api", true),
    ];
    kinds.into_iter().find(|(is, ..)| *is).map(|(_, plugin, ephemeral)| (plugin, ephemeral))
}

/// A volume that lies in the pod's directory, file by file.
fn share(dir: &Path, volume: &Volume, time: &str) -> Option<Share> {
    let (plugin, ephemeral) = folder(volume)?;
    let path = dir.join(plugin).join(&volume.name);
    if !path.is_dir() {
        return None;
    }
    let mut entry = file_system(path.to_str()?, time);
    entry.as_object()?;
    entry["name"] = volume.name.as_str().into();
    // What has a quota is counted by the kernel, and need not be walked.
    let held = held(&LinuxProjects, &path);
    let files =
        held.map_or_else(|| count(&path), |quota| Files { bytes: quota.used_bytes, inodes: quota.inodes });
    entry["usedBytes"] = files.bytes.into();
    entry["inodesUsed"] = files.inodes.into();
    Some(Share { name: volume.name.clone(), entry, files, ephemeral })
}

impl VolumeStats {
    /// A claim's volume: what its driver says, else what its file system does.
    fn share_of_claim(
        &self,
        pod: &Pod,
        record: &Record,
        claim: &str,
        (told, time): (Option<&Usage>, &str),
    ) -> Option<Share> {
        let mut entry = match told {
            Some(usage) => said(usage, time),
            // A driver that measures has not said anything yet; of one that does not nobody knows.
            None if record.plugin == "kubernetes.io/csi" => return None,
            None if record.plugin == "kubernetes.io/nfs" => {
                let time = time.to_owned();
                let ask = || {
                    self.elsewhere.ask(&record.path, ELSEWHERE_TIMEOUT, move |path| directory(path, &time))
                };
                self.timed(ASKED, ask)?
            }
            None => self.timed(ASKED, || Some(directory(&record.path, time)))?,
        };
        entry.as_object()?;
        entry["name"] = record.volume.as_str().into();
        entry["pvcRef"] = json!({ "name": claim, "namespace": pod.metadata.namespace });
        Some(Share { name: record.volume.clone(), entry, files: Files::default(), ephemeral: false })
    }
}

/// The file system of a directory; null where there is none.
fn directory(path: &Path, time: &str) -> Value {
    match path.to_str() {
        Some(text) if path.is_dir() => file_system(text, time),
        _ => Value::Null,
    }
}

fn said(usage: &Usage, time: &str) -> Value {
    json!({
        "time": time,
        "capacityBytes": usage.capacity_bytes,
        "availableBytes": usage.available_bytes,
        "usedBytes": usage.used_bytes,
        "inodes": usage.inodes,
        "inodesFree": usage.inodes_free,
        "inodesUsed": usage.inodes_used,
        "volumeHealthStats": usage.abnormal.map(|abnormal| json!({ "abnormal": abnormal })),
    })
}

/// What lies at and below a folder of one file system. A file with several names counts once;
/// what vanishes meanwhile does not count.
fn count(root: &Path) -> Files {
    let (mut bytes, mut inodes) = (0_u64, HashSet::new());
    let counted = Dir::open(root).and_then(|root| {
        walk(&root, |node| {
            if inodes.insert(node.inode()) {
                bytes += node.blocks() * BLOCK_BYTES;
            }
            Ok(())
        })
    });
    if !matches!(counted, Ok(Reached::All)) {
        tracing::debug!(path = %root.display(), ?counted, "not all files of the volume were counted");
    }
    Files { bytes, inodes: u64::try_from(inodes.len()).unwrap_or(u64::MAX) }
}

/// Of the file system that this path lies on; null if it cannot be asked.
pub fn file_system(path: &str, time: &str) -> Value {
    let Ok(fs) = statvfs(path) else { return Value::Null };
    let size = fs.fragment_size();
    json!({
        "time": time,
        "availableBytes": fs.blocks_available() * size,
        "capacityBytes": fs.blocks() * size,
        "usedBytes": fs.blocks().saturating_sub(fs.blocks_free()) * size,
        "inodes": fs.files(),
        "inodesFree": fs.files_free(),
        "inodesUsed": fs.files().saturating_sub(fs.files_free()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn pod(volumes: &Value) -> Pod {
        let pod = json!({ "metadata": { "name": "web", "namespace": "n", "uid": "u1" },
            "spec": { "containers": [], "volumes": volumes } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_once_and_waited_for_for_a_moment() {
        const MOMENT: Duration = Duration::from_millis(20);
        let (elsewhere, path) = (Elsewhere::default(), Path::new("/share"));
        let (release, held) = mpsc::channel::<()>();
        assert_eq!(elsewhere.ask(path, MOMENT, move |_| held.recv().is_ok()), None);
        assert_eq!(elsewhere.ask(path, MOMENT, |_| panic!("asked while another one waits")), None::<()>);
        assert_eq!(elsewhere.ask(Path::new("/other"), Duration::from_secs(60), |_| 7), Some(7));
        release.send(()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while elsewhere.0.lock().contains(path) {
            assert!(Instant::now() < until, "it has answered");
            thread::yield_now();
        }
        assert_eq!(elsewhere.ask(path, Duration::from_secs(60), |_| 7), Some(7));
    }

    #[test]
    fn files_are_counted_and_claims_asked() {
        let root = tempfile::tempdir().unwrap();
        let folder = |plugin: &str, name: &str| {
            let path = root.path().join("u1/volumes").join(plugin).join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let cache = folder("kubernetes.io~empty-dir", "cache");
        fs::create_dir(cache.join("below")).unwrap();
        fs::write(cache.join("below/file"), vec![7; 100_000]).unwrap();
        fs::hard_link(cache.join("below/file"), cache.join("again")).unwrap();
        fs::write(folder("kubernetes.io~secret", "keys").join("k"), "x").unwrap();
        let record = json!({ "plugin": "kubernetes.io/host-path", "volume": "data", "unique": "u", "path": root.path() });
        let measured =
            json!({ "plugin": "kubernetes.io/csi", "volume": "disk", "unique": "v", "path": "/nowhere" });
        let records = root.path().join("u1/volume-records");
        fs::create_dir_all(&records).unwrap();
        fs::write(records.join("data.json"), record.to_string()).unwrap();
        fs::write(records.join("disk.json"), measured.to_string()).unwrap();
        let pod = pod(&json!([
            { "name": "cache", "emptyDir": {} }, { "name": "keys", "secret": { "secretName": "s" } },
            { "name": "data", "persistentVolumeClaim": { "claimName": "c" } },
            { "name": "disk", "persistentVolumeClaim": { "claimName": "d" } },
            { "name": "host", "hostPath": { "path": "/" } }, { "name": "absent", "configMap": { "name": "m" } },
        ]));
        let stats = VolumeStats::default();
        let usage = Usage { capacity_bytes: Some(1000), used_bytes: Some(400), ..Usage::default() };
        stats.tell("u1", HashMap::from([("disk".to_owned(), usage)]));
        let shares = stats.of(root.path(), &pod, "now");
        let names: Vec<&str> = shares.iter().filter_map(|share| share.entry["name"].as_str()).collect();
        assert_eq!(names, ["cache", "keys", "data", "disk"]);
        let [cache, keys, data, disk] = shares.as_slice() else { panic!("{shares:?}") };
        let used = cache.entry["usedBytes"].as_u64().unwrap();
        assert!((100_000..130_000).contains(&used), "{used}");
        assert_eq!((cache.ephemeral, cache.files), (true, Files { bytes: used, inodes: 3 }));
        assert!(cache.entry["capacityBytes"].as_u64().unwrap() > used && cache.entry["time"] == "now");
        assert_eq!((keys.ephemeral, &keys.entry["inodesUsed"]), (false, &json!(2)));
        assert_eq!(data.entry["pvcRef"], json!({ "name": "c", "namespace": "n" }));
        assert!(data.entry["capacityBytes"].as_u64().unwrap() > 0, "its file system's");
        let mut page = coracle_metrics::Text::default();
        stats.metrics.render(&mut page);
        let page = page.finish();
        for (source, count) in [(WALKED, 2), (ASKED, 1)] {
            let family = "kubelet_volume_metric_collection_duration_seconds_count";
            let line = format!("{family}{{metric_source=\"{source}\"}} {count}\n");
            assert!(page.contains(&line), "{line} in {page}");
        }
        assert_eq!((&disk.entry["capacityBytes"], &disk.entry["usedBytes"]), (&json!(1000), &json!(400)));
        // Counted once a minute, until the pod is gone.
        fs::write(root.path().join("u1/volumes/kubernetes.io~empty-dir/cache/more"), "x").unwrap();
        assert_eq!(stats.of(root.path(), &pod, "later")[0].entry, cache.entry);
        stats.retain(|_| false);
        assert_eq!(stats.of(root.path(), &pod, "later")[0].entry["inodesUsed"], 4);
    }
}
