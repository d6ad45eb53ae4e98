//! The requests of OpenAPI v2 in gnostic's protobuf form.
//!
//! Field numbers: <https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto>.

use super::gnostic::{any, items, members, put, put_named, put_number, wrapped};
use super::v2_protobuf::encode;
use serde_json::Value;

/// A member of `paths` (field 2 of `Paths`).
pub(super) fn put_path(out: &mut Vec<u8>, template: &str, item: &Value) {
    put_named(out, 2, template, &path_item(item));
}

fn put_texts(out: &mut Vec<u8>, tag: u64, list: &Value) {
    items(list).filter_map(Value::as_str).for_each(|text| put(out, tag, text.as_bytes()));
}

fn path_item(item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(item) {
        match key {
            "get" => put(&mut out, 2, &operation(value)),
            "put" => put(&mut out, 3, &operation(value)),
            "post" => put(&mut out, 4, &operation(value)),
            "delete" => put(&mut out, 5, &operation(value)),
            "options" => put(&mut out, 6, &operation(value)),
            "head" => put(&mut out, 7, &operation(value)),
            "patch" => put(&mut out, 8, &operation(value)),
            "parameters" => items(value).for_each(|one| put(&mut out, 9, &parameter(one))),
            extension if extension.starts_with("x-") => put_named(&mut out, 10, extension, &any(value)),
            // Nothing else stands in paths; a test says so.
            _ => {}
        }
    }
    out
}

fn operation(operation: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(operation) {
        let text = value.as_str().unwrap_or_default().as_bytes();
        match key {
            "tags" => put_texts(&mut out, 1, value),
            "summary" => put(&mut out, 2, text),
            "description" => put(&mut out, 3, text),
            "operationId" => put(&mut out, 5, text),
            "produces" => put_texts(&mut out, 6, value),
            "consumes" => put_texts(&mut out, 7, value),
            "parameters" => items(value).for_each(|one| put(&mut out, 8, &parameter(one))),
            "responses" => put(&mut out, 9, &responses(value)),
            "schemes" => put_texts(&mut out, 10, value),
            extension if extension.starts_with("x-") => put_named(&mut out, 13, extension, &any(value)),
            _ => {}
        }
    }
    out
}

/// A `ParametersItem`: a reference (2), as other servers' documents have them, or a parameter (1), of a body (1) or of something else (2), and that of a query (3) or a path (4).
fn parameter(parameter: &Value) -> Vec<u8> {
    if let Some(reference) = parameter["$ref"].as_str() {
        let (mut inside, mut out) = (Vec::new(), Vec::new());
        put(&mut inside, 1, reference.as_bytes());
        put(&mut out, 2, &inside);
        return out;
    }
    wrapped(&shared_parameter(parameter))
}

/// A `Parameter`, as it stands among those that requests share.
pub(super) fn shared_parameter(parameter: &Value) -> Vec<u8> {
    match parameter["in"].as_str() {
        Some("body") => wrapped(&body(parameter)),
        place => {
            let mut kind = Vec::new();
            let (tag, query) = if place == Some("path") { (4, false) } else { (3, true) };
            put(&mut kind, tag, &plain(parameter, query));
            let mut other = Vec::new();
            put(&mut other, 2, &kind);
            other
        }
    }
}

fn body(parameter: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(parameter) {
        let text = value.as_str().unwrap_or_default().as_bytes();
        match key {
            "description" => put(&mut out, 1, text),
            "name" => put(&mut out, 2, text),
            "in" => put(&mut out, 3, text),
            "required" => put_number(&mut out, 4, value),
            "schema" => put(&mut out, 5, &encode(value)),
            _ => {}
        }
    }
    out
}

/// Behind the name, the fields of a query's parameter count one more: `allow_empty_value` stands between.
fn plain(parameter: &Value, query: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let shift = u64::from(query);
    for (key, value) in members(parameter) {
        let text = value.as_str().unwrap_or_default().as_bytes();
        match key {
            "required" => put_number(&mut out, 1, value),
            "in" => put(&mut out, 2, text),
            "description" => put(&mut out, 3, text),
            "name" => put(&mut out, 4, text),
            "type" => put(&mut out, 5 + shift, text),
            "uniqueItems" => put_number(&mut out, 19 + shift, value),
            _ => {}
        }
    }
    out
}

fn responses(responses: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (code, value) in members(responses) {
        let mut response = Vec::new();
        put(&mut response, 1, value["description"].as_str().unwrap_or_default().as_bytes());
        if value["schema"].is_object() {
            put(&mut response, 2, &wrapped(&encode(&value["schema"])));
        }
        put_named(&mut out, 1, code, &wrapped(&response));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::v2::{all_paths, path_item as json_of};
    use super::*;
    use coracle_api::catalogue;
    use serde_json::json;

    #[test]
    fn a_parameter_as_gnostic_numbers_it() {
        let query = json!({ "name": "q", "in": "query", "type": "string", "uniqueItems": true });
        // parameter > non_body_parameter > query_parameter_sub_schema {in: 2, name: 4, type: 6, unique_items: 20}
        let inner = [&[18, 5][..], b"query", &[34, 1], b"q", &[50, 6], b"string", &[0xa0, 1, 1]].concat();
        let mut sorted = plain(&query, true);
        let mut expected = inner.clone();
        sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sorted, expected, "the order of fields is free");
        let whole = parameter(&query);
        let length = u8::try_from(inner.len()).unwrap();
        assert_eq!(whole[..6], [10, length + 4, 18, length + 2, 26, length]);
        let path = json!({ "name": "p", "in": "path", "required": true, "uniqueItems": true });
        assert!(plain(&path, false).windows(3).any(|w| w == [0x98, 1, 1]), "unique_items is 19 there");
        let body = json!({ "name": "body", "in": "body", "required": true, "schema": { "$ref": "#/x" } });
        assert_eq!(parameter(&body)[..4], [10, parameter(&body)[1], 10, parameter(&body)[3]]);
    }

    /// Everything that stands in the JSON form stands in this one.
    #[test]
    fn no_member_of_the_paths_is_lost() {
        const OPERATION: [&str; 8] = [
            "operationId",
            "description",
            "tags",
            "schemes",
            "produces",
            "responses",
            "consumes",
            "parameters",
        ];
        const PARAMETER: [&str; 8] =
            ["$ref", "name", "in", "description", "type", "uniqueItems", "required", "schema"];
        let methods = ["get", "put", "post", "delete", "options", "head", "patch"];
        all_paths(catalogue::catalogue(), &mut |path| {
            for (key, value) in members(&json_of(path)) {
                assert!(methods.contains(&key) || key == "parameters", "{key}");
                for (key, value) in members(value) {
                    assert!(OPERATION.contains(&key) || key.starts_with("x-"), "{key}");
                    for (_, response) in members(value).filter(|_| key == "responses") {
                        assert!(members(response).all(|(key, _)| matches!(key, "description" | "schema")));
                    }
                }
                let own = items(&value["parameters"]).chain(items(if key == "parameters" {
                    value
                } else {
                    &Value::Null
                }));
                own.flat_map(members).for_each(|(key, _)| assert!(PARAMETER.contains(&key), "{key}"));
            }
        });
        for shared in super::super::v2::shared_parameters().values() {
            members(shared).for_each(|(key, _)| assert!(PARAMETER.contains(&key), "{key}"));
        }
    }
}
