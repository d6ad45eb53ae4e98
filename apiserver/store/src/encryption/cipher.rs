//! The three ciphers that work with a key from the configuration.

use super::OpenError;
use super::chain::SealError;
use aes::{Aes128, Aes192, Aes256};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use crypto_secretbox::aead::{AeadInPlace, KeyInit};
use crypto_secretbox::{Nonce, Tag, XSalsa20Poly1305};
use rand::TryRngCore;
use rand::rngs::OsRng;
use ring::aead::{self, Aad, LessSafeKey, UnboundKey};

/// Bytes of an AES block, and of the initialization vector in front of what `aescbc` has written.
const BLOCK: usize = 16;
/// Bytes of AES-GCM's nonce, which stands in front of the data.
const GCM_NONCE: usize = aead::NONCE_LEN;
/// Bytes of XSalsa20's nonce, which stands in front of tag and data. So long that random ones do not meet.
const BOX_NONCE: usize = 24;
const BOX_TAG: usize = 16;

/// One key at work.
pub(super) enum Cipher {
    Secretbox(Box<XSalsa20Poly1305>),
    AesGcm(Box<LessSafeKey>),
    AesCbc(CbcKey),
}

pub(super) enum CbcKey {
    Aes128([u8; 16]),
    Aes192([u8; 24]),
    Aes256([u8; 32]),
}

impl Cipher {
    /// `None` unless the key has 32 bytes.
    pub fn secretbox(key: &[u8]) -> Option<Self> {
        XSalsa20Poly1305::new_from_slice(key).ok().map(|key| Self::Secretbox(Box::new(key)))
    }

    /// `None` unless the key has 16 or 32 bytes.
    pub fn aes_gcm(key: &[u8]) -> Option<Self> {
        let algorithm = match key.len() {
            16 => &aead::AES_128_GCM,
            32 => &aead::AES_256_GCM,
            _ => return None,
        };
        let key = UnboundKey::new(algorithm, key).ok()?;
        Some(Self::AesGcm(Box::new(LessSafeKey::new(key))))
    }

    /// `None` unless the key has 16, 24 or 32 bytes.
    pub fn aes_cbc(key: &[u8]) -> Option<Self> {
        let key = match key.len() {
            16 => CbcKey::Aes128(key.try_into().ok()?),
            24 => CbcKey::Aes192(key.try_into().ok()?),
            32 => CbcKey::Aes256(key.try_into().ok()?),
            _ => return None,
        };
        Some(Self::AesCbc(key))
    }

    /// Encrypts for the object at `path`; only AES-GCM binds to it.
    pub fn seal(&self, plain: &[u8], path: &[u8]) -> Result<Vec<u8>, SealError> {
        match self {
            Self::Secretbox(key) => seal_box(key, plain),
            Self::AesGcm(key) => seal_gcm(key, plain, path),
            Self::AesCbc(key) => {
                let iv = random::<BLOCK>()?;
                Ok([&iv[..], &key.encrypt(&iv, plain)?].concat())
            }
        }
    }

    pub fn open(&self, sealed: &[u8], path: &[u8]) -> Result<Vec<u8>, OpenError> {
        match self {
            Self::Secretbox(key) => open_box(key, sealed),
            Self::AesGcm(key) => open_gcm(key, sealed, path),
            Self::AesCbc(key) => {
                let (iv, data) = sealed.split_at_checked(BLOCK).ok_or(OpenError::Short)?;
                key.decrypt(iv, data)
            }
        }
    }
}

impl CbcKey {
    fn encrypt(&self, iv: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        fn with<C: BlockEncryptMut + KeyIvInit>(key: &[u8], iv: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
            Some(C::new_from_slices(key, iv).ok()?.encrypt_padded_vec_mut::<Pkcs7>(plain))
        }
        let done = match self {
            Self::Aes128(key) => with::<cbc::Encryptor<Aes128>>(key, iv, plain),
            Self::Aes192(key) => with::<cbc::Encryptor<Aes192>>(key, iv, plain),
            Self::Aes256(key) => with::<cbc::Encryptor<Aes256>>(key, iv, plain),
        };
        done.ok_or(SealError::Cipher)
    }

