//! CustomResourceDefinitions for tests, and waiting until they are served.

use crate::rest::Rest;
use crate::wait::wait_for;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest that a definition may take to be served. It takes milliseconds on an idle machine.
const SERVED_LIMIT: Duration = Duration::from_secs(100);

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A namespaced definition; the first version is the stored one.
pub fn definition(group: &str, plural: &str, kind: &str, versions: &[Value]) -> Value {
    let mut versions = versions.to_vec();
    versions[0]["storage"] = json!(true);
    let names = json!({
        "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    })
}

/// A version that is served and not stored.
pub fn version(name: &str, schema: Value) -> Value {
    json!({"name": name, "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}})
}

/// A schema of an object that keeps whatever it is given.
pub fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A schema of an object with these properties of `spec`.
pub fn with_spec(properties: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
}

/// Where its objects are, in a version and a namespace (`""`: all of them, or of no namespace).
pub fn path(definition: &Value, version: &str, namespace: &str) -> String {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).expect("a definition");
    let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    format!("/apis/{}/{version}{place}/{}", text("/spec/group"), text("/spec/names/plural"))
}

/// Creates the definition and waits until every served version answers.
#[track_caller]
pub fn install(rest: &Rest, definition: &Value) -> Value {
    rest.create(DEFINITIONS, definition);
    served(rest, definition)
}

/// Waits until it says `Established` and every served version answers; returns it.
#[track_caller]
pub fn served(rest: &Rest, definition: &Value) -> Value {
    let name = definition["metadata"]["name"].as_str().expect("a name");
    let established = wait_for(&format!("{name}: Established"), SERVED_LIMIT, || {
        let found = rest.get(&format!("{DEFINITIONS}/{name}"));
        if condition(&found, "Established") == "True" { Ok(found) } else { Err(found["status"].to_string()) }
    });
    for version in definition["spec"]["versions"].as_array().expect("versions") {
        if version["served"] == true {
            let list = path(definition, version["name"].as_str().expect("a name"), "");
            wait_for(&list, SERVED_LIMIT, || match rest.call("GET", &list, &[], "") {
                reply if reply.code == 200 => Ok(()),
                reply => Err(reply.body.to_string()),
            });
        }
    }
    established
}

/// The status of a condition, or `absent`.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array();
    let found = all.and_then(|all| all.iter().find(|condition| condition["type"] == kind));
    found.and_then(|condition| condition["status"].as_str()).unwrap_or("absent")
}
