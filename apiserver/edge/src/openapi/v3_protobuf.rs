//! OpenAPI v3 in gnostic's protobuf form, which client-go's discovery can ask for.
//!
//! Field numbers: <https://github.com/google/gnostic-models/blob/main/openapiv3/OpenAPIv3.proto>.

use super::gnostic::{
    Version, any, items, map, members, put, put_double, put_keyword, put_named, put_number, text, wrapped,
};
use serde_json::Value;

pub const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// The whole of a document that [`v3::document`](super::v3::document) made.
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, text(&document["openapi"]));
    let mut info = Vec::new();
    put(&mut info, 1, text(&document["info"]["title"]));
    put(&mut info, 6, text(&document["info"]["version"]));
    put(&mut out, 2, &info);
    put(&mut out, 4, &map(&document["paths"], path_item));
    let mut components = Vec::new();
    for (key, value) in members(&document["components"]) {
        match key {
            "schemas" => put(&mut components, 1, &map(value, schema)),
            "securitySchemes" => {
                put(&mut components, 7, &map(value, |scheme| wrapped(&security_scheme(scheme))))
            }
            _ => {}
        }
    }
    put(&mut out, 5, &components);
    out
}

fn security_scheme(scheme: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, key) in [(1, "type"), (2, "description"), (3, "name"), (4, "in")] {
        put(&mut out, tag, text(&scheme[key]));
    }
    out
}

fn path_item(item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(item) {
        match key {
            "get" => put(&mut out, 4, &operation(value)),
            "put" => put(&mut out, 5, &operation(value)),
            "post" => put(&mut out, 6, &operation(value)),
            "delete" => put(&mut out, 7, &operation(value)),
            "options" => put(&mut out, 8, &operation(value)),
            "head" => put(&mut out, 9, &operation(value)),
            "patch" => put(&mut out, 10, &operation(value)),
            "parameters" => items(value).for_each(|one| put(&mut out, 13, &wrapped(&parameter(one)))),
            // Nothing else stands in paths; a test says so.
            _ => {}
        }
    }
    out
}

fn operation(operation: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(operation) {
        match key {
            "tags" => items(value).for_each(|tag| put(&mut out, 1, text(tag))),
            "description" => put(&mut out, 3, text(value)),
            "operationId" => put(&mut out, 5, text(value)),
            "parameters" => items(value).for_each(|one| put(&mut out, 6, &wrapped(&parameter(one)))),
            "requestBody" => put(&mut out, 7, &wrapped(&request_body(value))),
            "responses" => put(&mut out, 8, &responses(value)),
            extension if extension.starts_with("x-") => put_named(&mut out, 13, extension, &any(value)),
            _ => {}
        }
    }
    out
}

fn parameter(parameter: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(parameter) {
        match key {
            "name" => put(&mut out, 1, text(value)),
            "in" => put(&mut out, 2, text(value)),
            "description" => put(&mut out, 3, text(value)),
            "required" => put_number(&mut out, 4, value),
            "schema" => put(&mut out, 10, &schema(value)),
            _ => {}
        }
    }
    out
}

fn request_body(body: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 2, &content(&body["content"]));
    if body["required"].is_boolean() {
        put_number(&mut out, 3, &body["required"]);
    }
    out
}

/// Media types, each with its schema (1).
fn content(content: &Value) -> Vec<u8> {
    map(content, |media| wrapped(&schema(&media["schema"])))
}

fn responses(responses: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (code, value) in members(responses) {
        let mut response = Vec::new();
        put(&mut response, 1, text(&value["description"]));
        if value["content"].is_object() {
            put(&mut response, 3, &content(&value["content"]));
        }
        put_named(&mut out, 2, code, &wrapped(&response));
    }
    out
}

/// A reference (2), or a schema (1).
fn schema(schema: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match schema["$ref"].as_str() {
        Some(reference) => put(&mut out, 2, &wrapped(reference.as_bytes())),
        None => put(&mut out, 1, &own_schema(schema)),
    }
    out
}

