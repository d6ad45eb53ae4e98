//! Who may use an image that is on the node already.
//!
//! A private image that one tenant's credentials have pulled is no other's to run. So it is noted which credentials pulled
//! which image, and a pod whose credentials are not among them must pull it itself before it may use it
//! (<https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification>, KEP-2535). The notes are
//! files of the kubelet's, so that they outlive it: `image_manager/pulled`, one for each image, and
//! `image_manager/pulling`, one for each pull whose end was not noted.

use super::credentials::{Access, Used, repository};
use crate::configuration::images::{Verification, VerificationPolicy};
use crate::cri::api;
use coracle_storage::beneath::Dir;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

impl Verification {
    fn is_listed(&self, repository: &str) -> bool {
        self.allowlist.iter().any(|listed| match listed.strip_suffix("/*") {
            Some(above) => repository.strip_prefix(above).is_some_and(|rest| rest.starts_with('/')),
            None => repository == super::credentials::repository(listed),
        })
    }

    /// Whether pods may use the image without any credentials.
    fn is_open(&self, repository: &str, pulled_here: bool) -> bool {
        match self.policy {
            VerificationPolicy::NeverVerify => true,
            VerificationPolicy::NeverVerifyPreloadedImages => !pulled_here,
            VerificationPolicy::NeverVerifyAllowlistedImages => !pulled_here && self.is_listed(repository),
            VerificationPolicy::AlwaysVerify => false,
        }
    }
}

/// What is noted of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    last_updated_time: Timestamp,
    image_ref: String,
    /// By the repository that it was pulled from.
    credential_mapping: BTreeMap<String, Access>,
}

/// A pull that was begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pulling {
    image: String,
}

/// The notes of a node. Its files are read anew each time: they are few and small, and whoever removes one has changed
/// what is known.
pub struct Records {
    directory: PathBuf,
    verification: Verification,
    /// Of those who read and write.
    turn: Mutex<()>,
}

const PULLED: &str = "pulled";
const PULLING: &str = "pulling";
/// Bytes of a note that are read; one secret takes about 250.
const MAX_RECORD: u64 = 1 << 20;

/// What a pod needs to use an image that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Open,
    /// One of these credentials, or a pull with its own.
    Known(Access),
}

impl Verdict {
    pub fn admits(&self, used: Option<&Used>) -> bool {
        match self {
            Self::Open => true,
            Self::Known(access) => access.admits(used),
        }
    }
}

impl Records {
    /// `directory` is the kubelet's own.
    pub fn new(directory: PathBuf, verification: Verification) -> Self {
        Self { directory: directory.join("image_manager"), verification, turn: Mutex::default() }
    }

    /// What is needed to use `image`, as a pod calls it, which the runtime has as `found`. What cannot be read counts as
    /// pulled by nobody who is known.
    pub fn judge(&self, image: &str, found: &api::Image) -> Verdict {
        let _turn = self.turn.lock();
        let repository = repository(image);
        let noted = self.read::<Pulled>(PULLED, &found.id);
        let by_this_name = match &noted {
            Ok(Some(noted)) => noted.credential_mapping.contains_key(&repository) || !has_tag(found, image),
            Ok(None) => false,
            Err(_) => true,
        };
        let pulled_here = by_this_name || self.is_being_pulled(image, found);
        if self.verification.is_open(&repository, pulled_here) {
            return Verdict::Open;
        }
        if let Err(error) = &noted {
            tracing::warn!(image, %error, "cannot read who pulled the image, credentials are asked for");
        }
        let mut noted = noted.ok().flatten().unwrap_or_default();
        Verdict::Known(noted.credential_mapping.remove(&repository).unwrap_or_default())
    }

    fn is_being_pulled(&self, image: &str, found: &api::Image) -> bool {
        let names = std::iter::once(image)
            .chain(found.repo_tags.iter().chain(&found.repo_digests).map(String::as_str));
        let mut begun = names.map(|name| self.read::<Pulling>(PULLING, &full(name)));
        begun.any(|begun| !matches!(begun, Ok(None)))
    }

