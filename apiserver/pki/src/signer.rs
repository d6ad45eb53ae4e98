//! The key pair that signs service-account tokens.

use super::PkiError;
use super::files::{self, NewFile};
use rcgen::{KeyPair, PublicKeyData};
use std::path::Path;

/// EC P-256. The private half stays in here; `Debug` does not show it.
pub struct ServiceAccountKey {
    private_pkcs8: Vec<u8>,
    /// Uncompressed point: 0x04, x, y.
    public_point: Vec<u8>,
    public_spki: Vec<u8>,
}

impl std::fmt::Debug for ServiceAccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceAccountKey").finish_non_exhaustive()
    }
}

impl ServiceAccountKey {
    /// From `sa.key`, or a new one. `sa.pub` follows the key.
    pub(super) fn load_or_make(dir: &Path, new: &mut Vec<NewFile>) -> Result<Self, PkiError> {
        let path = dir.join("sa.key");
        let pair = match files::read(dir, "sa.key")? {
            Some(pem) => KeyPair::from_pem(&pem)
                .map_err(|e| PkiError::Malformed { path: path.clone(), why: e.to_string() })?,
            None => {
                let pair = super::certs::generate_key("sa")?;
                new.push(NewFile { name: "sa.key".to_owned(), contents: pair.serialize_pem() });
                pair
            }
        };
        let own = Self::of(&pair, &path)?;
        let public = pair.public_key_pem();
        if files::read(dir, "sa.pub")?.as_deref() != Some(public.as_str()) {
            new.push(NewFile { name: "sa.pub".to_owned(), contents: public });
        }
        Ok(own)
    }

    /// From a private key's file (PKCS#8 PEM), for whoever signs beside the server.
    pub fn open(path: &Path) -> Result<Self, PkiError> {
        let read = std::fs::read_to_string(path);
        let pem = read.map_err(|source| PkiError::Read { path: path.to_owned(), source })?;
        let malformed = |e: rcgen::Error| PkiError::Malformed { path: path.to_owned(), why: e.to_string() };
        Self::of(&KeyPair::from_pem(&pem).map_err(malformed)?, path)
    }

    fn of(pair: &KeyPair, path: &Path) -> Result<Self, PkiError> {
        if pair.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            let why = "not an EC P-256 key".to_owned();
            return Err(PkiError::Malformed { path: path.to_owned(), why });
        }
        Ok(Self::from_pair(pair))
    }

    fn from_pair(pair: &KeyPair) -> Self {
        Self {
            private_pkcs8: pair.serialize_der(),
            public_point: pair.public_key_raw().to_vec(),
            public_spki: pair.subject_public_key_info(),
        }
    }

    /// A key that is written nowhere.
    pub fn ephemeral() -> Result<Self, PkiError> {
        Ok(Self::from_pair(&super::certs::generate_key("sa")?))
    }

    pub fn private_pkcs8(&self) -> &[u8] {
        &self.private_pkcs8
    }

    pub fn public_point(&self) -> &[u8] {
        &self.public_point
    }

    pub fn public_spki(&self) -> &[u8] {
        &self.public_spki
    }
}
