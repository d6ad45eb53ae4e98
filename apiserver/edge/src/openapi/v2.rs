//! OpenAPI v2, everything in one document: what built-in resources contribute to it, and how a path looks.

use super::operations::{Operation, Path, Payload, paths};
use super::pages::pages;
use super::parameters::path_parameters;
use super::prose::Prose;
use super::query::{DELETE_OPTIONS_BODY, PATCH_BODY, Parameter, SHARED};
use super::schema::{Dialect, closure, definition, identities, named_values};
use super::v3::{common_query, roots, type_name};
use coracle_api::Resource;
use coracle_api::catalogue::groups;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of everything that these resources are about, discovery included.
pub(super) fn all_paths(resources: &[Arc<Resource>], visit: &mut dyn FnMut(&Path)) {
    pages(resources).iter().for_each(|page| visit(&page.path));
    for resource in resources {
        paths(resource).iter().for_each(&mut *visit);
    }
}

/// The definitions of built-in resources.
pub(super) fn definitions(resources: &[Arc<Resource>], add: &mut dyn FnMut(&str, &Value)) {
    let (identities, prose) = (identities(), Prose::load());
    let mut written = BTreeSet::new();
    let discovery: Vec<Path> = pages(resources).into_iter().map(|page| page.path).collect();
    let mut of_discovery = roots(&discovery);
    for group in groups(resources) {
        for version in group.versions {
            let of_version: Vec<&Arc<Resource>> =
                resources.iter().filter(|r| r.group == group.name && r.version == version).collect();
            let paths: Vec<Path> = of_version.iter().flat_map(|r| paths(r)).collect();
            let used = roots(&paths).into_iter().chain(of_discovery.drain(..));
            for (name, ty) in closure(used) {
                if written.insert(name) {
                    add(name, &definition(ty, Dialect::V2, &prose, &identities));
                }
            }
        }
    }
    for (name, schema) in named_values(Dialect::V2, &prose) {
        add(&name, &schema);
    }
}

/// The parameters that many requests share, by the names they are referred to by.
pub(super) fn shared_parameters() -> Map<String, Value> {
    let bodies = [(DELETE_OPTIONS_BODY, "DeleteOptions"), (PATCH_BODY, "Patch")];
    let bodies = bodies.map(|(key, kind)| (key.to_owned(), body(&super::parameters::meta(kind))));
    SHARED.iter().map(|parameter| (parameter.key(), parameter.v2_whole())).chain(bodies).collect()
}

pub(super) fn path_item(path: &Path) -> Value {
    let common = common_query(path);
    let mut item: Map<String, Value> =
        path.operations.iter().map(|o| (o.method.to_owned(), operation(o, &common))).collect();
    let of_path = path_parameters(&path.template, &path.kind).map(|one| one.value(Dialect::V2));
    let parameters: Vec<Value> = of_path.chain(common.iter().map(|one| one.v2())).collect();
    if !parameters.is_empty() {
        item.insert("parameters".into(), parameters.into());
    }
    Value::Object(item)
}

/// What is sent; only how to delete may be left out.
fn body(payload: &Payload) -> Value {
    let mut parameter = json!({ "name": "body", "in": "body", "schema": reference(payload) });
    if *payload != super::parameters::meta("DeleteOptions") {
        parameter["required"] = true.into();
    }
    parameter
}

fn operation(operation: &Operation, common: &[&Parameter]) -> Value {
    let own = operation.query.iter().filter(|parameter| !common.contains(parameter));
    let mut parameters: Vec<Value> = own.map(|parameter| parameter.v2()).collect();
    if let Some(payload) = &operation.body {
        let meta = super::parameters::meta;
        let shared = [(DELETE_OPTIONS_BODY, meta("DeleteOptions")), (PATCH_BODY, meta("Patch"))];
        let key = shared.iter().find(|(_, shared)| shared == payload).map(|(key, _)| key);
        parameters
            .push(key.map_or_else(|| body(payload), |key| json!({ "$ref": format!("#/parameters/{key}") })));
    }
    let mut responses: Map<String, Value> = operation
        .codes
        .iter()
        .map(|(code, text)| {
            let schema = operation.answer.as_ref().map(reference);
            ((*code).to_owned(), json!({ "description": text, "schema": schema }))
        })
        .collect();
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    let mut value = json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [operation.tag],
        "schemes": ["https"],
        "produces": operation.produces,
        "responses": responses,
    });
    if !operation.consumes.is_empty() {
        value["consumes"] = json!(operation.consumes);
    }
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
    value
}

fn reference(payload: &Payload) -> Value {
    type_name(payload).map_or(json!({ "type": "string" }), |name| Dialect::V2.reference(&name))
}
