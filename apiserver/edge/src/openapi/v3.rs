//! OpenAPI v3: an index, and one document for each group and version (KEP-2896).

use super::Documents;
use super::custom;
use super::etags::{ETags, group_version};
use super::operations::{Operation, Path, Payload, is_built_in, paths};
use super::pages::pages;
use super::parameters::path_parameters;
use super::prose::Prose;
use super::query::Parameter;
use super::schema::{Dialect, closure, definition, identities, identities_in, named_values, value_names};
use crate::discovery::ServedApis;
use coracle_api::Resource;
use coracle_api::schema::{self, TypeRef};
use coracle_component_base::version::GIT_VERSION;
use coracle_resources::custom::CustomResource;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Where each document is, with a hash that changes when the document does, so that clients may keep it for ever.
pub fn index(offer: &Documents) -> Value {
    let own = ETags::of(offer).documents().map(|(name, tag)| {
        (name.to_owned(), json!({ "serverRelativeURL": format!("/openapi/v3/{name}?hash={tag}") }))
    });
    let mut entries: Map<String, Value> = own.collect();
    for (name, url) in offer.foreign.openapi_v3() {
        entries.insert(name, json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": entries })
}

/// By its name in the index.
pub fn document(name: &str, offer: &ServedApis) -> Value {
    let own: Vec<&Arc<Resource>> =
        group_version(name).into_iter().flat_map(|(group, version)| offer.of(group, version)).collect();
    let mut paths: Vec<Path> = own.iter().flat_map(|r| paths(r)).collect();
    paths
        .extend(pages(&offer.resources).into_iter().find(|page| page.document == name).map(|page| page.path));
    let mut document = json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": GIT_VERSION },
        "paths": paths.iter().map(|p| (p.template.clone(), path_item(p))).collect::<Map<_, _>>(),
        "components": {
            "schemas": schemas(&paths, name, offer),
            "securitySchemes": { "BearerToken": { "description": "Bearer Token authentication", "type": "apiKey",
                "name": "authorization", "in": "header" } },
        },
    });
    if !own.is_empty() && own.iter().all(|r| !is_built_in(r)) {
        // Upstream has a server of its own for these.
        document["info"] = json!({ "title": "Kubernetes CRD Swagger", "version": "v0.1.0" });
        document["components"].as_object_mut().map(|components| components.remove("securitySchemes"));
    }
    document
}

/// The types that the payloads of these paths are made of.
pub fn roots(paths: &[Path]) -> Vec<TypeRef<'static>> {
    let operations = paths.iter().flat_map(|p| &p.operations);
    let payloads = operations.flat_map(|o| o.body.iter().chain(&o.answer));
    payloads.filter_map(|payload| schema::by_name(&type_name(payload)?)).collect()
}

fn schemas(paths: &[Path], name: &str, offer: &ServedApis) -> Value {
    let custom: Vec<&Arc<CustomResource>> = group_version(name)
        .into_iter()
        .flat_map(|(group, version)| offer.custom_of(group, version))
        .collect();
    let identities = match group_version(name) {
        Some((group, _)) if custom.is_empty() => identities_in(group),
        _ if custom.is_empty() => identities(),
        _ => custom::identities(),
    };
    let prose = Prose::load();
    let mut used = roots(paths);
    if !custom.is_empty() {
        // Custom objects refer to these by themselves.
        let meta = ["ObjectMeta", "ListMeta"].map(|kind| schema::by_name(&format!("{META}.{kind}")));
        used.extend(meta.into_iter().flatten());
    }
    let types = closure(used);
    let mut schemas: Map<String, Value> = types
        .values()
        .map(|ty| (ty.name().to_owned(), definition(*ty, Dialect::V3, &prose, &identities)))
        .collect();
    schemas.extend(custom.iter().flat_map(|c| custom::definitions(c, Dialect::V3)));
    let names = value_names(&types);
    let patch = super::parameters::meta("Patch");
    let patches = paths.iter().flat_map(|path| &path.operations).any(|o| o.body.as_ref() == Some(&patch));
    let is_used =
        |name: &str| names.contains(name) || (patches && Some(name) == type_name(&patch).as_deref());
    schemas.extend(named_values(Dialect::V3, &prose).filter(|(name, _)| is_used(name)));
    Value::Object(schemas)
}

/// `None` for text.
pub fn type_name(payload: &Payload) -> Option<String> {
    match payload {
        Payload::Kind(group, version, kind) => {
            let built_in = schema::root(group, version, kind).map(|ty| ty.name().to_owned());
            // Of the groups, those of custom resources alone have no type of this program's.
            built_in.or_else(|| group.contains('.').then(|| custom::name(group, version, kind)))
        }
        Payload::Named(name) => Some(name.clone()),
        Payload::Text => None,
    }
}

/// The query parameters that all operations of a path have; they stand at the path, as upstream puts them.
pub fn common_query(path: &Path) -> Vec<&'static Parameter> {
    let Some((first, rest)) = path.operations.split_first() else { return Vec::new() };
    let everywhere = |parameter: &&Parameter| rest.iter().all(|o| o.query.contains(parameter));
    first.query.iter().copied().filter(everywhere).collect()
}

fn path_item(path: &Path) -> Value {
    let common = common_query(path);
    let mut item: Map<String, Value> =
        path.operations.iter().map(|o| (o.method.to_owned(), operation(o, &common))).collect();
    let of_path = path_parameters(&path.template, &path.kind).map(|one| one.value(Dialect::V3));
    let parameters: Vec<Value> = of_path.chain(common.iter().map(|one| one.v3())).collect();
    if !parameters.is_empty() {
        item.insert("parameters".into(), parameters.into());
    }
    Value::Object(item)
}

fn operation(operation: &Operation, common: &[&Parameter]) -> Value {
    let own = operation.query.iter().filter(|parameter| !common.contains(parameter));
    let parameters: Vec<Value> = own.map(|parameter| parameter.v3()).collect();
    let mut responses: Map<String, Value> = operation
        .codes
        .iter()
        .map(|(code, text)| {
            let content = operation.answer.as_ref().map(|answer| content(answer, operation.produces));
            ((*code).to_owned(), json!({ "description": text, "content": content }))
        })
        .collect();
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    let mut value = json!({ "operationId": operation.id, "description": operation.description,
        "tags": [operation.tag], "responses": responses });
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
