//! OpenAPI documents of aggregated servers, cut to what is theirs to describe.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const DEFINITION: &str = "#/definitions/";
const PARAMETER: &str = "#/parameters/";

/// How the index of OpenAPI v3 names a group and version.
pub fn key(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The entry of a group and version in another server's index; `None` if it has none or a strange one.
pub fn address(index: &Value, key: &str) -> Option<String> {
    let address = index["paths"][key]["serverRelativeURL"].as_str()?;
    let own = address.strip_prefix("/openapi/v3/")?.strip_prefix(key)?;
    (own.is_empty() || own.starts_with('?')).then(|| address.to_owned())
}

/// The paths of one group and version with the definitions that they lead to, and the definitions of its kinds;
/// `None` if the document has neither. Parameters that its requests share are written out.
pub fn reduced(document: &Value, group: &str, version: &str) -> Option<Value> {
    let root = format!("/{}/", key(group, version));
    let mut paths = Map::new();
    for (path, item) in document["paths"].as_object()? {
        if path.starts_with(&root) || path.len() + 1 == root.len() && root.starts_with(path.as_str()) {
            paths.insert(path.clone(), written_out(item, &document["parameters"]));
        }
    }
    let definitions = document["definitions"].as_object();
    let mut wanted = BTreeSet::new();
    let mut open: Vec<&Value> = paths.values().collect();
    for (name, definition) in definitions.into_iter().flatten() {
        if is_of(definition, group, version) && wanted.insert(name.as_str()) {
            open.push(definition);
        }
    }
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => {
                let name = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(DEFINITION));
                if let Some((name, definition)) = name.and_then(|n| definitions?.get_key_value(n))
                    && wanted.insert(name)
                {
                    open.push(definition);
                }
                open.extend(map.values());
            }
            Value::Array(list) => open.extend(list),
            _ => {}
        }
    }
    if paths.is_empty() && wanted.is_empty() {
        return None;
    }
    let definition = |name: &str| Some((name.to_owned(), definitions?.get(name)?.clone()));
    let definitions: Map<String, Value> = wanted.iter().filter_map(|name| definition(name)).collect();
    Some(json!({ "paths": paths, "definitions": definitions }))
}

fn written_out(value: &Value, parameters: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let shared = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(PARAMETER));
            match shared.and_then(|name| parameters.get(name)) {
                Some(parameter) => parameter.clone(),
                None => {
                    map.iter().map(|(key, value)| (key.clone(), written_out(value, parameters))).collect()
                }
            }
        }
        Value::Array(list) => list.iter().map(|value| written_out(value, parameters)).collect(),
        other => other.clone(),
    }
}

fn is_of(definition: &Value, group: &str, version: &str) -> bool {
    let kinds = definition["x-kubernetes-group-version-kind"].as_array();
    kinds.into_iter().flatten().any(|kind| kind["group"] == group && kind["version"] == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_describe_their_own() {
        let reference = |name: &str| json!({ "schema": { "$ref": format!("{DEFINITION}{name}") } });
        let document = json!({
            "paths": {
                "/apis/g/v1/": reference("List"), "/apis/g/v1/x": reference("X"), "/apis/g/v11/x": reference("Y"),
                "/api/v1/pods": reference("Pod"), "/version/": {},
            },
            "definitions": {
                "X": { "properties": { "a": { "$ref": "#/definitions/Inner" }, "b": { "$ref": "#/definitions/Gone" } } },
                "Inner": { "properties": { "x": { "items": { "$ref": "#/definitions/X" } } } },
                "List": {}, "Y": {}, "Pod": {},
                "Options": { "x-kubernetes-group-version-kind": [{ "group": "g", "version": "v1", "kind": "Options" }] },
            },
        });
        let own = reduced(&document, "g", "v1").unwrap();
        let names =
            |field: &str| own[field].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(names("paths"), "/apis/g/v1/ /apis/g/v1/x");
        assert_eq!(names("definitions"), "Inner List Options X");
        assert_eq!(reduced(&document, "h", "v1"), None);
        assert_eq!(reduced(&json!("nonsense"), "g", "v1"), None);
    }

    #[test]
    fn shared_parameters_come_along() {
        let body = json!({ "name": "body", "in": "body", "schema": { "$ref": "#/definitions/X" } });
        let document = json!({
            "paths": { "/apis/g/v1/x": { "get": { "parameters": [{ "$ref": "#/parameters/body-1" }] },
                "parameters": [{ "$ref": "#/parameters/unknown" }] } },
            "parameters": { "body-1": body },
            "definitions": { "X": {} },
        });
        let own = reduced(&document, "g", "v1").unwrap();
        let item = &own["paths"]["/apis/g/v1/x"];
        assert_eq!(item["get"]["parameters"], json!([body]));
        assert_eq!(item["parameters"], json!([{ "$ref": "#/parameters/unknown" }]));
        assert!(own["definitions"]["X"].is_object());
    }

    #[test]
    fn addresses_stay_on_the_server() {
        let of = |url: &str| {
            address(&json!({ "paths": { "apis/g/v1": { "serverRelativeURL": url } } }), "apis/g/v1")
        };
        let good = "/openapi/v3/apis/g/v1?hash=AB";
        assert_eq!(of(good).as_deref(), Some(good));
        for bad in
            ["https://evil/openapi/v3/apis/g/v1", "/openapi/v3/apis/g/v10", "/openapi/v3/apis/h/v1", ""]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
