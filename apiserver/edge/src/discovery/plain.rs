//! The plain documents: APIVersions, APIGroupList, APIGroup, APIResourceList.

use super::{Group, ServedApis};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_api::Resource;
use coracle_api::catalogue::api_version;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The fields of upstream's structs: of APIVersions, APIGroupList and APIGroup, and of what they hold.
pub const GROUPS: &[&str] = &[
    "kind",
    "apiVersion",
    "name",
    "groupVersion",
    "version",
    "versions",
    "preferredVersion",
    "clientCIDR",
    "serverAddress",
    "serverAddressByClientCIDRs",
    "groups",
];

/// Of APIResourceList, and of the APIResources in it.
pub const RESOURCES: &[&str] = &[
    "name",
    "singularName",
    "namespaced",
    "group",
    "version",
    "kind",
    "apiVersion",
    "groupVersion",
    "verbs",
    "shortNames",
    "categories",
    "storageVersionHash",
    "resources",
];

/// Of `/api`. Everybody is told the same address.
pub fn api_versions(address: &str) -> Value {
    let addresses = json!([{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }]);
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses })
}

fn group_fields(group: &Group) -> Value {
    let entry =
        |version: &String| json!({ "groupVersion": api_version(&group.name, version), "version": version });
    let versions: Vec<Value> = group.versions.iter().map(entry).collect();
    json!({ "name": group.name, "preferredVersion": versions.first(), "versions": versions })
}

pub fn group_list(offer: &ServedApis) -> Value {
    let list: Vec<Value> = offer.groups.iter().map(group_fields).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": list })
}

pub fn group(name: &str, offer: &ServedApis) -> Option<Value> {
    let mut group = group_fields(offer.group(name)?);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

pub fn resource_list(group: &str, version: &str, offer: &ServedApis) -> Option<Value> {
    let entries: Vec<Value> = offer.of(group, version).flat_map(|r| entries(r)).collect();
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

/// Kinds whose stored form upstream still says to be the beta one.
const KEPT_AS_BETA: [&str; 3] =
    ["CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// Upstream's: the first eight bytes of the SHA-256 of `group/version/kind` of the stored form, in base64.
fn storage_version_hash(resource: &Resource) -> String {
    let storage = &resource.storage;
    let version = match &*storage.kind {
        kind if KEPT_AS_BETA.contains(&kind) => "v1beta1",
        _ => &*storage.version,
    };
    let stored = format!("{}/{version}/{}", storage.group, storage.kind);
    STANDARD.encode(&Sha256::digest(stored)[..8])
}
