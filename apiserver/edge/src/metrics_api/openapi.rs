//! How NodeMetrics and PodMetrics look, for `kubectl explain` and client generators.

use super::objects::Kind;
use super::{GROUP, VERSION};
use crate::discovery::Document;
use serde_json::{Map, Value, json};

const NAMES: &str = "io.k8s.metrics.pkg.apis.metrics.v1beta1";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

/// A map of quantities.
fn usage() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" },
        "description": "Use by the name of the resource: cpu in cores, memory (the working set) in bytes." })
}

fn head(kind: &str, metadata: Value) -> Map<String, Value> {
    let api_version = text("Group and version of this form of the object.");
    let fields = [
        ("apiVersion", api_version),
        ("kind", text(&format!("{kind}."))),
        ("metadata", metadata),
        (
            "timestamp",
            json!({ "type": "string", "format": "date-time", "description": "End of the window." }),
        ),
        ("window", text("How long was measured, as a duration such as 15.3s.")),
    ];
    fields.map(|(name, schema)| (name.to_owned(), schema)).into_iter().collect()
}

fn gvk(kind: &str) -> Value {
    json!([{ "group": GROUP, "version": VERSION, "kind": kind }])
}

/// `prefix` is where the document keeps its schemas.
fn schemas(prefix: &str, metadata: &Value) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add =
        |name: &str, kind: Option<&str>, description: &str, properties: Value, required: &[&str]| {
            let mut schema = json!({ "type": "object", "description": description, "properties": properties,
            "required": required });
            if let Some(kind) = kind {
                schema["x-kubernetes-group-version-kind"] = gvk(kind);
            }
            all.insert(format!("{NAMES}.{name}"), schema);
        };
    let container = json!({ "name": text("Name of the container."), "usage": usage() });
    add("ContainerMetrics", None, "What a container uses.", container, &["name", "usage"]);
    for kind in [Kind::Nodes, Kind::Pods] {
        let name = kind.name();
        let mut properties = head(name, metadata.clone());
        let (field, schema, description) = match kind {
            Kind::Nodes => ("usage", usage(), "What a node uses."),
            Kind::Pods => {
                let items = json!({ "$ref": format!("{prefix}{NAMES}.ContainerMetrics") });
                let list =
                    json!({ "type": "array", "items": items, "description": "One entry a container." });
                ("containers", list, "What the containers of a pod use.")
            }
        };
        properties.insert(field.to_owned(), schema);
        add(name, Some(name), description, properties.into(), &["timestamp", "window", field]);
        let items = json!({ "type": "array", "items": { "$ref": format!("{prefix}{NAMES}.{name}") } });
        let list = json!({ "apiVersion": { "type": "string" }, "kind": { "type": "string" },
            "metadata": { "type": "object" }, "items": items });
        let list_kind = format!("{name}List");
        add(&list_kind, Some(&list_kind), "A list of them.", list, &["items"]);
    }
    all
}

/// Address, name of the answer's kind, and verb of each request.
fn requests() -> [(String, Kind, String, &'static str); 5] {
    let root = format!("/apis/{GROUP}/{VERSION}");
    let list = |kind: Kind| format!("{}List", kind.name());
    let one = |kind: Kind| kind.name().to_owned();
    let (nodes, pods) = (Kind::Nodes, Kind::Pods);
    [
        (format!("{root}/nodes"), nodes, list(nodes), "list"),
        (format!("{root}/nodes/{{name}}"), nodes, one(nodes), "get"),
        (format!("{root}/pods"), pods, list(pods), "list"),
        (format!("{root}/namespaces/{{namespace}}/pods"), pods, list(pods), "list"),
        (format!("{root}/namespaces/{{namespace}}/pods/{{name}}"), pods, one(pods), "get"),
    ]
}

fn paths(answer: impl Fn(&str) -> Value, parameter: impl Fn(&str) -> Value) -> Map<String, Value> {
    let path = |(path, kind, answered, verb): (String, Kind, String, &str)| {
        let names = ["namespace", "name"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
        let parameters: Vec<Value> = names.map(&parameter).collect();
        let scope = match (kind, path.contains("{namespace}")) {
            (Kind::Pods, true) => "Namespaced",
            (Kind::Pods, false) => "",
            (Kind::Nodes, _) => "",
        };
        let everywhere = if kind == Kind::Pods && scope.is_empty() { "ForAllNamespaces" } else { "" };
        let get = json!({
            "operationId": format!("{verb}MetricsV1beta1{scope}{}{everywhere}", kind.name()),
            "tags": ["metrics_v1beta1"], "x-kubernetes-action": verb,
            "x-kubernetes-group-version-kind": gvk(kind.name())[0],
            "responses": { "200": answer(&answered), "401": { "description": "Unauthorized" } },
        });
        (path, json!({ "get": get, "parameters": parameters }))
    };
    requests().into_iter().map(path).collect()
}

pub fn openapi_v3() -> Document {
    const PREFIX: &str = "#/components/schemas/";
    let answer = |kind: &str| {
        let schema = json!({ "$ref": format!("{PREFIX}{NAMES}.{kind}") });
        json!({ "description": "OK", "content": { "application/json": { "schema": schema } } })
    };
    let parameter =
        |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    let metadata = json!({ "type": "object", "description": "Name, namespace and labels." });
    Document::json(
        &json!({
            "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": coracle_component_base::version::GIT_VERSION },
            "paths": paths(answer, parameter), "components": { "schemas": schemas(PREFIX, &metadata) },
        }),
        &[],
    )
}

/// For the index of OpenAPI v3.
pub fn openapi_v3_entry() -> (String, String) {
    let key = format!("apis/{GROUP}/{VERSION}");
    let address = format!("/openapi/v3/{key}?hash={}", openapi_v3().etag.trim_matches('"'));
    (key, address)
}

/// To be merged into the whole.
pub fn openapi_v2() -> Value {
    const PREFIX: &str = "#/definitions/";
    let answer =
        |kind: &str| json!({ "description": "OK", "schema": { "$ref": format!("{PREFIX}{NAMES}.{kind}") } });
    let parameter = |name: &str| json!({ "name": name, "in": "path", "required": true, "type": "string" });
    let metadata = json!({ "$ref": format!("{PREFIX}{META}") });
    let mut paths = paths(answer, parameter);
    for item in paths.values_mut() {
        item["get"]["produces"] = json!(["application/json", "application/yaml"]);
        item["get"]["schemes"] = json!(["https"]);
    }
    json!({ "paths": paths, "definitions": schemas(PREFIX, &metadata) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_name_only_what_they_have() {
        let v3: Value = serde_json::from_slice(&openapi_v3().body).unwrap();
        let known = v3["components"]["schemas"].as_object().unwrap();
        let text = v3.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(known.contains_key(name), "{name}");
        }
        assert_eq!((known.len(), v3["paths"].as_object().unwrap().len()), (5, 5));
        let v2 = openapi_v2();
        assert_eq!(v2["definitions"].as_object().unwrap().len(), 5);
        let ids: std::collections::BTreeSet<_> =
            v2["paths"].as_object().unwrap().values().map(|p| p["get"]["operationId"].to_string()).collect();
        assert_eq!(ids.len(), 5, "{ids:?}");
    }
}
