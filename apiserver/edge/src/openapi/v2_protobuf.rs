//! OpenAPI v2 in gnostic's protobuf form, by which kubectl checks what it sends when a kind has no request of its own (a
//! `List`, a document without a kind).
//!
//! Field numbers: <https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto>.

use super::v2_protobuf_paths::shared_parameter;
use serde_json::Value;

pub const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Clients spell the type with an `@` or, as the answer does, with a dot.
pub fn accepted(accept: &str) -> bool {
    accept.contains("com.github.proto-openapi.spec.v2@v1.0+protobuf")
        || accept.contains("com.github.proto-openapi.spec.v2.v1.0+protobuf")
}

/// What stands before the paths and definitions, and behind them.
pub fn ends() -> (Vec<u8>, Vec<u8>) {
    let mut info = Vec::new();
    put(&mut info, 1, b"Kubernetes");
    put(&mut info, 2, coracle_component_base::version::GIT_VERSION.as_bytes());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    put(&mut before, 1, b"2.0");
    put(&mut before, 2, &info);
    let mut parameters = Vec::new();
    for (name, shared) in super::v2::shared_parameters() {
        put_named(&mut parameters, 1, &name, &shared_parameter(&shared));
    }
    put(&mut after, 10, &parameters);
    // The token that every request carries, and how.
    put(&mut after, 12, &named(BEARER, &[]));
    put(&mut after, 13, &named(BEARER, &bearer()));
    (before, after)
}

const BEARER: &str = "BearerToken";

/// A map (1) of one name with its message.
fn named(name: &str, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_named(&mut out, 1, name, message);
    out
}

/// A key (2) with its type (1), name (2), place (3) and description (4).
fn bearer() -> Vec<u8> {
    let mut key = Vec::new();
    for (tag, text) in
        [(1, "apiKey"), (2, "authorization"), (3, "header"), (4, "Bearer Token authentication")]
    {
        put(&mut key, tag, text.as_bytes());
    }
    let mut out = Vec::new();
    put(&mut out, 2, &key);
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
pub(super) fn put(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    varint(out, tag << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A whole number or a truth value.
pub(super) fn put_number(out: &mut Vec<u8>, tag: u64, value: &Value) {
    let number = value.as_u64().or_else(|| value.as_bool().map(u64::from)).unwrap_or_default();
    varint(out, tag << 3);
    varint(out, number);
}

pub(super) fn put_double(out: &mut Vec<u8>, tag: u64, value: &Value) {
    varint(out, tag << 3 | 1);
    out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
}

/// A name (1) with its message (2).
pub(super) fn put_named(out: &mut Vec<u8>, tag: u64, name: &str, message: &[u8]) {
    let mut pair = Vec::with_capacity(name.len() + message.len() + 8);
    put(&mut pair, 1, name.as_bytes());
    put(&mut pair, 2, message);
    put(out, tag, &pair);
}

/// Wraps a message into the field 1 of another.
pub(super) fn wrapped(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 4);
    put(&mut out, 1, message);
    out
}

/// gnostic's `Any`: the value as YAML (2), which JSON is.
pub(super) fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 2, value.to_string().as_bytes());
    out
}

pub(super) fn encode(schema: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default().as_bytes();
        match key.as_str() {
            "$ref" => put(&mut out, 1, text),
            "format" => put(&mut out, 2, text),
            "title" => put(&mut out, 3, text),
            "description" => put(&mut out, 4, text),
            "default" => put(&mut out, 5, &any(value)),
            "pattern" => put(&mut out, 13, text),
            "multipleOf" => put_double(&mut out, 6, value),
            "maximum" => put_double(&mut out, 7, value),
            "exclusiveMaximum" => put_number(&mut out, 8, value),
            "minimum" => put_double(&mut out, 9, value),
            "exclusiveMinimum" => put_number(&mut out, 10, value),
            "maxLength" => put_number(&mut out, 11, value),
            "minLength" => put_number(&mut out, 12, value),
            "maxItems" => put_number(&mut out, 14, value),
            "minItems" => put_number(&mut out, 15, value),
            "uniqueItems" => put_number(&mut out, 16, value),
            "maxProperties" => put_number(&mut out, 17, value),
            "minProperties" => put_number(&mut out, 18, value),
            "required" => value.as_array().into_iter().flatten().filter_map(Value::as_str).for_each(|name| {
                put(&mut out, 19, name.as_bytes());
            }),
            "enum" => value.as_array().into_iter().flatten().for_each(|one| put(&mut out, 20, &any(one))),
            "additionalProperties" if value.is_boolean() => {
                let mut item = Vec::new();
                put_number(&mut item, 2, value);
                put(&mut out, 21, &item);
            }
            "additionalProperties" if value.is_object() => put(&mut out, 21, &wrapped(&encode(value))),
            "type" => put(&mut out, 22, &wrapped(text)),
            "items" => put(&mut out, 23, &wrapped(&encode(value))),
            "properties" => {
                let mut properties = Vec::new();
                for (name, property) in value.as_object().into_iter().flatten() {
                    put_named(&mut properties, 1, name, &encode(property));
                }
                put(&mut out, 25, &properties);
            }
            extension if extension.starts_with("x-") => put_named(&mut out, 31, extension, &any(value)),
            // Nothing else stands in the definitions; a test says so.
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_api::catalogue;
    use serde_json::json;

    #[test]
    fn a_schema_as_gnostic_numbers_it() {
        let schema = json!({ "type": "string", "$ref": "#/x", "x-a": 1 });
        let want = [
            &[10, 3][..],
            b"#/x",
            &[0xb2, 1, 8, 10, 6],
            b"string",
            &[0xfa, 1, 10, 10, 3],
            b"x-a",
            &[18, 3, 18, 1],
            b"1",
        ];
        assert_eq!(encode(&schema), want.concat());
    }

    #[test]
    fn no_keyword_of_the_definitions_is_lost() {
        const KNOWN: [&str; 12] = [
            "$ref",
            "format",
            "title",
            "description",
            "default",
            "pattern",
            "required",
            "enum",
            "additionalProperties",
            "type",
            "items",
            "properties",
        ];
        fn check(schema: &Value) {
            for (key, value) in schema.as_object().into_iter().flatten() {
                assert!(KNOWN.contains(&key.as_str()) || key.starts_with("x-"), "{key}");
                match key.as_str() {
                    "properties" => value.as_object().into_iter().flatten().for_each(|(_, p)| check(p)),
                    "items" | "additionalProperties" => check(value),
                    _ => {}
                }
            }
        }
        super::super::v2::definitions(catalogue::catalogue(), &mut |_, schema| check(schema));
    }
}
