//! What both versions of OpenAPI have in common in gnostic's protobuf form: how fields are written, and the keywords of
//! schemas that have the same form in both, under numbers of their own.
//!
//! Field numbers: <https://github.com/google/gnostic-models>, `openapiv2/OpenAPIv2.proto` and `openapiv3/OpenAPIv3.proto`.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V2,
    V3,
}

/// Whether a client asks for the form. Clients spell the type with an `@` or, as the answer does, with a dot.
pub fn accepted(accept: &str, version: Version) -> bool {
    let version = if version == Version::V2 { "v2" } else { "v3" };
    ["@", "."]
        .iter()
        .any(|mark| accept.contains(&format!("com.github.proto-openapi.spec.{version}{mark}v1.0+protobuf")))
}

/// How the value of a keyword is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// A whole number or a truth value.
    Number,
    Double,
    /// A field for each.
    Texts,
    /// A field for each.
    Anything,
}

/// Keywords with their field numbers in version 2 and 3.
const KEYWORDS: [(&str, Form, u64, u64); 18] = [
    ("format", Form::Text, 2, 35),
    ("title", Form::Text, 3, 9),
    ("description", Form::Text, 4, 34),
    ("multipleOf", Form::Double, 6, 10),
    ("maximum", Form::Double, 7, 11),
    ("exclusiveMaximum", Form::Number, 8, 12),
    ("minimum", Form::Double, 9, 13),
    ("exclusiveMinimum", Form::Number, 10, 14),
    ("maxLength", Form::Number, 11, 15),
    ("minLength", Form::Number, 12, 16),
    ("pattern", Form::Text, 13, 17),
    ("maxItems", Form::Number, 14, 18),
    ("minItems", Form::Number, 15, 19),
    ("uniqueItems", Form::Number, 16, 20),
    ("maxProperties", Form::Number, 17, 21),
    ("minProperties", Form::Number, 18, 22),
    ("required", Form::Texts, 19, 23),
    ("enum", Form::Anything, 20, 24),
];

/// Writes a keyword of a schema that both versions write alike, or an extension. Of any other nothing is written: who has
/// more to say of schemas says it first.
pub fn put_keyword(out: &mut Vec<u8>, version: Version, key: &str, value: &Value) {
    if key.starts_with("x-") {
        let tag = if version == Version::V2 { 31 } else { 36 };
        return put_named(out, tag, key, &any(value));
    }
    let Some((_, form, v2, v3)) = KEYWORDS.iter().find(|(name, ..)| *name == key) else { return };
    let tag = if version == Version::V2 { *v2 } else { *v3 };
    match form {
        Form::Text => put(out, tag, text(value)),
        Form::Number => put_number(out, tag, value),
        Form::Double => put_double(out, tag, value),
        Form::Texts => items(value).filter(|one| one.is_string()).for_each(|one| put(out, tag, text(one))),
        Form::Anything => items(value).for_each(|one| put(out, tag, &any(one))),
    }
}

pub fn text(value: &Value) -> &[u8] {
    value.as_str().unwrap_or_default().as_bytes()
}

pub fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A map (1) of names with their messages.
pub fn map(value: &Value, message: impl Fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    members(value).for_each(|(name, member)| put_named(&mut out, 1, name, &message(member)));
    out
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// A length-delimited field.
pub fn put(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    varint(out, tag << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A whole number or a truth value.
pub fn put_number(out: &mut Vec<u8>, tag: u64, value: &Value) {
    let number = value.as_u64().or_else(|| value.as_bool().map(u64::from)).unwrap_or_default();
    varint(out, tag << 3);
    varint(out, number);
}

pub fn put_double(out: &mut Vec<u8>, tag: u64, value: &Value) {
    varint(out, tag << 3 | 1);
    out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
}

/// A name (1) with its message (2).
pub fn put_named(out: &mut Vec<u8>, tag: u64, name: &str, message: &[u8]) {
    let mut pair = Vec::with_capacity(name.len() + message.len() + 8);
    put(&mut pair, 1, name.as_bytes());
    put(&mut pair, 2, message);
    put(out, tag, &pair);
}

/// Wraps a message into the field 1 of another.
pub fn wrapped(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 4);
    put(&mut out, 1, message);
    out
}

/// gnostic's `Any`: the value as YAML (2), which JSON is.
pub fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 2, value.to_string().as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keywords_have_numbers_of_their_own_in_each_version() {
        let written = |version, key: &str, value: Value| {
            let mut out = Vec::new();
            put_keyword(&mut out, version, key, &value);
            out
        };
        assert_eq!(written(Version::V2, "pattern", json!("a")), [106, 1, b'a']);
        assert_eq!(written(Version::V3, "pattern", json!("a")), [0x8a, 1, 1, b'a']);
        assert_eq!(written(Version::V2, "maxLength", json!(300)), [88, 0xac, 2]);
        assert_eq!(written(Version::V3, "uniqueItems", json!(true)), [0xa0, 1, 1]);
        assert_eq!(written(Version::V2, "required", json!(["a", "b"])), [0x9a, 1, 1, b'a', 0x9a, 1, 1, b'b']);
        assert_eq!(written(Version::V3, "enum", json!([1])), [0xc2, 1, 3, 18, 1, b'1']);
        assert_eq!(written(Version::V2, "x-a", json!(1))[..2], [0xfa, 1]);
        assert_eq!(written(Version::V3, "x-a", json!(1))[..2], [0xa2, 2]);
        assert_eq!(written(Version::V2, "properties", json!({})), [0; 0], "it has another form in each");
    }

    #[test]
    fn both_spellings_are_accepted() {
        for accept in [
            "a/b, application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            "com.github.proto-openapi.spec.v3.v1.0+protobuf",
        ] {
            assert!(accepted(accept, Version::V3) && !accepted(accept, Version::V2), "{accept}");
        }
        assert!(!accepted("application/json", Version::V2));
    }
}
