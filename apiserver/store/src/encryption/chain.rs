//! The providers of one resource, in order: the first one writes, and whichever knows a value's prefix reads it.

use super::MARK;
use super::cipher::Cipher;
use super::kms::{Kms, KmsError, Locked};
use bytes::Bytes;
use std::sync::Arc;

/// Why a stored value cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("no matching prefix found")]
    NoPrefix,
    #[error("no matching key was found for the provided {0} transformer")]
    NoKey(&'static str),
    #[error("identity transformer tried to read encrypted data")]
    Encrypted,
    #[error("the stored data was shorter than the required size")]
    Short,
    #[error("the stored data is not a multiple of the block size")]
    Blocks,
    #[error("invalid padding on input: the data is damaged, or the key is another one")]
    Padding,
    #[error(
        "message authentication failed: the data is damaged, of another object, or the key is another one"
    )]
    Refused,
    /// A key that only the KMS can decrypt, and that nobody has asked it for yet.
    #[error("the data's key is still to be decrypted by KMS provider \"{}\"", .0.kms.name)]
    Locked(Box<Locked>),
    #[error("kms")]
    Kms(#[source] KmsError),
    #[error("{}", join(.0))]
    Several(Vec<OpenError>),
}

fn join(errors: &[OpenError]) -> String {
    let errors: Vec<String> = errors.iter().map(|error| coracle_api::error::chain(error)).collect();
    format!("[{}]", errors.join(", "))
}

/// Why a value cannot be encrypted, and so not be written.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("the system has no random bytes: {0}")]
    Random(String),
    #[error("the cipher failed")]
    Cipher,
    #[error("kms")]
    Kms(#[source] KmsError),
}

/// What a stored value was.
#[derive(Debug)]
pub struct Opened {
    pub value: Bytes,
    /// It would be written differently today.
    pub stale: bool,
}

pub(super) enum Provider {
    Identity,
    Keys {
        /// As upstream's errors call it.
        family: &'static str,
        /// With the colon that ends the name in a stored value.
        keys: Vec<(String, Cipher)>,
    },
    Kms(Arc<Kms>),
}

pub(super) struct Link {
    pub prefix: String,
    pub provider: Provider,
}

pub struct Chain {
    pub(super) links: Vec<Link>,
}

impl Chain {
    pub(super) fn identity() -> Self {
        Self { links: vec![Link { prefix: String::new(), provider: Provider::Identity }] }
    }

    /// Whether nothing is encrypted, and nothing encrypted is read.
    pub fn is_plain(&self) -> bool {
        matches!(&self.links[..], [Link { provider: Provider::Identity, .. }])
    }

    /// What the store is given for the object at `path`.
    pub fn seal(&self, plain: &Bytes, path: &str) -> Result<Bytes, SealError> {
        let Some(first) = self.links.first() else { return Err(SealError::Cipher) };
        let (name, sealed) = match &first.provider {
            Provider::Identity => return Ok(plain.clone()),
            Provider::Keys { keys, .. } => {
                let (name, cipher) = keys.first().ok_or(SealError::Cipher)?;
                (name.as_str(), cipher.seal(plain, path.as_bytes())?)
            }
            Provider::Kms(kms) => ("", kms.seal(plain, path.as_bytes())?),
        };
        Ok([first.prefix.as_bytes(), name.as_bytes(), &sealed].concat().into())
    }

    /// What a value of the object at `path` is, without waiting for anybody.
    pub fn open(&self, stored: &Bytes, path: &str) -> Result<Opened, OpenError> {
        let mut errors = Vec::new();
        for (index, link) in self.links.iter().enumerate() {
            if !stored.starts_with(link.prefix.as_bytes()) {
                continue;
            }
            match link.open(stored, path) {
                Ok(opened) => return Ok(Opened { stale: opened.stale || index > 0, ..opened }),
                Err(OpenError::Encrypted) if self.links.len() > 1 => {}
                Err(error) => errors.push(error),
            }
        }
        if let Some(locked) = errors.iter().position(|error| matches!(error, OpenError::Locked(_))) {
            return Err(errors.swap_remove(locked));
        }
        match errors.pop() {
            None => Err(OpenError::NoPrefix),
            Some(error) if errors.is_empty() => Err(error),
            Some(error) => {
                errors.push(error);
                Err(OpenError::Several(errors))
            }
        }
    }

    /// As [`open`](Self::open), asking the KMS for keys that are not known yet.
    pub async fn open_waiting(&self, stored: &Bytes, path: &str) -> Result<Opened, OpenError> {
        match self.open(stored, path) {
            Err(OpenError::Locked(locked)) => {
                locked.unlock().await.map_err(OpenError::Kms)?;
                self.open(stored, path)
            }
            other => other,
        }
    }

    /// Whether the first provider and key wrote the value, as far as that is known without reading it.
    pub fn is_current(&self, stored: &[u8]) -> bool {
        let Some(first) = self.links.first() else { return true };
        match &first.provider {
            Provider::Identity => !stored.starts_with(MARK),
            Provider::Keys { keys, .. } => {
                let name = keys.first().map(|(name, _)| name.as_bytes()).unwrap_or_default();
                stored.strip_prefix(first.prefix.as_bytes()).is_some_and(|rest| rest.starts_with(name))
            }
            Provider::Kms(kms) => {
                stored.strip_prefix(first.prefix.as_bytes()).is_some_and(|rest| kms.is_current(rest))
            }
        }
    }
}

impl Link {
    fn open(&self, stored: &Bytes, path: &str) -> Result<Opened, OpenError> {
        let rest = &stored[self.prefix.len()..];
        match &self.provider {
            Provider::Identity if stored.starts_with(MARK) => Err(OpenError::Encrypted),
            Provider::Identity => Ok(Opened { value: stored.clone(), stale: false }),
            Provider::Kms(kms) => kms.open(rest, path.as_bytes()),
            Provider::Keys { family, keys } => {
                let mut failure = OpenError::NoKey(family);
                for (index, (name, cipher)) in keys.iter().enumerate() {
                    let Some(data) = rest.strip_prefix(name.as_bytes()) else { continue };
                    match cipher.open(data, path.as_bytes()) {
                        Ok(value) => return Ok(Opened { value: value.into(), stale: index > 0 }),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        }
    }
}
