//! What issuers sign tokens with, for tests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

/// A private key, of one kind each.
pub enum PrivateKey {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl PrivateKey {
    /// PKCS #1.
    pub fn rsa(der: &[u8]) -> Self {
        Self::Rsa(RsaKeyPair::from_der(der).unwrap())
    }

    /// PKCS #8.
    pub fn p256(der: &[u8]) -> Self {
        let random = SystemRandom::new();
        Self::P256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random).unwrap())
    }

    /// PKCS #8.
    pub fn p384(der: &[u8]) -> Self {
        let random = SystemRandom::new();
        Self::P384(EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, der, &random).unwrap())
    }

    pub fn ed25519(seed: &[u8; 32]) -> Self {
        Self::Ed25519(Ed25519KeyPair::from_seed_unchecked(seed).unwrap())
    }

    /// The public half (RFC 7517, 8037).
    pub fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(pair) => {
                let RsaPublicKeyComponents::<Vec<u8>> { n, e } = pair.public().into();
                json!({ "kty": "RSA", "kid": kid, "n": text(n), "e": text(e) })
            }
            Self::P256(pair) => curve("P-256", kid, pair.public_key().as_ref()),
            Self::P384(pair) => curve("P-384", kid, pair.public_key().as_ref()),
            Self::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": text(pair.public_key()) })
            }
        }
    }

    /// A token with exactly these claims.
    pub fn token(&self, algorithm: Algorithm, kid: &str, claims: &Value) -> String {
        token(algorithm, kid, claims, |message| self.sign(algorithm, message))
    }

    fn sign(&self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(padding(algorithm), &random, message, &mut signature).unwrap();
                signature
            }
            Self::P256(pair) | Self::P384(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

/// A token (RFC 7515) with whatever `sign` says.
pub fn token(algorithm: Algorithm, kid: &str, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let header = json!({ "alg": algorithm, "typ": "JWT", "kid": kid });
    let message = format!("{}.{}", text(header.to_string()), text(claims.to_string()));
    let signature = text(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn padding(algorithm: Algorithm) -> &'static dyn RsaEncoding {
    match algorithm {
        Algorithm::RS256 => &RSA_PKCS1_SHA256,
        Algorithm::RS384 => &RSA_PKCS1_SHA384,
        Algorithm::RS512 => &RSA_PKCS1_SHA512,
        Algorithm::PS256 => &RSA_PSS_SHA256,
        Algorithm::PS384 => &RSA_PSS_SHA384,
        Algorithm::PS512 => &RSA_PSS_SHA512,
        other => panic!("{other:?} is not of RSA"),
    }
}

fn curve(name: &str, kid: &str, point: &[u8]) -> Value {
    let (x, y) = point[1..].split_at(point.len() / 2);
    json!({ "kty": "EC", "crv": name, "kid": kid, "x": text(x), "y": text(y) })
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
