//! OpenAPI v3: an index, and one document for each group and version (KEP-2896).

use super::operations::{Operation, Path, Payload, paths, query_type};
use super::prose::Prose;
use super::schema::{Dialect, closure, definition, identities, named_scalars};
use crate::discovery::Document;
use coracle_api::Resource;
use coracle_api::catalogue::groups;
use coracle_api::schema::{self, TypeRef};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Where each document is, with a hash that changes when the document does, so that clients may keep it for ever.
pub fn index(resources: &[Arc<Resource>]) -> Value {
    let mut entries = Map::new();
    for group in groups(resources) {
        for version in group.versions {
            let name = match group.name {
                "" => format!("api/{version}"),
                group => format!("apis/{group}/{version}"),
            };
            let hash = hash(&of(group.name, version, resources));
            let url = format!("/openapi/v3/{name}?hash={hash}");
            entries.insert(name, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": entries })
}

fn of<'a>(group: &str, version: &str, resources: &'a [Arc<Resource>]) -> Vec<&'a Arc<Resource>> {
    resources.iter().filter(|r| r.group == group && r.version == version).collect()
}

/// Of what goes into a document instead of the document: the resources, and the program that makes it.
fn hash(resources: &[&Arc<Resource>]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    for resource in resources {
        hasher.update(format!("{resource:?}"));
    }
    crate::discovery::hex(&hasher.finalize()[..16])
}

/// `None` where nothing of that group and version is served.
pub fn document(group: &str, version: &str, resources: &[Arc<Resource>]) -> Option<Document> {
    let resources = of(group, version, resources);
    if resources.is_empty() {
        return None;
    }
    let paths: Vec<Path> = resources.iter().flat_map(|r| paths(r)).collect();
    let document = json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": crate::discovery::GIT_VERSION },
        "paths": paths.iter().map(|p| (p.template.clone(), path_item(p))).collect::<Map<_, _>>(),
        "components": {
            "schemas": schemas(&paths, &resources),
            "securitySchemes": { "BearerToken": { "type": "apiKey", "name": "authorization", "in": "header" } },
        },
    });
    Some(Document::json(&document))
}

/// The types that the payloads of these paths are made of.
pub fn roots(paths: &[Path]) -> Vec<TypeRef<'static>> {
    let operations = paths.iter().flat_map(|p| &p.operations);
    let payloads = operations.flat_map(|o| o.body.iter().chain([&o.answer]));
    let types = payloads.filter_map(|payload| schema::by_name(&type_name(payload)?));
    types.chain(schema::by_name(&format!("{META}.Status"))).collect()
}

fn schemas(paths: &[Path], resources: &[&Arc<Resource>]) -> Value {
    let subresources = resources.iter().flat_map(|r| &r.subresources).map(|s| (&*s.group, &*s.version));
    let own = resources.iter().map(|r| (&*r.group, &*r.version));
    let mut group_versions: Vec<(&str, &str)> = own.chain(subresources).collect();
    group_versions.sort_unstable();
    group_versions.dedup();
    let (prose, identities) = (Prose::of(group_versions), identities());
    let types = closure(roots(paths)).into_values();
    let mut schemas: Map<String, Value> =
        types.map(|ty| (ty.name().to_owned(), definition(ty, Dialect::V3, &prose, &identities))).collect();
    schemas.extend(named_scalars(Dialect::V3).map(|(name, schema)| (name.to_owned(), schema)));
    schemas.insert(format!("{META}.Patch"), json!({ "type": "object" }));
    Value::Object(schemas)
}

/// `None` for text.
pub fn type_name(payload: &Payload) -> Option<String> {
    match payload {
        Payload::Kind(group, version, kind) => {
            schema::root(group, version, kind).map(|ty| ty.name().to_owned())
        }
        Payload::Patch => Some(format!("{META}.Patch")),
        Payload::Status => Some(format!("{META}.Status")),
        Payload::DeleteOptions => Some(format!("{META}.DeleteOptions")),
        Payload::Text => None,
    }
}

fn path_item(path: &Path) -> Value {
    let mut item: Map<String, Value> =
        path.operations.iter().map(|o| (o.method.to_owned(), operation(o))).collect();
    let mut parameters: Vec<Value> = path_parameters(&path.template)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.push(json!({ "name": "pretty", "in": "query", "schema": { "type": "string" } }));
    item.insert("parameters".into(), parameters.into());
    Value::Object(item)
}

/// The names in braces.
pub fn path_parameters(template: &str) -> impl Iterator<Item = &str> {
    template.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
}

fn operation(operation: &Operation) -> Value {
    let parameter =
        |name: &&str| json!({ "name": name, "in": "query", "schema": { "type": query_type(name) } });
    let (group, version, kind) = &operation.identity;
    let mut value = json!({
        "operationId": operation.id,
        "tags": [tag(operation)],
        "parameters": operation.query.iter().map(parameter).collect::<Vec<_>>(),
        "responses": {
            "200": { "description": "OK", "content": content(&operation.answer) },
            "401": { "description": "Unauthorized" },
        },
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind },
    });
    if let Some(body) = &operation.body {
        let required = *body != Payload::DeleteOptions;
        value["requestBody"] = json!({ "content": content(body), "required": required });
    }
    value
}

/// As upstream groups operations: `core_v1`, `apps_v1`, `rbacAuthorization_v1`.
pub fn tag(operation: &Operation) -> String {
    let (group, version, _) = &operation.identity;
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    let mut parts = group.split('.');
    let head = parts.next().filter(|h| !h.is_empty()).unwrap_or("core").to_owned();
    let tail: String = parts.map(|p| p[..1].to_uppercase() + &p[1..]).collect();
    format!("{head}{tail}_{version}")
}

fn content(payload: &Payload) -> Value {
    let Some(name) = type_name(payload) else {
        return json!({ "*/*": { "schema": { "type": "string" } } });
    };
    let schema = json!({ "schema": Dialect::V3.reference(&name) });
    let media_types: &[&str] = match payload {
        Payload::Patch => &super::PATCH_TYPES,
        _ => &["application/json", "application/yaml"],
    };
    media_types.iter().map(|m| ((*m).to_owned(), schema.clone())).collect::<Map<_, _>>().into()
}
