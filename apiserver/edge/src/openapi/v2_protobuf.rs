//! OpenAPI v2 in gnostic's protobuf form, by which kubectl checks what it sends when a kind has no request of its own (a
//! `List`, a document without a kind).
//!
//! Field numbers: <https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto>.

use super::gnostic::{Version, any, map, members, put, put_keyword, put_named, put_number, text, wrapped};
use super::v2_protobuf_paths::shared_parameter;
use serde_json::Value;

pub const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

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

pub(super) fn encode(schema: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(schema) {
        match key {
            "$ref" => put(&mut out, 1, text(value)),
            "default" => put(&mut out, 5, &any(value)),
            "additionalProperties" if value.is_boolean() => {
                let mut item = Vec::new();
                put_number(&mut item, 2, value);
                put(&mut out, 21, &item);
            }
            "additionalProperties" if value.is_object() => put(&mut out, 21, &wrapped(&encode(value))),
            "type" => put(&mut out, 22, &wrapped(text(value))),
            "items" => put(&mut out, 23, &wrapped(&encode(value))),
            "properties" => put(&mut out, 25, &map(value, encode)),
            // Nothing but these stands in the definitions; a test says so.
            key => put_keyword(&mut out, Version::V2, key, value),
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
