//! The public keys of an issuer, and what they have signed.

use super::mapping::Claims;
use crate::authn::signature;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::Value;
use std::str::FromStr;

/// All that sign with a private key, as far as the library has them: P-521 (`ES512`) it has not.
pub const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::EdDSA,
];

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

struct Key {
    kid: Option<String>,
    /// What the key may have signed with: never what a token alone says.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Why a token's signature does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// No key may be the one that signed it; a newer set may have it.
    NoKey,
    Bad(String),
}

/// A JSON Web Key Set (RFC 7517).
pub struct Keys(Vec<Key>);

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl Keys {
    /// Keys of kinds that are not known, and those that are not for signatures, are left out.
    ///
    /// # Errors
    /// A document that is no set.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        let set: Set = serde_json::from_slice(document).map_err(|e| format!("no JSON Web Key Set: {e}"))?;
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Ok(Self(keys.filter_map(|jwk| Key::of(&jwk)).collect()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The claims of a token that one of these keys signed.
    ///
    /// # Errors
    /// [`Unverified`]
    pub fn verify(&self, token: &str, header: &Header) -> Result<Claims, Unverified> {
        let kid = header.kid.as_deref().filter(|kid| !kid.is_empty());
        let fits = |key: &&Key| kid.is_none_or(|kid| key.kid.as_deref() == Some(kid));
        let mut last = Unverified::NoKey;
        for key in self.0.iter().filter(fits) {
            if !key.algorithms.contains(&header.alg) {
                last = Unverified::Bad(format!("the key is not for {:?}", header.alg));
                continue;
            }
            // Times and audiences are judged by the caller's clock.
            let mut validation = Validation::new(header.alg);
            validation.validate_exp = false;
            validation.validate_aud = false;
            validation.required_spec_claims.clear();
            match signature::decode::<Claims>(token, &key.key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => last = Unverified::Bad(format!("failed to verify id token signature: {error}")),
            }
        }
        // Without a name any key may have been meant, one of a newer set too.
        if kid.is_none() { Err(Unverified::NoKey) } else { Err(last) }
    }
}

impl Key {
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let mut algorithms: Vec<Algorithm> = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => RSA.to_vec(),
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            // Shared secrets are no public keys.
            _ => return None,
        };
        if let Some(said) = common.key_algorithm {
            let said = Algorithm::from_str(&said.to_string()).ok()?;
            algorithms.retain(|one| *one == said);
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        (!algorithms.is_empty()).then(|| Self { kid: common.key_id.clone(), algorithms, key })
    }
}
