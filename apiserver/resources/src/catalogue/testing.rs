//! Snapshots without a server.

use super::build;
use super::snapshot::Snapshot;
use super::weak_reader::WeakReader;
use crate::cache::{CachedObject, Objects};
use crate::conversion::Converter;
use coracle_store::{KeyValue, Revision};
use coracle_strategy::apiextensions::DEFINITIONS;
use serde_json::{Value, json};
use std::sync::Arc;

/// An accepted definition of `<plural>.example.com` with one version, whose objects have a text of their own.
pub fn definition(plural: &str, kind: &str) -> Value {
    let names = json!({ "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") });
    let text = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    json!({
        "metadata": { "name": format!("{plural}.example.com"), "uid": plural, "generation": 1 },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": names, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": text } }] },
        "status": { "acceptedNames": names, "storedVersions": ["v1"],
            "conditions": [{ "type": "Established", "status": "True" }] },
    })
}

pub fn snapshot(definitions: &[Value]) -> Arc<Snapshot> {
    let cached = definitions.iter().map(|definition| {
        let name = definition["metadata"]["name"].as_str().expect("a definition has a name");
        let key: Arc<str> = format!("{DEFINITIONS}/{name}").into();
        let value = definition.to_string().into();
        let stored = KeyValue { key: key.clone(), value, created: Revision(1), modified: Revision(2) };
        (key, Arc::new(CachedObject::new(&stored, None)))
    });
    let objects: Objects = cached.collect();
    let converter = Arc::new(Converter::new(Arc::new(WeakReader::default())));
    Arc::new(build::snapshot(&Snapshot::default(), &objects, &converter))
}
