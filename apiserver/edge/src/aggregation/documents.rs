//! What aggregated servers say of themselves, kept: discovery, and OpenAPI as far as it concerns their own groups.

use super::openapi;
use crate::discovery::ForeignVersion;
use crate::discovery::hex;
use bytes::Bytes;
use parking_lot::RwLock;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The documents of one APIService.
#[derive(Clone, Default)]
struct Documents {
    version: Option<Arc<ForeignVersion>>,
    /// Relative address of the OpenAPI v3 document, with its hash.
    v3: Option<String>,
    /// Swagger, reduced, as text: it is seldom asked for and ten times the size once parsed.
    v2: Bytes,
}

impl Documents {
    fn converted_hash(&self) -> Option<String> {
        let converts = self.v3.is_none() && !self.v2.is_empty();
        converts.then(|| hex(&Sha256::digest(&self.v2)))
    }

    fn converted_address(&self, key: &str) -> Option<String> {
        self.converted_hash().map(|hash| format!("/openapi/v3/{key}?hash={hash}"))
    }
}

/// By the name of the APIService.
#[derive(Default)]
pub struct Library {
    shelves: RwLock<BTreeMap<String, Documents>>,
    generation: AtomicU64,
}

impl Library {
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Counts a change, if `change` says that it made one.
    fn update(&self, name: &str, change: impl FnOnce(&mut Documents) -> bool) {
        let mut shelves = self.shelves.write();
        if change(shelves.entry(name.to_owned()).or_default()) {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// `list` is the server's APIResourceList; the error says what is wrong with it, and nothing has changed then.
    pub fn discovered(&self, name: &str, group: &str, version: &str, list: &Value) -> Result<(), String> {
        let resources = resources(group, version, list)?;
        let (group, version) = (group.to_owned(), version.to_owned());
        let new = ForeignVersion { group, version, stale: false, resources };
        self.update(name, |documents| {
            let changed = documents.version.as_deref() != Some(&new);
            if changed {
                documents.version = Some(Arc::new(new));
            }
            changed
        });
        Ok(())
    }

    /// The server could not be asked, or gave no sensible answer.
    pub fn unreachable(&self, name: &str, group: &str, version: &str) {
        self.update(name, |documents| {
            if documents.version.as_ref().is_some_and(|known| known.stale) {
                return false;
            }
            let resources = documents.version.as_ref().map(|known| known.resources.clone());
            let (group, version, resources) =
                (group.to_owned(), version.to_owned(), resources.unwrap_or_default());
            documents.version = Some(Arc::new(ForeignVersion { group, version, stale: true, resources }));
            true
        });
    }

    pub fn openapi(&self, name: &str, v3: Option<String>, v2: Option<Bytes>) {
        self.update(name, |documents| {
            let mut changed = false;
            if let Some(v3) = v3.filter(|v3| documents.v3.as_ref() != Some(v3)) {
                documents.v3 = Some(v3);
                changed = true;
            }
            if let Some(v2) = v2.filter(|v2| documents.v2 != v2) {
                documents.v2 = v2;
                changed = true;
            }
            changed
        });
    }

    /// Only these are left.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        let mut shelves = self.shelves.write();
        let before = shelves.len();
        shelves.retain(|name, _| keep(name));
        if shelves.len() != before {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub fn version(&self, name: &str) -> Option<Arc<ForeignVersion>> {
        self.shelves.read().get(name)?.version.clone()
    }

    /// Of those that `served` names: one that has gone may still have its documents here for a moment.
    pub fn openapi_v3(&self, served: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let shelves = self.shelves.read();
        let entry = |documents: &Documents| {
            let version = documents.version.as_ref()?;
            let key = openapi::key(&version.group, &version.version);
            let address = documents.v3.clone().or_else(|| documents.converted_address(&key))?;
            Some((key, address))
        };
        let shelves = shelves.iter().filter(|(name, _)| served(name));
        shelves.filter_map(|(_, documents)| entry(documents)).collect()
    }

    /// What is to be converted for who asks for v3, with its hash; `None` of a server that has v3 itself, or nothing.
    pub fn without_v3(&self, name: &str) -> Option<(Bytes, String)> {
        let shelves = self.shelves.read();
        let documents = shelves.get(name)?;
        documents.converted_hash().map(|hash| (documents.v2.clone(), hash))
    }

    pub fn openapi_v2(&self, served: impl Fn(&str) -> bool) -> Vec<Arc<Value>> {
        let shelves = self.shelves.read();
        let served = shelves.iter().filter(|(name, _)| served(name));
        let texts: Vec<Bytes> = served.map(|(_, documents)| documents.v2.clone()).collect();
        drop(shelves);
        texts.iter().filter_map(|text| serde_json::from_slice(text).ok()).map(Arc::new).collect()
    }
}

/// Entries of the aggregated form from a plain list: the subresources go into their resource's entry.
fn resources(group: &str, version: &str, list: &Value) -> Result<Vec<Value>, String> {
    let own = coracle_api::catalogue::api_version(group, version);
    if list["kind"] != "APIResourceList" || list["groupVersion"] != own {
        return Err(format!("no APIResourceList of {own}"));
    }
    let entries = list["resources"].as_array().ok_or("an APIResourceList without resources")?;
    let mut resources: Vec<Value> = Vec::new();
    let mut subresources: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for entry in entries {
        let (name, kind) = (entry["name"].as_str(), entry["kind"].as_str());
        let (Some(name), Some(kind)) = (name, kind) else {
            return Err("a resource without name or kind".to_owned());
        };
        let kind = |or: (&str, &str)| {
            let text = |field: &str, or: &str| entry[field].as_str().unwrap_or(or).to_owned();
            json!({ "group": text("group", or.0), "version": text("version", or.1), "kind": kind })
        };
        let verbs = entry["verbs"].as_array().cloned().unwrap_or_default();
        match name.split_once('/') {
            Some((parent, name)) => subresources.entry(parent).or_default().push(json!({
                "subresource": name, "responseKind": kind((group, version)), "verbs": verbs,
            })),
            None => resources.push(resource(entry, name, &kind((group, version)), &verbs)),
        }
    }
    for resource in &mut resources {
        let name = resource["resource"].as_str().unwrap_or_default();
        if let Some(list) = subresources.remove(name) {
            resource["subresources"] = list.into();
        }
    }
    // Without their resource, as `pods/metrics` of custom.metrics.k8s.io.
    for (name, list) in subresources {
        let scope = entries.iter().find(|e| e["name"].as_str().is_some_and(|n| n.starts_with(name)));
        let namespaced = scope.is_some_and(|e| e["namespaced"] == true);
        resources.push(json!({ "resource": name, "scope": scope_name(namespaced), "singularResource": "",
            "verbs": [], "subresources": list }));
    }
    Ok(resources)
}

fn scope_name(namespaced: bool) -> &'static str {
    if namespaced { "Namespaced" } else { "Cluster" }
}

fn resource(entry: &Value, name: &str, kind: &Value, verbs: &[Value]) -> Value {
    let mut made = Map::new();
    made.insert("resource".to_owned(), name.into());
    made.insert("responseKind".to_owned(), kind.clone());
    made.insert("scope".to_owned(), scope_name(entry["namespaced"] == true).into());
    made.insert("singularResource".to_owned(), entry["singularName"].as_str().unwrap_or_default().into());
    made.insert("verbs".to_owned(), verbs.into());
    for field in ["shortNames", "categories"] {
        if let Some(list) = entry[field].as_array().filter(|list| !list.is_empty()) {
            made.insert(field.to_owned(), list.clone().into());
        }
    }
    made.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Value {
        json!({
            "kind": "APIResourceList", "groupVersion": "wardle.io/v1",
            "resources": [
                { "name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                  "verbs": ["get", "list"], "shortNames": ["fl"], "categories": [] },
                { "name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"] },
                { "name": "flunders/scale", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale",
                  "verbs": ["get"] },
                { "name": "pods/usage", "namespaced": true, "kind": "Usage", "verbs": ["get"] },
            ],
        })
    }

    #[test]
    fn plain_lists_become_entries() {
        let entries = resources("wardle.io", "v1", &list()).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            entries[0],
            json!({
                "resource": "flunders", "scope": "Namespaced", "singularResource": "flunder", "verbs": ["get", "list"],
                "responseKind": { "group": "wardle.io", "version": "v1", "kind": "Flunder" }, "shortNames": ["fl"],
                "subresources": [
                    { "subresource": "status", "verbs": ["get"],
                      "responseKind": { "group": "wardle.io", "version": "v1", "kind": "Flunder" } },
                    { "subresource": "scale", "verbs": ["get"],
                      "responseKind": { "group": "autoscaling", "version": "v1", "kind": "Scale" } },
                ],
            })
        );
        assert_eq!((&entries[1]["resource"], &entries[1]["scope"]), (&json!("pods"), &json!("Namespaced")));
        for bad in [
            json!({}),
            json!([]),
            json!({ "kind": "APIResourceList", "groupVersion": "other/v1", "resources": [] }),
            json!({ "kind": "APIResourceList", "groupVersion": "wardle.io/v1", "resources": 3 }),
            json!({ "kind": "APIResourceList", "groupVersion": "wardle.io/v1", "resources": [{ "name": 3 }] }),
        ] {
            assert!(resources("wardle.io", "v1", &bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_changes_count() {
        let library = Library::default();
        library.discovered("a", "wardle.io", "v1", &list()).unwrap();
        let first = library.generation();
        library.discovered("a", "wardle.io", "v1", &list()).unwrap();
        assert_eq!(library.generation(), first);
        library.unreachable("a", "wardle.io", "v1");
        library.unreachable("a", "wardle.io", "v1");
        assert_eq!(library.generation(), first + 1);
        let version = library.version("a").unwrap();
        assert!(version.stale && version.resources.len() == 2);
        assert!(library.discovered("a", "wardle.io", "v1", &json!({})).is_err());
        assert!(library.version("a").unwrap().stale);
        library.openapi("a", None, Some(Bytes::from("[]")));
        let (v2, hash) = library.without_v3("a").unwrap();
        assert_eq!(&*v2, b"[]");
        let address = format!("/openapi/v3/apis/wardle.io/v1?hash={hash}");
        assert_eq!(library.openapi_v3(|_| true), [("apis/wardle.io/v1".to_owned(), address)]);
        library.openapi(
            "a",
            Some("/openapi/v3/apis/wardle.io/v1?hash=A".to_owned()),
            Some(Bytes::from("{}")),
        );
        assert_eq!(library.generation(), first + 3);
        assert!(library.without_v3("a").is_none());
        assert_eq!(library.openapi_v3(|_| true)[0].0, "apis/wardle.io/v1");
        assert!(library.openapi_v3(|_| false).is_empty());
        assert_eq!(library.openapi_v2(|name| name == "a").len(), 1);
        library.retain(|name| name != "a");
        assert!(library.version("a").is_none() && library.generation() == first + 4);
    }
}
