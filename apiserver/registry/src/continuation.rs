//! Continue tokens, in upstream's form. Clients treat them as opaque.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine};
use coracle_api::decode::{json_kind, parse};
use serde::Serialize;
use serde_json::{Map, Value};

const VERSION: &str = "meta.k8s.io/v1";

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Token {
    v: String,
    /// Negative continues at whatever revision is now.
    pub rv: i64,
    /// `<namespace>/<name>` after which the next page begins.
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
        let token = Self::read(&bytes).map_err(|why| format!("continue key is not valid: {why}"))?;
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

    /// In the words of Go's decoder: what is absent or null is zero, what is unknown is left.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let (value, _) = parse(bytes).map_err(|error| error.to_string())?;
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => {
                let kind = json_kind(&other);
                return Err(format!(
                    "json: cannot unmarshal {kind} into Go value of type storage.continueToken"
                ));
            }
        };
        let of = |name: &str| fields.get(name).unwrap_or(&Value::Null);
        let wrong = |name: &str, found: String, ty: &str| {
            format!("json: cannot unmarshal {found} into Go struct field continueToken.{name} of type {ty}")
        };
        let text = |name: &str| match of(name) {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            other => Err(wrong(name, json_kind(other), "string")),
        };
        let rv = match of("rv") {
            Value::Null => 0,
            // Only numbers that do not fit are named.
            Value::Number(n) => n.as_i64().ok_or_else(|| wrong("rv", format!("number {n}"), "int64"))?,
            other => return Err(wrong("rv", json_kind(other), "int64")),
        };
        Ok(Self { v: text("v")?, rv, start: text("start")? })
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
        for (json, words) in [
            ("i\u{b7}", "invalid character 'i' looking for beginning of value"),
            ("", "unexpected end of JSON input"),
            ("5", "json: cannot unmarshal number into Go value of type storage.continueToken"),
            (
                r#"{"v":5}"#,
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":"1"}"#,
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                r#"{"rv":1.5}"#,
                "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            ("null", "server does not recognize this encoded version "),
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
