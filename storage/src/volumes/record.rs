//! What the node has on disk of its volumes, so that a kubelet that starts after a crash can take them away.
//!
//! Of each volume that does not simply go with the pod's directory there is a file from before it is staged until it is
//! unpublished, `<pods-dir>/<uid>/volume-records/<name>.json`, and for each that is staged another one from before that
//! until it is unstaged, `<root>/staged-volumes/<hash>.json`. Which pods use a volume is what the files say.

use super::VolumeError;
use super::host::make_dir_all;
use crate::beneath::{Dir, remove_below};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const OF_POD: &str = "volume-records";
const STAGED: &str = "staged-volumes";
/// Bytes of one record; they have a few hundred. What is larger is none of ours.
const MAX_RECORD: u64 = 1 << 20;

/// One volume of one pod, as its plugin needs to know it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The plugin's name.
    pub plugin: String,
    /// The pod's name of the volume. Filled in by who writes the record.
    #[serde(default)]
    pub volume: String,
    /// What names the volume for the whole node, whichever pod uses it: `kubernetes.io/csi/<driver>^<handle>`.
    pub unique: String,
    /// Whether it is put on the node before pods get it.
    #[serde(default)]
    pub staged: bool,
    /// Whether the control plane attaches it, so that it is to be told until when it is in use.
    #[serde(default)]
    pub attached: bool,
    /// Where containers find it.
    #[serde(default)]
    pub path: PathBuf,
    /// The claim's name; empty without one.
    #[serde(default)]
    pub claim: String,
    /// The plugin's own.
    #[serde(default)]
    pub data: Value,
}

/// The directories of records.
#[derive(Clone, Debug)]
pub(super) struct Records {
    pub root: PathBuf,
    pub pods_dir: PathBuf,
}

impl Records {
    fn of_pod(&self, uid: &str) -> PathBuf {
        self.pods_dir.join(uid).join(OF_POD)
    }

    pub fn write(&self, uid: &str, record: &Record) -> Result<(), VolumeError> {
        put(&self.of_pod(uid), &format!("{}.json", record.volume), record)
    }

    pub fn remove(&self, uid: &str, record: &Record) -> Result<(), VolumeError> {
        forget(&self.pods_dir, &self.of_pod(uid).join(format!("{}.json", record.volume)))
    }

    pub fn write_staged(&self, record: &Record) -> Result<(), VolumeError> {
        put(&self.root.join(STAGED), &staged_name(&record.unique), record)
    }

    pub fn remove_staged(&self, record: &Record) -> Result<(), VolumeError> {
        forget(&self.root, &self.root.join(STAGED).join(staged_name(&record.unique)))
    }

    pub fn staged(&self) -> Result<Vec<Record>, VolumeError> {
        read_all(&self.root.join(STAGED))
    }

    /// The records of one pod, in the order of its volumes' names.
    pub fn read(&self, uid: &str) -> Result<Vec<Record>, VolumeError> {
        read_all(&self.of_pod(uid))
    }

    /// Every pod's, with its UID.
    pub fn all(&self) -> Result<Vec<(String, Record)>, VolumeError> {
        let mut all = Vec::new();
        for uid in names(&self.pods_dir)? {
            all.extend(self.read(&uid)?.into_iter().map(|record| (uid.clone(), record)));
        }
        Ok(all)
    }
}

/// The records of a pod, for who only measures. What cannot be read is left out.
pub fn of_pod(pods_dir: &Path, uid: &str) -> Vec<Record> {
    read_all(&pods_dir.join(uid).join(OF_POD)).unwrap_or_default()
}

/// A name that fits into a directory, whatever a volume is called.
pub(crate) fn digest(text: &str) -> String {
    coracle_api::hex::text(&Sha256::digest(text.as_bytes()))
}

fn staged_name(unique: &str) -> String {
    format!("{}.json", digest(unique))
}

fn put(dir: &Path, name: &str, record: &Record) -> Result<(), VolumeError> {
    let write = || Dir::open(dir)?.replace(name, &serde_json::to_vec(record)?, 0o600);
    make_dir_all(dir, 0o750)?;
    write().map_err(|error| VolumeError::io("write record", &dir.join(name), error))
}

fn forget(root: &Path, path: &Path) -> Result<(), VolumeError> {
    remove_below(root, path).map_err(|error| VolumeError::io("remove record", path, error))
}

fn names(dir: &Path) -> Result<Vec<String>, VolumeError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| VolumeError::io("read", dir, error))?,
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

fn read_all(dir: &Path) -> Result<Vec<Record>, VolumeError> {
    let files = names(dir)?.into_iter().filter(|name| name.ends_with(".json") && !name.starts_with('.'));
    let mut records = Vec::new();
    for name in files {
        let bytes = Dir::open(dir).and_then(|dir| dir.read(&name, MAX_RECORD));
        let bytes = bytes.map_err(|error| VolumeError::io("read record", &dir.join(&name), error))?;
        match serde_json::from_slice(&bytes) {
            Ok(record) => records.push(record),
            // Files are put there whole. One that is not was on its way to the disk when the machine lost its power, and
            // with that every mount.
            Err(error) => {
                tracing::warn!(path = %dir.join(&name).display(), %error, "record of a volume ignored")
            }
        }
    }
    Ok(records)
}
