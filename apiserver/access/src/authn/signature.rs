//! The arithmetic of tokens' signatures: ring's, which TLS has in the binary anyway. Of its own jsonwebtoken offers a second
//! implementation of curves, and one of RSA whose time tells of its keys (RUSTSEC-2023-0071).

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error as SignatureError, Signer, Verifier};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey, Header, TokenData, Validation,
};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED, ED25519, EcdsaKeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Once;

/// JSON Web Keys are read without it; none is made.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// The library asks one provider of the process, and remembers whom it found first.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| PROVIDER.install_default().expect("tokens are signed and checked here alone"));
}

/// A token, signed with ES256.
///
/// # Errors
/// Another algorithm, or a key that is none of its.
pub fn encode<T: Serialize>(header: &Header, claims: &T, key: &EncodingKey) -> Result<String> {
    install();
    jsonwebtoken::encode(header, claims, key)
}

/// What a token says, if the key has signed it with an algorithm that `validation` allows and that has a public key. Keys of
/// RSA have 2048 to 8192 bits.
///
/// # Errors
/// The signature, or what else `validation` asks for.
pub fn decode<T: DeserializeOwned + Clone>(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
) -> Result<TokenData<T>> {
    install();
    jsonwebtoken::decode(token, key, validation)
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    if *algorithm != Algorithm::ES256 || key.family() != AlgorithmFamily::Ec {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_bytes(), &random);
    let pair = pair.map_err(|_| ErrorKind::InvalidEcdsaKey)?;
    Ok(Box::new(Es256 { pair, random }))
}

struct Es256 {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer<Vec<u8>> for Es256 {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, SignatureError> {
        let signature = self.pair.sign(&self.random, message).map_err(|_| SignatureError::new())?;
        Ok(signature.as_ref().to_vec())
    }
}

impl JwtSigner for Es256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let (family, scheme) = scheme(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
    if key.family() != family {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(PublicKey { algorithm: *algorithm, scheme, key: key.clone() }))
}

/// What a signature is checked by.
#[derive(Clone, Copy)]
enum Scheme {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

/// `None` for those with a shared secret, and what is not known.
fn scheme(algorithm: Algorithm) -> Option<(AlgorithmFamily, Scheme)> {
    let rsa = |parameters| Some((AlgorithmFamily::Rsa, Scheme::Rsa(parameters)));
    match algorithm {
        Algorithm::RS256 => rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Some((AlgorithmFamily::Ec, Scheme::Curve(&ECDSA_P256_SHA256_FIXED))),
        Algorithm::ES384 => Some((AlgorithmFamily::Ec, Scheme::Curve(&ECDSA_P384_SHA384_FIXED))),
        Algorithm::EdDSA => Some((AlgorithmFamily::Ed, Scheme::Curve(&ED25519))),
        _ => None,
    }
}

struct PublicKey {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for PublicKey {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), SignatureError> {
        let verified = match (self.scheme, self.key.kind()) {
            (Scheme::Rsa(scheme), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(scheme, message, signature)
            }
            (Scheme::Curve(scheme), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(scheme, key).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for PublicKey {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
