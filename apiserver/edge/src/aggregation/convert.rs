//! OpenAPI v3 of servers that publish v2 alone, as upstream's aggregator makes it.
//!
//! <https://spec.openapis.org/oas/v2.0>, <https://spec.openapis.org/oas/v3.0.0>. Pure.

use crate::openapi::OF_VALUES;
use serde_json::{Map, Value, json};

const V2: &str = "#/definitions/";
const V3: &str = "#/components/schemas/";
const JSON: &str = "application/json";
/// Members of a parameter that belong into its schema, beside [`OF_VALUES`].
const OF_PARAMETERS: [&str; 2] = ["items", "allowEmptyValue"];

/// The document of one group and version; `swagger` has its `paths` and `definitions`.
pub fn v3_of(swagger: &Value) -> Value {
    let members = |part: &str| swagger[part].as_object().into_iter().flatten();
    let paths: Map<String, Value> =
        members("paths").map(|(path, item)| (path.clone(), path_item(item, swagger))).collect();
    let schemas: Map<String, Value> =
        members("definitions").map(|(name, schema)| (name.clone(), schema_of(schema))).collect();
    let info = json!({ "title": "Kubernetes", "version": coracle_component_base::version::GIT_VERSION });
    json!({ "openapi": "3.0.0", "info": info, "paths": paths, "components": { "schemas": schemas } })
}

/// A schema with its `$ref`s led from `definitions` to `components/schemas`: the only difference between the two versions.
fn schema_of(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let member = |(key, value): (&String, &Value)| {
                let target =
                    value.as_str().filter(|_| key == "$ref").and_then(|target| target.strip_prefix(V2));
                let value = target.map_or_else(|| schema_of(value), |name| format!("{V3}{name}").into());
                (key.clone(), value)
            };
            map.iter().map(member).collect()
        }
        Value::Array(list) => list.iter().map(schema_of).collect(),
        other => other.clone(),
    }
}

fn path_item(item: &Value, swagger: &Value) -> Value {
    let member = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "get" | "put" | "post" | "delete" | "options" | "head" | "patch" => operation(value, swagger),
            "parameters" => parameters(value).into(),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    item.as_object().into_iter().flatten().map(member).collect()
}

/// Without that of the body, which is no parameter any more.
fn parameters(list: &Value) -> Vec<Value> {
    let of_address = |parameter: &&Value| !matches!(parameter["in"].as_str(), Some("body" | "formData"));
    list.as_array().into_iter().flatten().filter(of_address).map(parameter).collect()
}

fn parameter(parameter: &Value) -> Value {
    let (mut schema, mut out) = (Map::new(), Map::new());
    for (key, value) in parameter.as_object().into_iter().flatten() {
        let of_value = OF_VALUES.iter().chain(&OF_PARAMETERS).any(|word| word == key);
        let to = if of_value { &mut schema } else { &mut out };
        to.insert(key.clone(), value.clone());
    }
    if !schema.is_empty() {
        out.insert("schema".to_owned(), schema.into());
    }
    out.into()
}

fn operation(operation: &Value, swagger: &Value) -> Value {
    let mut out = Map::new();
    for (key, value) in operation.as_object().into_iter().flatten() {
        match key.as_str() {
            "consumes" | "produces" | "schemes" => {}
            "parameters" => {
                let of_address = parameters(value);
                if !of_address.is_empty() {
                    out.insert(key.clone(), of_address.into());
                }
                let body = value.as_array().into_iter().flatten().find(|p| p["in"] == "body");
                if let Some(body) = body {
                    out.insert(
                        "requestBody".to_owned(),
                        request_body(body, &media(operation, swagger, "consumes")),
                    );
                }
            }
            "responses" => {
                let produced = media(operation, swagger, "produces");
                let response = |(code, one): (&String, &Value)| (code.clone(), response(one, &produced));
                let responses: Map<String, Value> =
                    value.as_object().into_iter().flatten().map(response).collect();
                out.insert(key.clone(), responses.into());
            }
            _ => drop(out.insert(key.clone(), value.clone())),
        }
    }
    out.into()
}

/// The operation's own media types, or those that the document says hold for all.
fn media(operation: &Value, swagger: &Value, field: &str) -> Vec<String> {
    let list =
        [operation, swagger].into_iter().find_map(|place| place[field].as_array().filter(|l| !l.is_empty()));
    let names: Vec<String> =
        list.into_iter().flatten().filter_map(|m| m.as_str().map(str::to_owned)).collect();
    if names.is_empty() { vec![JSON.to_owned()] } else { names }
}

fn content(schema: &Value, media: &[String]) -> Value {
    media
        .iter()
        .map(|media| (media.clone(), json!({ "schema": schema_of(schema) })))
        .collect::<Map<_, _>>()
        .into()
}

fn request_body(body: &Value, media: &[String]) -> Value {
    let mut out = json!({ "content": content(&body["schema"], media) });
    for field in ["description", "required"] {
        if !body[field].is_null() {
            out[field] = body[field].clone();
        }
    }
    out
}

fn response(response: &Value, media: &[String]) -> Value {
    let mut out = json!({ "description": response["description"] });
    if response["schema"].is_object() {
        out["content"] = content(&response["schema"], media);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_answers_and_schemas_are_said_the_other_way() {
        let reference = json!({ "$ref": "#/definitions/X" });
        let swagger = json!({
            "produces": ["application/yaml"],
            "paths": { "/apis/g/v1/x": {
                "parameters": [{ "name": "name", "in": "path", "required": true, "type": "string", "uniqueItems": true }],
                "put": {
                    "operationId": "putX", "consumes": ["*/*"], "schemes": ["https"], "x-kubernetes-action": "put",
                    "parameters": [
                        { "name": "body", "in": "body", "required": true, "schema": reference },
                        { "name": "dryRun", "in": "query", "type": "string", "description": "d" },
                    ],
                    "responses": { "200": { "description": "OK", "schema": reference }, "401": { "description": "No" } },
                },
            } },
            "definitions": { "X": { "type": "object", "properties": {
                "$ref": { "type": "string" }, "list": { "items": reference, "type": "array" } } } },
        });
        let v3 = v3_of(&swagger);
        let item = &v3["paths"]["/apis/g/v1/x"];
        let text = json!({ "type": "string", "uniqueItems": true });
        assert_eq!(
            item["parameters"],
            json!([{ "name": "name", "in": "path", "required": true, "schema": text }])
        );
        let there = json!({ "schema": { "$ref": "#/components/schemas/X" } });
        assert_eq!(
            item["put"],
            json!({
                "operationId": "putX", "x-kubernetes-action": "put",
                "parameters": [{ "name": "dryRun", "in": "query", "description": "d", "schema": { "type": "string" } }],
                "requestBody": { "required": true, "content": { "*/*": there } },
                "responses": { "200": { "description": "OK", "content": { "application/yaml": there } },
                    "401": { "description": "No" } },
            })
        );
        let schema = &v3["components"]["schemas"]["X"]["properties"];
        assert_eq!(schema["$ref"], json!({ "type": "string" }));
        assert_eq!(schema["list"]["items"], there["schema"]);
        assert_eq!(v3["openapi"], "3.0.0");
    }

    #[test]
    fn nonsense_gives_an_empty_document() {
        for swagger in [
            json!(null),
            json!([]),
            json!({ "paths": 3, "definitions": { "X": 7 } }),
            json!({ "paths": { "/": [] } }),
        ] {
            assert!(
                v3_of(&swagger)["paths"]
                    .as_object()
                    .is_some_and(|paths| paths.values().all(|p| p == &json!({})))
            );
        }
    }
}
