//! A KMS v2 provider: the KMS encrypts a seed, the seed encrypts the data (<https://kubernetes.io/docs/tasks/administer-cluster/kms-provider/>).
//!
//! The seed stands encrypted in every value, so a start asks the KMS once for each seed that is in use. Writing never
//! waits for the KMS: it uses the present seed, which is made anew when the KMS says by its Status that its key is
//! another one, and which is no longer used when the KMS has not answered for three minutes.
//!
//! ```text
//! probe: Status every minute, every 10 s while it fails
//!   ok, same key id      -> the seed is good for three more minutes
//!   ok, another key id   -> a new seed, encrypted by Encrypt; what older ones wrote is stale
//!   anything else        -> /readyz fails; the seed runs out
//! ```

mod client;
mod dek;
mod proto;
#[cfg(test)]
mod tests;

use super::OpenError;
use super::chain::{Opened, SealError};
use super::cipher::random;
use super::config::KmsConfiguration;
use client::Client;
use dek::Dek;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use proto::{DecryptRequest, EncryptedObject, StatusResponse};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long after the last good Status data may be written, as upstream.
const SEED_LIFETIME: Duration = Duration::from_secs(180);
/// A KMS that failed is not asked again for a key within this time: a start with many keys would wait for each.
const REST_INTERVAL: Duration = Duration::from_secs(3);
/// Upstream's limits of what a KMS answers, in bytes.
const MAX_KEY_ID: usize = 1 << 10;
const MAX_SOURCE: usize = 1 << 10;
const MAX_ANNOTATIONS: usize = 32 << 10;

#[derive(Clone, Debug, thiserror::Error)]
pub enum KmsError {
    #[error("{method}: {why}")]
    Failed { method: &'static str, why: String },
    #[error("{method}: no answer within {limit:?}")]
    Timeout { method: &'static str, limit: Duration },
    #[error("got unexpected healthz status: {0}")]
    Unhealthy(String),
    #[error("expected KMSv2 API version v2, got {0}")]
    Version(String),
    /// An answer that breaks a limit, or a stored value that is none.
    #[error("{0}")]
    Wrong(String),
    #[error("provider \"{0}\" is not ready: its Status has not been good yet")]
    NotReady(String),
    #[error(
        "encryptedDEKSource of provider \"{0}\" expired: its Status has not been good for {SEED_LIFETIME:?}"
    )]
    Expired(String),
}

/// Of an encrypted seed or key, with everything that stands beside it.
type Identity = [u8; 32];

struct State {
    /// A stored value without its data.
    head: EncryptedObject,
    dek: Arc<Dek>,
    /// Of the last good Status.
    seen: Instant,
}

pub struct Kms {
    pub name: String,
    socket: PathBuf,
    timeout: Duration,
    client: Client,
    state: RwLock<Option<State>>,
    /// Of decrypted seeds: as many as the KMS had keys and the server had starts, since values were last rewritten.
    known: RwLock<HashMap<Identity, Arc<Dek>>>,
    failed: Mutex<Option<(Instant, KmsError)>>,
}

/// A value whose key is still to be asked for.
pub struct Locked {
    pub(super) kms: Arc<Kms>,
    identity: Identity,
    kind: i32,
    request: DecryptRequest,
}

impl std::fmt::Debug for Locked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locked").field("kms", &self.kms.name).finish_non_exhaustive()
    }
}

impl Locked {
    /// Has the KMS decrypt the key, and remembers it.
    pub async fn unlock(self) -> Result<(), KmsError> {
        if self.kms.known.read().contains_key(&self.identity) {
            return Ok(());
        }
        if let Some((at, error)) = &*self.kms.failed.lock()
            && at.elapsed() < REST_INTERVAL
        {
            return Err(error.clone());
        }
        let answer = self.kms.client.decrypt(self.request).await;
        let answer = answer.inspect_err(|error| {
            *self.kms.failed.lock() = Some((Instant::now(), error.clone()));
        })?;
        let wrong = || KmsError::Wrong("Decrypt: the KMS answered with no key".to_owned());
        let dek = Dek::new(self.kind, &answer.plaintext).ok_or_else(wrong)?;
        self.kms.known.write().insert(self.identity, Arc::new(dek));
        Ok(())
    }
}