fn own_schema(of: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(of) {
        match key {
            "nullable" => put_number(&mut out, 1, value),
            "example" => put(&mut out, 7, &any(value)),
            "type" => put(&mut out, 25, text(value)),
            "allOf" => items(value).for_each(|part| put(&mut out, 26, &schema(part))),
            "oneOf" => items(value).for_each(|part| put(&mut out, 27, &schema(part))),
            "anyOf" => items(value).for_each(|part| put(&mut out, 28, &schema(part))),
            "not" => put(&mut out, 29, &own_schema(value)),
            "items" => put(&mut out, 30, &wrapped(&schema(value))),
            "properties" => put(&mut out, 31, &map(value, schema)),
            "additionalProperties" => put(&mut out, 32, &additional(value)),
            "default" => put(&mut out, 33, &default(value)),
            // Nothing but these stands in the schemas; a test says so.
            key => put_keyword(&mut out, Version::V3, key, value),
        }
    }
    out
}

fn additional(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Bool(_) => put_number(&mut out, 2, value),
        _ => put(&mut out, 1, &schema(value)),
    }
    out
}

/// gnostic knows numbers (1), truth values (2) and texts (3) alone; of any other value it keeps that there is one.
fn default(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Number(_) => put_double(&mut out, 1, value),
        Value::Bool(_) => put_number(&mut out, 2, value),
        Value::String(text) => put(&mut out, 3, text.as_bytes()),
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::respond;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_as_gnostic_numbers_it() {
        let of = json!({ "type": "string", "default": "a", "x-a": 1 });
        let want = [
            &[0x8a, 2, 3, 26, 1][..],
            b"a",
            &[0xca, 1, 6],
            b"string",
            &[0xa2, 2, 10, 10, 3],
            b"x-a",
            &[18, 3, 18, 1],
            b"1",
        ];
        assert_eq!(own_schema(&of), want.concat());
        assert_eq!(schema(&json!({ "$ref": "#/x" })), [&[18, 5, 10, 3][..], b"#/x"].concat());
        assert_eq!(own_schema(&json!({ "default": {} })), [0x8a, 2, 0]);
        assert_eq!(own_schema(&json!({ "additionalProperties": true })), [0x82, 2, 2, 16, 1]);
    }

    #[test]
    fn no_member_of_a_document_is_lost() {
        const SCHEMA: [&str; 12] = [
            "$ref",
            "additionalProperties",
            "allOf",
            "default",
            "description",
            "enum",
            "format",
            "items",
            "oneOf",
            "required",
            "type",
            "uniqueItems",
        ];
        fn known(of: &Value) {
            for (key, value) in members(of) {
                assert!(SCHEMA.contains(&key) || key == "properties" || key.starts_with("x-"), "{key}");
                match key {
                    "properties" => members(value).for_each(|(_, property)| known(property)),
                    "items" | "additionalProperties" => known(value),
                    "allOf" | "oneOf" => items(value).for_each(known),
                    _ => {}
                }
            }
        }
        let ask = |accept: &str| {
            let found = respond("/openapi/v3/api/v1", accept, coracle_api::catalogue::catalogue());
            found.unwrap().unwrap()
        };
        let document: Value = serde_json::from_slice(&ask("application/json").body).unwrap();
        members(&document["components"]["schemas"]).for_each(|(_, of)| known(of));
        members(&document["components"])
            .for_each(|(key, _)| assert!(["schemas", "securitySchemes"].contains(&key)));
        for (key, value) in members(&document["paths"]).flat_map(|(_, item)| members(item)) {
            let methods = ["delete", "get", "head", "options", "parameters", "patch", "post", "put"];
            assert!(methods.contains(&key), "{key}");
            let own = ["description", "operationId", "parameters", "requestBody", "responses", "tags"];
            members(value).for_each(|(key, _)| assert!(own.contains(&key) || key.starts_with("x-"), "{key}"));
        }
        let protobuf = ask("application/com.github.proto-openapi.spec.v3@v1.0+protobuf");
        assert_eq!(protobuf.content_type, CONTENT_TYPE);
        assert!(protobuf.body == encode(&document) && protobuf.body.len() > 500_000);
    }
}
