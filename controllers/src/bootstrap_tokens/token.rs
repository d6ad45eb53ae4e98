//! What a token's Secret says.

use super::{NAMESPACE, TYPE, text};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

/// Whether the Secret is a token's at all.
pub(super) fn is_token(secret: &Secret) -> bool {
    secret.metadata.namespace.as_deref() == Some(NAMESPACE) && secret.type_.as_deref() == Some(TYPE)
}

/// When the token ends; `None` for one that does not. What cannot be read ends at once, as upstream.
pub(super) fn end_of(secret: &Secret) -> Option<Timestamp> {
    match text(secret, "expiration") {
        "" => None,
        time => Some(time.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
    }
}

/// Id and secret of a token that `cluster-info` is signed with at this time.
pub(super) fn signing(secret: &Secret, now: Timestamp) -> Option<(String, String)> {
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    let id = name.strip_prefix("bootstrap-token-").filter(|id| is_id(id))?;
    let key = text(secret, "token-secret");
    let good = is_token(secret)
        && secret.metadata.deletion_timestamp.is_none()
        && text(secret, "token-id") == id
        && !key.is_empty()
        && end_of(secret).is_none_or(|end| end > now)
        && text(secret, "usage-bootstrap-signing") == "true";
    good.then(|| (id.to_owned(), key.to_owned()))
}

fn is_id(id: &str) -> bool {
    id.len() == 6 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn secret(name: &str, data: Value) -> Secret {
        let mut all = json!({ "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true" });
        for (key, value) in data.as_object().unwrap() {
            all[key] = value.clone();
        }
        let mut secret: Secret = serde_json::from_value(
            json!({ "metadata": { "name": name, "namespace": "kube-system" }, "type": TYPE }),
        )
        .unwrap();
        let entries = all.as_object().unwrap().iter();
        let bytes = |v: &Value| k8s_openapi::ByteString(v.as_str().unwrap().as_bytes().to_vec());
        secret.data = Some(entries.map(|(k, v)| (k.clone(), bytes(v))).collect());
        secret
    }

    #[test]
    fn only_whole_tokens_sign() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let signs = |secret: Secret| signing(&secret, now).is_some();
        let good = "bootstrap-token-abcdef";
        assert!(signs(secret(good, json!({}))));
        assert!(signs(secret(good, json!({ "expiration": "2026-01-01T00:00:01Z" }))));
        for (name, data) in [
            ("bootstrap-token-zzzzzz", json!({})),
            ("token-abcdef", json!({})),
            (good, json!({ "token-secret": "" })),
            (good, json!({ "usage-bootstrap-signing": "yes" })),
            (good, json!({ "expiration": "2026-01-01T00:00:00Z" })),
            (good, json!({ "expiration": "tomorrow" })),
        ] {
            assert!(!signs(secret(name, data.clone())), "{name} {data}");
        }
        let mut elsewhere = secret(good, json!({}));
        elsewhere.metadata.namespace = Some("default".to_owned());
        assert!(!signs(elsewhere));
    }
}
