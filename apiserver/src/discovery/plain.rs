//! The plain documents: APIVersions, APIGroupList, APIGroup, APIResourceList.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_api::Resource;
use coracle_api::catalogue::{Group, api_version, groups};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Of `/api`. Which address a client should use is left to its configuration.
pub fn api_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

fn named_groups(resources: &[Arc<Resource>]) -> impl Iterator<Item = Group<'_>> {
    groups(resources).into_iter().filter(|g| !g.name.is_empty())
}

fn group_fields(group: &Group<'_>) -> Value {
    let entry =
        |version: &str| json!({ "groupVersion": api_version(group.name, version), "version": version });
    let versions: Vec<Value> = group.versions.iter().map(|v| entry(v)).collect();
    json!({ "name": group.name, "versions": versions, "preferredVersion": entry(group.preferred_version()) })
}

pub fn group_list(resources: &[Arc<Resource>]) -> Value {
    let list: Vec<Value> = named_groups(resources).map(|g| group_fields(&g)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": list })
}

pub fn group(name: &str, resources: &[Arc<Resource>]) -> Option<Value> {
    let mut group = group_fields(&named_groups(resources).find(|g| g.name == name)?);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

pub fn resource_list(group: &str, version: &str, resources: &[Arc<Resource>]) -> Option<Value> {
    let of_version = resources.iter().filter(|r| r.group == group && r.version == version);
    let entries: Vec<Value> = of_version.flat_map(|r| entries(r)).collect();
    if entries.is_empty() {
        return None;
    }
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": entries,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// The resource and, as entries of their own, its subresources.
fn entries(resource: &Resource) -> Vec<Value> {
    let mut first = Map::new();
    first.insert("name".into(), json!(resource.plural));
    first.insert("singularName".into(), json!(resource.singular));
    first.insert("namespaced".into(), resource.namespaced.into());
    first.insert("kind".into(), json!(resource.kind));
    first.insert("verbs".into(), json!(resource.verbs));
    if !resource.short_names.is_empty() {
        first.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        first.insert("categories".into(), json!(resource.categories));
    }
    if resource.is_stored() {
        first.insert("storageVersionHash".into(), storage_version_hash(resource).into());
    }
    let mut all = vec![Value::Object(first)];
    all.extend(resource.subresources.iter().map(|s| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, s.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": s.kind, "verbs": s.verbs,
        });
        if (&s.group, &s.version) != (&resource.group, &resource.version) {
            entry["group"] = json!(s.group);
            entry["version"] = json!(s.version);
        }
        entry
    }));
    all
}

/// Upstream's: the first eight bytes of the SHA-256 of `group/version/kind` of the stored form, in base64.
fn storage_version_hash(resource: &Resource) -> String {
    let storage = &resource.storage;
    let stored = format!("{}/{}/{}", storage.group, storage.version, storage.kind);
    STANDARD.encode(&Sha256::digest(stored)[..8])
}
