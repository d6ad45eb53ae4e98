//! An issuer of ID tokens on loopback: OpenID Connect discovery, keys that can be exchanged, and what they sign.

use crate::hook::{Hook, Told};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

type Published = Arc<Mutex<Vec<Value>>>;

/// Ends with the value.
pub struct Provider {
    hook: Hook,
    published: Published,
}

/// A key of ES256 and its name.
pub struct SigningKey {
    kid: String,
    key: EcdsaKeyPair,
}

impl SigningKey {
    /// A new key.
    pub fn new(kid: &str) -> Self {
        let pkcs8 = KeyPair::generate().expect("a key").serialize_der();
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random);
        Self { kid: kid.to_owned(), key: key.expect("a key of P-256") }
    }

    fn jwk(&self) -> Value {
        // 0x04, then each half of the point.
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": self.kid, "x": text(x), "y": text(y)})
    }

    /// A token with exactly these claims.
    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": self.kid});
        let message = format!("{}.{}", text(header.to_string()), text(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).expect("a signature");
        format!("{message}.{}", text(signature))
    }
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Provider {
    /// Serves the public part of `keys`.
    pub fn start(keys: &[&SigningKey]) -> Self {
        let published = Published::default();
        let shown = published.clone();
        let hook = Hook::start(move |call| {
            let issuer = format!("https://{}", call.header("host"));
            match call.route() {
                "/.well-known/openid-configuration" => {
                    Told::json(200, &json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}))
                }
                "/keys" => {
                    let keys = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    Told::json(200, &json!({"keys": keys}))
                }
                _ => Told::text(404, "not found"),
            }
        });
        let provider = Self { hook, published };
        provider.publish(keys);
        provider
    }

    /// From now on these keys are served, and no others.
    pub fn publish(&self, keys: &[&SigningKey]) {
        let keys = keys.iter().map(|key| key.jwk()).collect();
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// The issuer's URL.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.hook.port())
    }

    /// Its authority, in PEM.
    pub fn authority(&self) -> String {
        let pem = STANDARD.decode(self.hook.bundle()).expect("base64");
        String::from_utf8(pem).expect("PEM")
    }

    /// Claims of a token for `audience` that is good for ten minutes.
    pub fn claims(&self, user: &str, audience: &str) -> Value {
        json!({"iss": self.url(), "aud": audience, "sub": user, "exp": now() + 600, "nbf": now()})
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