    /// Before a pull: should this process end meanwhile, the image that is there then was pulled by somebody.
    pub fn begin(&self, image: &str) -> io::Result<()> {
        let _turn = self.turn.lock();
        self.write(PULLING, &full(image), &Pulling { image: image.to_owned() })
    }

    /// After a pull that came to nothing.
    pub fn failed(&self, image: &str) -> io::Result<()> {
        let _turn = self.turn.lock();
        self.open(PULLING)?.remove(file_name(&full(image)))
    }

    /// After a pull of `image`, which the runtime has as `id`. Without credentials it is everybody's who names it so.
    pub fn pulled(&self, image: &str, id: &str, used: Option<&Used>) -> io::Result<()> {
        let _turn = self.turn.lock();
        let mut noted = self.read::<Pulled>(PULLED, id).ok().flatten().unwrap_or_default();
        noted.credential_mapping.entry(repository(image)).or_default().add(used);
        noted.image_ref = id.to_owned();
        noted.last_updated_time = Timestamp::now();
        self.write(PULLED, id, &noted)?;
        self.open(PULLING)?.remove(file_name(&full(image)))
    }

    /// Forgets images that the runtime, asked at `asked`, has not any more.
    pub fn retain(&self, there: &HashSet<&str>, asked: Timestamp) -> io::Result<()> {
        let _turn = self.turn.lock();
        let directory = self.open(PULLED)?;
        for entry in directory.entries()? {
            let name = entry?.file_name();
            let text = directory.read(&name, MAX_RECORD)?;
            let Ok(noted) = serde_json::from_slice::<Pulled>(&text) else { continue };
            if noted.last_updated_time < asked && !there.contains(noted.image_ref.as_str()) {
                directory.remove(&name)?;
            }
        }
        Ok(())
    }

    /// How many images it is noted of who pulled them, and how many pulls whose end is not.
    pub fn count(&self) -> io::Result<(usize, usize)> {
        let _turn = self.turn.lock();
        let count = |kind| Ok::<_, io::Error>(self.open(kind)?.entries()?.count());
        Ok((count(PULLED)?, count(PULLING)?))
    }

    fn open(&self, kind: &str) -> io::Result<Dir> {
        std::fs::create_dir_all(&self.directory)?;
        let directory = Dir::open(&self.directory)?;
        directory.itself()?.chmod(0o700)?;
        directory.make_dir(kind, 0o700)
    }

    fn read<T: DeserializeOwned>(&self, kind: &str, key: &str) -> io::Result<Option<T>> {
        match self.open(kind)?.read(file_name(key), MAX_RECORD) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    fn write(&self, kind: &str, key: &str, value: &impl Serialize) -> io::Result<()> {
        self.open(kind)?.replace(file_name(key), &serde_json::to_vec(value)?, 0o600)
    }
}

/// Whether the runtime has the image under this very tag. A pull makes no other tag than its own, so one of a repository that
/// nobody pulled from was made by whoever loaded the image, though others have pulled the same under other names since.
fn has_tag(found: &api::Image, image: &str) -> bool {
    found.repo_tags.contains(&full(image))
}

/// Names of files that no image's name can break.
fn file_name(key: &str) -> String {
    coracle_api::hex::text(&Sha256::digest(key))
}

/// With the registry, and the tag that a name without one stands for.
fn full(image: &str) -> String {
    let repository = repository(image);
    let rest = image.rsplit('/').next().unwrap_or_default();
    match (image.split_once('@'), rest.split_once(':')) {
        (Some((_, digest)), _) => format!("{repository}@{digest}"),
        (None, Some((_, tag))) => format!("{repository}:{tag}"),
        (None, None) => format!("{repository}:latest"),
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
