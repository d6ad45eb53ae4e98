//! What the cluster said last of this node's pods and of what they read, kept on the node, so that they start again while
//! the server is away.
//!
//! Each entry is a file, sealed with a key that lies beside it (AES-256-GCM, whose tag is the checksum: a file that is not
//! as it was written is no entry). That protects a copy of the entries without the key: it does not protect them from who
//! may read the key, as the machine's root may. One thread writes, in the order of the calls.

use crate::pod_facts::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

const KEY: &str = "key";
/// Of AES-256.
const KEY_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum LastSeenError {
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the machine gives no random bytes")]
    Random,
}

/// What a file holds, sealed.
#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    /// The entry that this one belongs to, and goes with.
    of: Option<String>,
    value: Value,
}

struct Known {
    of: Option<String>,
    digest: [u8; 32],
}

enum Job {
    Put(Entry),
    Remove(String),
}

struct Sealed {
    dir: PathBuf,
    key: LessSafeKey,
}

pub struct LastSeen {
    sealed: Arc<Sealed>,
    known: Mutex<HashMap<String, Known>>,
    jobs: mpsc::Sender<Job>,
    heard: AtomicBool,
}

impl LastSeen {
    /// Makes the directory (0700) and the key (0600) where they are missing.
    pub fn open(dir: &Path) -> Result<Self, LastSeenError> {
        let sealed = Arc::new(Sealed { dir: dir.to_owned(), key: key(dir)? });
        let known = sealed.all().into_iter().map(|entry| {
            let digest = digest(&entry.value);
            (entry.name, Known { of: entry.of, digest })
        });
        let known = Mutex::new(known.collect());
        let (jobs, waiting) = mpsc::channel();
        let writer = sealed.clone();
        let failed = |source| LastSeenError::File { path: dir.to_owned(), source };
        let work = move || waiting.into_iter().for_each(|job| writer.carry_out(job));
        // It ends with the last sender, when all is written.
        std::thread::Builder::new().name("last-seen".to_owned()).spawn(work).map_err(failed)?;
        Ok(Self { sealed, known, jobs, heard: AtomicBool::new(false) })
    }

    /// The server has told this process its pods: from now on only its word counts.
    pub fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    pub fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Keeps the value, unless it is what is kept already. `of`: another entry, which it goes with.
    pub fn put(&self, name: &str, of: Option<String>, value: &impl Serialize) {
        let Ok(value) = serde_json::to_value(value) else { return };
        self.put_if_new(name, of, digest(&value), value);
    }

    fn put_if_new(&self, name: &str, of: Option<String>, digest: [u8; 32], value: Value) {
        let mut known = self.known.lock();
        if known.get(name).is_some_and(|known| known.digest == digest && known.of == of) {
            return;
        }
        known.insert(name.to_owned(), Known { of: of.clone(), digest });
        self.tell(Job::Put(Entry { name: name.to_owned(), of, value }));
    }

    /// A pod as it is to run. What its status says from one moment to the next is seen again when it is looked at.
    pub fn put_pod(&self, pod: &Pod) {
        let Some(uid) = pod.uid() else { return };
        let mut matters = pod.clone();
        matters.metadata.resource_version = None;
        matters.metadata.managed_fields = None;
        if let Some(status) = &mut matters.status {
            (status.conditions, status.container_statuses, status.init_container_statuses) =
                (None, None, None);
            (status.ephemeral_container_statuses, status.observed_generation) = (None, None);
        }
        let (Ok(matters), Ok(value)) = (serde_json::to_value(matters), serde_json::to_value(pod)) else {
            return;
        };
        self.put_if_new(&of_pod(&uid), None, digest(&matters), value);
    }

    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let entry = self.sealed.read(&self.sealed.path(name))?;
        serde_json::from_value(entry.value).ok()
    }

    pub fn pods(&self) -> Vec<Pod> {
        let all = self.sealed.all().into_iter().filter(|entry| entry.name.starts_with(PODS));
        all.filter_map(|entry| serde_json::from_value(entry.value).ok()).collect()
    }

    pub fn remove(&self, name: &str) {
        if self.known.lock().remove(name).is_some() {
            self.tell(Job::Remove(name.to_owned()));
        }
    }

    /// Keeps what these pods are and read, and nothing else but what belongs to all.
    pub fn retain<'p>(&self, pods: impl Iterator<Item = &'p Pod>) {
        let kept: HashSet<String> = pods.flat_map(names).collect();
        self.known.lock().retain(|name, known| {
            let stays = kept.contains(name)
                || known.of.as_ref().is_some_and(|of| kept.contains(of))
                || name.starts_with(FOR_ALL);
            if !stays {
                self.tell(Job::Remove(name.clone()));
            }
            stays
        });
    }

    fn tell(&self, job: Job) {
        // The thread lives as long as this sender.
        let _ = self.jobs.send(job);
    }
}

