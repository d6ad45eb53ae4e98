//! How others verify service-account tokens:
//! <https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery>.

use super::ServiceAccountTokens;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";

/// For how long verifiers may keep the documents; upstream's hour.
pub const CACHE_CONTROL: &str = "public, max-age=3600";

/// The fields of upstream's structs: of the configuration, and of a key.
pub const ORDER: &[&str] = &[
    "issuer",
    "jwks_uri",
    "response_types_supported",
    "subject_types_supported",
    "id_token_signing_alg_values_supported",
    "use",
    "kty",
    "kid",
    "crv",
    "alg",
    "x",
    "y",
];

/// Media type and document, for the two paths where there is one.
pub fn respond(path: &str, tokens: &ServiceAccountTokens) -> Option<(&'static str, Value)> {
    match path.strip_suffix('/').unwrap_or(path) {
        CONFIGURATION => Some(("application/json", configuration(tokens))),
        KEYS => Some(("application/jwk-set+json", jwks(tokens))),
        _ => None,
    }
}

pub fn configuration(tokens: &ServiceAccountTokens) -> Value {
    json!({
        "issuer": tokens.issuer(),
        "jwks_uri": tokens.jwks_uri(),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

pub fn jwks(tokens: &ServiceAccountTokens) -> Value {
    let (x, y) = tokens.point()[1..].split_at(32);
    json!({ "keys": [{
        "use": "sig", "kty": "EC", "kid": tokens.kid(), "crv": "P-256", "alg": "ES256",
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
    }] })
}
