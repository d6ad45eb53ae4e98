//! Continue tokens, in upstream's form. Clients treat them as opaque.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine};
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    #[serde(default)]
    v: String,
    /// Negative continues at whatever revision is now.
    #[serde(default)]
    pub rv: i64,
    /// `<namespace>/<name>` after which the next page begins.
    #[serde(default)]
    pub start: String,
}

impl Token {
    pub fn new(rv: i64, start: String) -> Self {
        Self { v: VERSION.to_owned(), rv, start }
    }

    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// # Errors
    /// Upstream's words for a text that is no token of its making.
    pub fn decode(text: &str) -> Result<Self, String> {
        let illegal = |error: DecodeError| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                // Cut off: Go names the beginning of what is incomplete.
                DecodeError::InvalidLength(length) => length - length % 4,
                DecodeError::InvalidPadding => text.len(),
            };
            format!("continue key is not valid: illegal base64 data at input byte {at}")
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(illegal)?;
        let token: Self =
            serde_json::from_slice(&bytes).map_err(|e| format!("continue key is not valid: {e}"))?;
        if token.v != VERSION {
            let what = "server does not recognize this encoded version";
            return Err(format!("continue key is not valid: {what} {}", token.v));
        }
        if token.rv == 0 {
            return Err(format!(
                "continue key is not valid: incorrect encoded start resourceVersion (version {VERSION})"
            ));
        }
        if token.start.is_empty() {
            return Err(format!("continue key is not valid: encoded start key empty (version {VERSION})"));
        }
        // Names are single steps of a path: nothing that climbs out of the resource is of our making.
        if token.start.split('/').any(|step| matches!(step, "." | "..")) {
            return Err(format!("continue key is not valid: {}", token.start));
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(json: &str) -> String {
        Token::decode(&URL_SAFE_NO_PAD.encode(json)).unwrap_err()
    }

    #[test]
    fn strange_ones() {
        let illegal =
            |at: usize| format!("continue key is not valid: illegal base64 data at input byte {at}");
        assert_eq!(Token::decode("!").unwrap_err(), illegal(0));
        assert_eq!(Token::decode("abcd%").unwrap_err(), illegal(4));
        assert!(refused("nonsense").starts_with("continue key is not valid: "));
        for (json, words) in [
            (r#"{"v":"v9"}"#, "server does not recognize this encoded version v9"),
            (
                r#"{"v":"meta.k8s.io/v1","start":"a/b"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"meta.k8s.io/v1","rv":1}"#, "encoded start key empty (version meta.k8s.io/v1)"),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#, "../x"),
        ] {
            assert_eq!(refused(json), format!("continue key is not valid: {words}"));
        }
    }

    proptest! {
        #[test]
        fn there_and_back(rv in prop_oneof![i64::MIN..0, 1..i64::MAX], start in "[a-z0-9/-]{1,40}") {
            let token = Token::new(rv, start);
            prop_assert_eq!(Token::decode(&token.encode()).unwrap(), token);
        }

        #[test]
        fn any_text(text in ".*") {
            let _ = Token::decode(&text);
        }
    }
}