const PODS: &str = "pod/";
/// A cluster has few CSI drivers, and they are no secret.
const FOR_ALL: &str = "csidriver/";

/// The name of a pod's entry.
pub fn of_pod(uid: &str) -> String {
    format!("{PODS}{uid}")
}

/// The name of an object's entry, its kind in small letters.
pub fn of_object(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

/// All entries that are there for a pod.
fn names(pod: &Pod) -> Vec<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let of = |kind: &str, name: &str| of_object(kind, &namespace, name);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| match &volume.persistent_volume_claim {
        Some(source) => Some(source.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name)),
    });
    let claims = claims.map(|name| of("persistentvolumeclaim", &name));
    let read = crate::references::reference_names(pod).into_iter().map(|(kind, name)| of(kind, &name));
    pod.uid().map(|uid| of_pod(&uid)).into_iter().chain(claims).chain(read).collect()
}

/// Whether a kept pod is one to begin with: it is not over, and no picture of a static one.
pub fn goes_on(pod: &Pod) -> bool {
    !crate::pod_facts::termination::is_over(pod) && !pod.annotations().contains_key(labels::CONFIG_MIRROR)
}

fn digest(value: &Value) -> [u8; 32] {
    Sha256::digest(value.to_string()).into()
}

/// The key that is there, or a new one: what another one sealed is lost.
fn key(dir: &Path) -> Result<LessSafeKey, LastSeenError> {
    let path = dir.join(KEY);
    let failed = |source| LastSeenError::File { path: path.clone(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let found = fs::read(&path).ok().and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
    let bytes = match found {
        Some(bytes) => bytes,
        None => {
            let mut bytes = [0; KEY_BYTES];
            SystemRandom::new().fill(&mut bytes).map_err(|_| LastSeenError::Random)?;
            write(&path, &bytes).map_err(failed)?;
            bytes
        }
    };
    let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| LastSeenError::Random)?;
    Ok(LessSafeKey::new(key))
}

/// All or nothing, also when the machine loses its power meanwhile.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

impl Sealed {
    /// Names say what somebody runs: they are not to be read off the directory either.
    fn path(&self, name: &str) -> PathBuf {
        let hash = coracle_api::hex::text(&Sha256::digest(name)[..16]);
        self.dir.join(hash).with_extension("sealed")
    }

    fn carry_out(&self, job: Job) {
        let (path, done) = match job {
            Job::Put(entry) => {
                let path = self.path(&entry.name);
                let done = self.seal(&entry, &path).and_then(|sealed| write(&path, &sealed));
                (path, done)
            }
            Job::Remove(name) => {
                let path = self.path(&name);
                let done = fs::remove_file(&path);
                (path, done.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }))
            }
        };
        if let Err(error) = done {
            tracing::warn!(path = %path.display(), %error, "what the cluster said is not kept");
        }
    }

    /// The nonce, and what it seals. The file's name is part of what the tag covers: files cannot be exchanged.
    fn seal(&self, entry: &Entry, path: &Path) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        let failed = |_| io::Error::other("not sealed");
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut bytes = serde_json::to_vec(entry)?;
        let place = Aad::from(place(path));
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), place, &mut bytes)
            .map_err(failed)?;
        Ok([nonce.as_slice(), &bytes].concat())
    }

    fn read(&self, path: &Path) -> Option<Entry> {
        let mut bytes = fs::read(path).ok()?;
        let opened = bytes.split_at_mut_checked(NONCE_LEN).and_then(|(nonce, sealed)| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let opened = self.key.open_in_place(nonce, Aad::from(place(path)), sealed).ok()?;
            serde_json::from_slice(opened).ok()
        });
        if opened.is_none() {
            tracing::warn!(path = %path.display(), "what the cluster said was damaged on the disk, or sealed with another key");
        }
        opened
    }

    fn all(&self) -> Vec<Entry> {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        files
            .filter(|path| path.extension().is_some_and(|e| e == "sealed"))
            .filter_map(|path| self.read(&path))
            .collect()
    }
}

fn place(path: &Path) -> Vec<u8> {
    path.file_name().map(|name| name.as_encoded_bytes().to_vec()).unwrap_or_default()
}

#[cfg(test)]
#[path = "last_seen_tests.rs"]
mod tests;
