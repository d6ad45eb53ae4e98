//! OpenAPI v3: an index, and one document for each group and version (KEP-2896).

use super::operations::{Operation, Path, Payload, paths};
use super::pages::pages;
use super::parameters::query_type;
use super::prose::Prose;
use super::schema::{Dialect, closure, definition, identities, named_values, value_names};
use crate::discovery::Document;
use coracle_api::Resource;
use coracle_api::schema::{self, TypeRef};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Where each document is, with a hash that changes when the document does, so that clients may keep it for ever.
pub fn index(resources: &[Arc<Resource>]) -> Value {
    let mut entries = Map::new();
    for page in pages(resources) {
        let hash = hash(&page.document, resources);
        let url = format!("/openapi/v3/{}?hash={hash}", page.document);
        entries.insert(page.document, json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": entries })
}

/// The resources of a document such as `api/v1` or `apis/apps/v1`; none of others.
fn of<'a>(document: &str, resources: &'a [Arc<Resource>]) -> Vec<&'a Arc<Resource>> {
    let parts: Vec<&str> = document.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return Vec::new(),
    };
    resources.iter().filter(|r| r.group == group && r.version == version).collect()
}

/// Of what goes into a document instead of the document: the resources, and the program that makes it.
fn hash(document: &str, resources: &[Arc<Resource>]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(concat!(env!("CARGO_PKG_VERSION"), " 2 "));
    hasher.update(document);
    for resource in of(document, resources) {
        hasher.update(format!("{resource:?}"));
    }
    crate::discovery::hex(&hasher.finalize()[..16])
}

/// By its path below `/openapi/v3/`; `None` where nothing of that name is served. Its tag is the hash of the index.
pub fn document(name: &str, resources: &[Arc<Resource>]) -> Option<Document> {
    let page = pages(resources).into_iter().find(|page| page.document == name)?;
    let own = of(name, resources);
    let mut paths: Vec<Path> = own.iter().flat_map(|r| paths(r)).collect();
    paths.push(page.path);
    let document = json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": crate::discovery::GIT_VERSION },
        "paths": paths.iter().map(|p| (p.template.clone(), path_item(p))).collect::<Map<_, _>>(),
        "components": {
            "schemas": schemas(&paths, &own),
            "securitySchemes": { "BearerToken": { "description": "Bearer Token authentication", "type": "apiKey",
                "name": "authorization", "in": "header" } },
        },
    });
    let etag = format!("\"{}\"", hash(name, resources));
    Some(Document { etag, ..Document::json(&document) })
}

/// The types that the payloads of these paths are made of.
pub fn roots(paths: &[Path]) -> Vec<TypeRef<'static>> {
    let operations = paths.iter().flat_map(|p| &p.operations);
    let payloads = operations.flat_map(|o| o.body.iter().chain(&o.answer));
    let types = payloads.filter_map(|payload| schema::by_name(&type_name(payload)?));
    types.chain(schema::by_name(&format!("{META}.Status"))).collect()
}

fn schemas(paths: &[Path], own: &[&Arc<Resource>]) -> Value {
    let subresources = own.iter().flat_map(|r| &r.subresources).map(|s| (&*s.group, &*s.version));
    let own = own.iter().map(|r| (&*r.group, &*r.version));
    let mut group_versions: Vec<(&str, &str)> = own.chain(subresources).collect();
    group_versions.sort_unstable();
    group_versions.dedup();
    let (prose, identities) = (Prose::of(group_versions), identities());
    let types = closure(roots(paths));
    let mut schemas: Map<String, Value> = types
        .values()
        .map(|ty| (ty.name().to_owned(), definition(*ty, Dialect::V3, &prose, &identities)))
        .collect();
    let names = value_names(&types);
    schemas.extend(named_values(Dialect::V3).filter(|(name, _)| names.contains(name.as_str())));
    let patch = super::parameters::meta("Patch");
    if paths.iter().flat_map(|path| &path.operations).any(|o| o.body.as_ref() == Some(&patch)) {
        schemas.insert(format!("{META}.Patch"), json!({ "type": "object" }));
    }
    Value::Object(schemas)
}

/// `None` for text.
pub fn type_name(payload: &Payload) -> Option<String> {
    match payload {
        Payload::Kind(group, version, kind) => {
            schema::root(group, version, kind).map(|ty| ty.name().to_owned())
        }
        Payload::Named(name) => Some(name.clone()),
        Payload::Text => None,
    }
}

/// The query parameters that all operations of a path have; they stand at the path, as upstream puts them.
pub fn common_query(path: &Path) -> Vec<&'static str> {
    let Some((first, rest)) = path.operations.split_first() else { return Vec::new() };
    let everywhere = |name: &&str| rest.iter().all(|o| o.query.contains(name));
    first.query.iter().copied().filter(everywhere).collect()
}

fn query_parameter(name: &&str) -> Value {
    json!({ "name": name, "in": "query", "schema": { "type": query_type(name), "uniqueItems": true } })
}

fn path_item(path: &Path) -> Value {
    let common = common_query(path);
    let mut item: Map<String, Value> =
        path.operations.iter().map(|o| (o.method.to_owned(), operation(o, &common))).collect();
    let schema = json!({ "type": "string", "uniqueItems": true });
    let of_path = path_parameters(&path.template)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    let parameters: Vec<Value> = of_path.chain(common.iter().map(query_parameter)).collect();
    if !parameters.is_empty() {
        item.insert("parameters".into(), parameters.into());
    }
    Value::Object(item)
}

/// The names in braces.
pub fn path_parameters(template: &str) -> impl Iterator<Item = &str> {
    template.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
}

fn operation(operation: &Operation, common: &[&str]) -> Value {
    let own = operation.query.iter().filter(|name| !common.contains(name));
    let parameters: Vec<Value> = own.map(query_parameter).collect();
    let mut responses: Map<String, Value> = operation
        .codes
        .iter()
        .map(|(code, text)| {
            let content = operation.answer.as_ref().map(|answer| content(answer, operation.produces));
            ((*code).to_owned(), json!({ "description": text, "content": content }))
        })
        .collect();
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    let mut value = json!({ "operationId": operation.id, "tags": [operation.tag], "responses": responses });
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    if let Some(action) = operation.action {
        value["x-kubernetes-action"] = action.into();
    }
    if let Some((group, version, kind)) = &operation.identity {
        value["x-kubernetes-group-version-kind"] =
            json!({ "group": group, "version": version, "kind": kind });
    }
    if let Some(body) = &operation.body {
        value["requestBody"] = json!({ "content": content(body, operation.consumes) });
        if *body != super::parameters::meta("DeleteOptions") {
            value["requestBody"]["required"] = true.into();
        }
    }
    value
}

fn content(payload: &Payload, media_types: &[&str]) -> Value {
    let schema = match type_name(payload) {
        Some(name) => json!({ "schema": Dialect::V3.reference(&name) }),
        None => json!({ "schema": { "type": "string" } }),
    };
    media_types.iter().map(|media| ((*media).to_owned(), schema.clone())).collect::<Map<_, _>>().into()
}
