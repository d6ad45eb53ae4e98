//! `apidiscovery.k8s.io`: everything in one document (KEP-3352).

use super::{Document, Group, ServedApis};
use coracle_api::catalogue::by_plural;
use coracle_api::encode::InOrder;
use coracle_api::{Resource, Subresource};
use serde_json::{Map, Value, json};

/// The fields of upstream's structs.
const ORDER: &[&str] = &[
    "group",
    "version",
    "kind",
    "apiVersion",
    "metadata",
    "items",
    "versions",
    "resource",
    "subresource",
    "responseKind",
    "scope",
    "singularResource",
    "verbs",
    "shortNames",
    "categories",
    "subresources",
    "resources",
    "freshness",
];

/// The two versions of the aggregated form; v2beta1 is what clients before 1.30 ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    V2,
    V2Beta1,
}

impl Form {
    /// The first media type of `accept` that names a form; `None` leaves the plain documents.
    pub fn negotiate(accept: &str) -> Option<Self> {
        accept.split(',').find_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*")) {
                return None;
            }
            let parameters: Vec<&str> = parts.collect();
            let has = |p: &str| parameters.contains(&p);
            match has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList") {
                true if has("v=v2") => Some(Self::V2),
                true if has("v=v2beta1") => Some(Self::V2Beta1),
                _ => None,
            }
        })
    }

    fn version(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Beta1 => "v2beta1",
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        }
    }

    pub fn core(self, offer: &ServedApis) -> Document {
        let versions = [version(offer, "", "v1")];
        self.document(&[json!({ "metadata": {}, "versions": versions })])
    }

    pub fn groups(self, offer: &ServedApis) -> Document {
        let group = |group: &Group| {
            let versions: Vec<Value> =
                group.versions.iter().map(|v| version(offer, &group.name, v)).collect();
            json!({ "metadata": { "name": group.name }, "versions": versions })
        };
        self.document(&offer.groups.iter().map(group).collect::<Vec<_>>())
    }

    fn document(self, items: &[Value]) -> Document {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{}", self.version()),
            "metadata": {},
            "items": items,
        });
        let mut body = serde_json::to_vec(&InOrder { value: &list, order: ORDER }).unwrap_or_default();
        body.push(b'\n');
        Document::new(self.content_type(), body)
    }
}

/// Of another server, what it said last; clients see whether it can be reached.
fn version(offer: &ServedApis, group: &str, version: &str) -> Value {
    let (entries, stale) = match offer.foreign_version(group, version) {
        Some(foreign) => (foreign.resources.clone(), foreign.stale),
        None => (offer.of(group, version).map(|r| resource(r)).collect(), false),
    };
    let freshness = if stale { "Stale" } else { "Current" };
    json!({ "version": version, "freshness": freshness, "resources": entries })
}

fn resource(resource: &Resource) -> Value {
    // Upstream leaves out what is the same as around it, but for custom resources.
    let custom = by_plural(&resource.group, &resource.version, &resource.plural).is_none();
    let (group, version) = if custom { (&*resource.group, &*resource.version) } else { ("", "") };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": { "group": group, "version": version, "kind": resource.kind },
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    let subresources: Vec<Value> =
        resource.subresources.iter().map(|s| subresource(resource, s, custom)).collect();
    insert_unless_empty(&mut entry, "shortNames", json!(resource.short_names));
    insert_unless_empty(&mut entry, "categories", json!(resource.categories));
    insert_unless_empty(&mut entry, "subresources", subresources.into());
    entry
}

fn subresource(resource: &Resource, subresource: &Subresource, custom: bool) -> Value {
    let own = subresource.group == resource.group && subresource.version == resource.version;
    let (group, version) =
        if own && !custom { ("", "") } else { (&*subresource.group, &*subresource.version) };
    json!({
        "subresource": subresource.name,
        "responseKind": { "group": group, "version": version, "kind": subresource.kind },
        "verbs": subresource.verbs,
    })
}

fn insert_unless_empty(entry: &mut Value, field: &str, list: Value) {
    if list.as_array().is_some_and(|l| !l.is_empty()) {
        entry.as_object_mut().unwrap_or(&mut Map::new()).insert(field.to_owned(), list);
    }
}