impl Kms {
    /// Of a checked configuration, within a runtime.
    pub fn new(config: &KmsConfiguration) -> Self {
        let timeout = config.timeout().unwrap_or(REST_INTERVAL);
        let socket = socket(config);
        Self {
            name: config.name.clone(),
            client: Client::new(socket.clone(), timeout),
            socket,
            timeout,
            state: RwLock::default(),
            known: RwLock::default(),
            failed: Mutex::default(),
        }
    }

    /// Whether it is what a configuration asks for.
    pub fn serves(&self, config: &KmsConfiguration) -> bool {
        self.name == config.name && self.socket == socket(config) && config.timeout() == Some(self.timeout)
    }

    pub(super) fn seal(&self, plain: &[u8], path: &[u8]) -> Result<Vec<u8>, SealError> {
        let (head, dek) = self.writing().map_err(SealError::Kms)?;
        let encrypted_data = dek.seal(plain, path)?;
        Ok(EncryptedObject { encrypted_data, ..head }.encode_to_vec())
    }

    fn writing(&self) -> Result<(EncryptedObject, Arc<Dek>), KmsError> {
        let state = self.state.read();
        let state = state.as_ref().ok_or_else(|| KmsError::NotReady(self.name.clone()))?;
        if state.seen.elapsed() > SEED_LIFETIME {
            return Err(KmsError::Expired(self.name.clone()));
        }
        Ok((state.head.clone(), state.dek.clone()))
    }

    pub(super) fn open(self: &Arc<Self>, stored: &[u8], path: &[u8]) -> Result<Opened, OpenError> {
        let object = EncryptedObject::decode(stored).map_err(|e| KmsError::Wrong(e.to_string()));
        let object = object.and_then(|object| check(&object).map(|()| object)).map_err(OpenError::Kms)?;
        let identity = identity(&object);
        let dek = self.known.read().get(&identity).cloned();
        let stale = !self.is_written_by(&object);
        match dek {
            Some(dek) => {
                let value = dek.open(&object.encrypted_data, path)?;
                Ok(Opened { value: value.into(), stale })
            }
            None => Err(OpenError::Locked(Box::new(Locked {
                kms: self.clone(),
                identity,
                kind: object.encrypted_dek_source_type,
                request: DecryptRequest {
                    ciphertext: object.encrypted_dek_source,
                    uid: uuid::Uuid::new_v4().to_string(),
                    key_id: object.key_id,
                    annotations: object.annotations.into_iter().collect(),
                },
            }))),
        }
    }

    fn is_written_by(&self, object: &EncryptedObject) -> bool {
        // While nobody knows what the KMS would write with, nothing can be rewritten.
        self.state.read().as_ref().is_none_or(|state| {
            state.head.key_id == object.key_id && object.encrypted_dek_source_type == dek::SEEDED
        })
    }

    pub(super) fn is_current(&self, stored: &[u8]) -> bool {
        EncryptedObject::decode(stored).is_ok_and(|object| self.is_written_by(&object))
    }

    /// Of the key that the KMS encrypts with; empty while that is unknown.
    pub fn key_hash(&self) -> String {
        let state = self.state.read();
        let Some(state) = state.as_ref() else { return String::new() };
        coracle_api::hex::text(&Sha256::digest(&state.head.key_id))
    }

    /// Asks for the KMS's Status, and makes a new seed if its key is another one; says whether it did.
    pub async fn probe(&self) -> Result<bool, KmsError> {
        let status = self.client.status().await?;
        check_status(&status)?;
        *self.failed.lock() = None;
        if let Some(state) = self.state.write().as_mut().filter(|state| state.head.key_id == status.key_id) {
            state.seen = Instant::now();
            return Ok(false);
        }
        let state = self.new_state().await?;
        if state.head.key_id != status.key_id {
            // Asked again, a KMS that was just rotating says one of them twice.
            let why = "Encrypt: the key id is not the one that Status told".to_owned();
            return Err(KmsError::Wrong(why));
        }
        let changed = self.state.read().as_ref().is_none_or(|old| old.head.key_id != state.head.key_id);
        self.known.write().insert(identity(&state.head), state.dek.clone());
        *self.state.write() = Some(state);
        Ok(changed)
    }

