//! What data is encrypted with under a KMS: a seed of which each write derives a key of its own, as upstream's v2.
//!
//! The key is HKDF-Expand(SHA-256, seed, info) with 32 random bytes of info, which stand in front of the nonce and the
//! AES-256-GCM data. So no number of writes wears a seed out.

use super::super::OpenError;
use super::super::chain::SealError;
use super::super::cipher::{open_gcm, random, seal_gcm};
use ring::aead::{self, LessSafeKey, UnboundKey};
use ring::hkdf::{self, Prk};

/// Bytes of a seed, and of the info in front of data.
pub(super) const SEED: usize = 32;

pub(super) const KEY: i32 = 0;
pub(super) const SEEDED: i32 = 1;

pub(super) enum Dek {
    Seed(Box<Prk>),
    /// As API servers before seeds wrote. Only read.
    Key(Box<LessSafeKey>),
}

impl Dek {
    /// Of the kind that stands beside it in the stored value; `None` if the bytes are none.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        match kind {
            SEEDED if bytes.len() >= SEED => {
                Some(Self::Seed(Box::new(Prk::new_less_safe(hkdf::HKDF_SHA256, bytes))))
            }
            KEY => {
                let algorithm = if bytes.len() == 16 { &aead::AES_128_GCM } else { &aead::AES_256_GCM };
                let key = UnboundKey::new(algorithm, bytes).ok()?;
                Some(Self::Key(Box::new(LessSafeKey::new(key))))
            }
            _ => None,
        }
    }

    pub fn seal(&self, plain: &[u8], path: &[u8]) -> Result<Vec<u8>, SealError> {
        let Self::Seed(seed) = self else { return Err(SealError::Cipher) };
        let info = random::<SEED>()?;
        let key = derive(seed, &info).ok_or(SealError::Cipher)?;
        Ok([&info[..], &seal_gcm(&key, plain, path)?].concat())
    }

    pub fn open(&self, sealed: &[u8], path: &[u8]) -> Result<Vec<u8>, OpenError> {
        match self {
            Self::Key(key) => open_gcm(key, sealed, path),
            Self::Seed(seed) => {
                let (info, data) = sealed.split_at_checked(SEED).ok_or(OpenError::Short)?;
                open_gcm(&derive(seed, info).ok_or(OpenError::Refused)?, data, path)
            }
        }
    }
}

fn derive(seed: &Prk, info: &[u8]) -> Option<LessSafeKey> {
    let info = [info];
    let key = seed.expand(&info, &aead::AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(key)))
}
