//! Definitions for the tests of custom resources, established by hand.

use crate::support::{Answer, Fixture};
use serde_json::{Value, json};

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A definition of Widgets with one version; `version` is laid over it.
pub fn definition(version: &Value) -> Value {
    let mut v1 = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
        "type": "object", "properties": {
            "spec": { "type": "object", "properties": {
                "size": { "type": "integer", "minimum": 1, "maximum": 10 },
                "color": { "type": "string", "default": "red" },
                "port": { "x-kubernetes-int-or-string": true },
                "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
                "parts": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": { "type": "object", "required": ["name"], "properties": {
                        "name": { "type": "string" }, "count": { "type": "integer", "default": 1 } } } },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "inner": { "type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true } } },
            "status": { "type": "object", "properties": { "ready": { "type": "integer" } } } } } } });
    if let Some(fields) = version.as_object() {
        fields.iter().for_each(|(key, value)| v1[key] = value.clone());
    }
    of_versions(&json!([v1]))
}

pub fn of_versions(versions: &Value) -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                "shortNames": ["wd"] } } })
}

/// A version with the schema of its spec.
pub fn version(name: &str, storage: bool, spec: &Value) -> Value {
    json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": {
        "type": "object", "properties": { "spec": spec } } } })
}

/// Creates the definition and says what its controllers would say.
pub async fn establish(api: &Fixture, definition: &Value) {
    api.post(DEFINITIONS, definition).await.expect(201);
    settle(api, definition["metadata"]["name"].as_str().unwrap()).await;
}

pub async fn settle(api: &Fixture, name: &str) {
    let uri = format!("{DEFINITIONS}/{name}");
    let mut stored = api.get(&uri).await.expect(200);
    stored["status"]["acceptedNames"] = stored["spec"]["names"].clone();
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": "Test", "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z" })
    };
    stored["status"]["conditions"] = json!([condition("NamesAccepted"), condition("Established")]);
    api.put(&format!("{uri}/status"), &stored).await.expect(200);
}

/// Changes the definition by a merge patch.
pub async fn redefine(api: &Fixture, patch: &Value) {
    api.patch(&format!("{DEFINITIONS}/widgets.example.com"), "merge-patch", patch).await.expect(200);
}

pub fn widget(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

pub async fn apply(api: &Fixture, uri: &str, query: &str, body: &Value) -> Answer {
    let uri = format!("{uri}?{query}");
    api.ask("PATCH", &uri, "application/apply-patch+yaml", body.to_string()).await
}

pub fn message(answer: &Answer, status: u16) -> String {
    answer.expect(status)["message"].as_str().unwrap_or_default().to_owned()
}