    async fn new_state(&self) -> Result<State, KmsError> {
        let seed = random::<{ dek::SEED }>().map_err(|e| KmsError::Wrong(e.to_string()))?;
        let answer = self.client.encrypt(seed.to_vec()).await?;
        if contains(&answer.ciphertext, &seed) {
            return Err(KmsError::Wrong("Encrypt: the KMS answered with the plain text".to_owned()));
        }
        let head = EncryptedObject {
            // Stands for the data, which must not be empty.
            encrypted_data: vec![0],
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations.into_iter().collect(),
            encrypted_dek_source_type: dek::SEEDED,
        };
        check(&head)?;
        let none = || KmsError::Wrong("the seed is too short".to_owned());
        let dek = Arc::new(Dek::new(dek::SEEDED, &seed).ok_or_else(none)?);
        Ok(State { head, dek, seen: Instant::now() })
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn socket(config: &KmsConfiguration) -> PathBuf {
    config.endpoint.strip_prefix("unix://").unwrap_or(&config.endpoint).into()
}

fn check_status(status: &StatusResponse) -> Result<(), KmsError> {
    if status.healthz != "ok" {
        return Err(KmsError::Unhealthy(status.healthz.clone()));
    }
    if !matches!(status.version.as_str(), "v2" | "v2beta1") {
        return Err(KmsError::Version(status.version.clone()));
    }
    check_key_id(&status.key_id)
}

fn check_key_id(id: &str) -> Result<(), KmsError> {
    match id.len() {
        0 => Err(KmsError::Wrong("failed to validate key id: keyID is empty".to_owned())),
        length if length > MAX_KEY_ID => {
            let why = format!(
                "failed to validate key id: keyID is {length} bytes, which exceeds the max size of {MAX_KEY_ID}"
            );
            Err(KmsError::Wrong(why))
        }
        _ => Ok(()),
    }
}

/// As upstream's, for values that were read and for answers alike.
fn check(object: &EncryptedObject) -> Result<(), KmsError> {
    let wrong = |why: String| Err(KmsError::Wrong(why));
    let kind = object.encrypted_dek_source_type;
    if kind != dek::KEY && kind != dek::SEEDED {
        return wrong(format!("unknown encryptedDEKSourceType: {kind}"));
    }
    if object.encrypted_data.is_empty() {
        return wrong("encrypted data is empty".to_owned());
    }
    let length = object.encrypted_dek_source.len();
    if length == 0 {
        return wrong("failed to validate encrypted DEK source: encrypted DEK source is empty".to_owned());
    }
    if length > MAX_SOURCE {
        return wrong(format!(
            "failed to validate encrypted DEK source: it is {length} bytes, which exceeds the max size of {MAX_SOURCE}"
        ));
    }
    check_key_id(&object.key_id)?;
    let annotations: usize = object.annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
    if annotations > MAX_ANNOTATIONS {
        return wrong(format!(
            "failed to validate annotations: they are {annotations} bytes, which exceeds the max size of {MAX_ANNOTATIONS}"
        ));
    }
    match object.annotations.keys().find(|name| !is_domain(name)) {
        Some(name) => {
            wrong(format!("failed to validate annotations: {name:?} is no fully qualified domain name"))
        }
        None => Ok(()),
    }
}

/// A lowercase RFC 1123 subdomain of at least two labels.
fn is_domain(name: &str) -> bool {
    let label = |label: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(label.chars().next())
            && edge(label.chars().last())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253 && name.contains('.') && name.split('.').all(label)
}

/// Everything that the KMS was told with a key, with lengths, so that no two are alike.
fn identity(object: &EncryptedObject) -> Identity {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    field(&object.encrypted_dek_source_type.to_be_bytes());
    field(&object.encrypted_dek_source);
    field(object.key_id.as_bytes());
    for (name, value) in &object.annotations {
        field(name.as_bytes());
        field(value);
    }
    hash.finalize().into()
}