    /// Nothing authenticates the data: a wrong key is noticed by the padding alone, mostly.
    fn decrypt(&self, iv: &[u8], data: &[u8]) -> Result<Vec<u8>, OpenError> {
        fn with<C: BlockDecryptMut + KeyIvInit>(key: &[u8], iv: &[u8], data: &[u8]) -> Option<Vec<u8>> {
            C::new_from_slices(key, iv).ok()?.decrypt_padded_vec_mut::<Pkcs7>(data).ok()
        }
        if data.is_empty() || !data.len().is_multiple_of(BLOCK) {
            return Err(OpenError::Blocks);
        }
        let done = match self {
            Self::Aes128(key) => with::<cbc::Decryptor<Aes128>>(key, iv, data),
            Self::Aes192(key) => with::<cbc::Decryptor<Aes192>>(key, iv, data),
            Self::Aes256(key) => with::<cbc::Decryptor<Aes256>>(key, iv, data),
        };
        done.ok_or(OpenError::Padding)
    }
}

/// Random bytes of the system: a guessable nonce would give the data away.
pub(super) fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    OsRng.try_fill_bytes(&mut bytes).map_err(|e| SealError::Random(e.to_string()))?;
    Ok(bytes)
}

fn seal_box(key: &XSalsa20Poly1305, plain: &[u8]) -> Result<Vec<u8>, SealError> {
    let nonce = random::<BOX_NONCE>()?;
    let mut sealed = Vec::with_capacity(BOX_NONCE + BOX_TAG + plain.len());
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(&[0; BOX_TAG]);
    sealed.extend_from_slice(plain);
    let (head, data) = sealed.split_at_mut(BOX_NONCE + BOX_TAG);
    let tag = key.encrypt_in_place_detached(&Nonce::from(nonce), b"", data);
    head[BOX_NONCE..].copy_from_slice(&tag.map_err(|_| SealError::Cipher)?);
    Ok(sealed)
}

fn open_box(key: &XSalsa20Poly1305, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
    let (nonce, rest) = sealed.split_first_chunk::<BOX_NONCE>().ok_or(OpenError::Short)?;
    let (tag, data) = rest.split_first_chunk::<BOX_TAG>().ok_or(OpenError::Short)?;
    let mut plain = data.to_vec();
    let (nonce, tag) = (Nonce::from(*nonce), Tag::from(*tag));
    key.decrypt_in_place_detached(&nonce, b"", &mut plain, &tag).map_err(|_| OpenError::Refused)?;
    Ok(plain)
}

pub(super) fn seal_gcm(key: &LessSafeKey, plain: &[u8], path: &[u8]) -> Result<Vec<u8>, SealError> {
    let nonce = random::<GCM_NONCE>()?;
    let mut sealed = Vec::with_capacity(GCM_NONCE + plain.len() + aead::MAX_TAG_LEN);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(plain);
    let unique = aead::Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(unique, Aad::from(path), &mut sealed[GCM_NONCE..]);
    sealed.extend_from_slice(tag.map_err(|_| SealError::Cipher)?.as_ref());
    Ok(sealed)
}

pub(super) fn open_gcm(key: &LessSafeKey, sealed: &[u8], path: &[u8]) -> Result<Vec<u8>, OpenError> {
    let (nonce, data) = sealed.split_at_checked(GCM_NONCE).ok_or(OpenError::Short)?;
    let nonce = aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Short)?;
    let mut plain = data.to_vec();
    let length = key.open_in_place(nonce, Aad::from(path), &mut plain).map_err(|_| OpenError::Refused)?.len();
    plain.truncate(length);
    Ok(plain)
}
