//! How others verify service-account tokens:
//! <https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery>.

use super::{ISSUER, ServiceAccountTokens};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Served at `/.well-known/openid-configuration` (as `application/json`).
pub fn configuration(server_url: &str) -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{}/openid/v1/jwks", server_url.trim_end_matches('/')),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

/// Served at `/openid/v1/jwks` (as `application/jwk-set+json`).
pub fn jwks(tokens: &ServiceAccountTokens) -> Value {
    let (x, y) = tokens.point()[1..].split_at(32);
    json!({ "keys": [{
        "use": "sig", "kty": "EC", "kid": tokens.kid(), "crv": "P-256", "alg": "ES256",
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
    }] })
}
